"""The manifests in deploy/kubernetes are what a cluster takes, safe, and what the page says."""

import json
import re
from pathlib import Path
from typing import Final

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from deploy.kubernetes.generate import render_files
from phasewatch.cli.main import main
from tests.support.alert_stack import uncommented
from tests.support.kubernetes import KUBERNETES, OLDEST, PLACES, assert_valid, built, exporter_in, of_kind, workloads
from tests.support.markdown import code, fences, page, tables
from tests.support.paths import DASHBOARDS_JSON, ROOT
from tests.support.processes import needs
from tests.support.rule_files import RULES, groups, promtool

CONFIGURATIONS: Final = ("central/phasewatch.yml", "examples/vllm/phasewatch.yml")
PAGE: Final = page("docs/kubernetes.md")


# Valid


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("place", PLACES)
def test_every_object_is_valid(place: str, version: str) -> None:
    for one in built(KUBERNETES / place):
        assert_valid(one, version)


def test_a_misspelled_key_is_not_valid() -> None:
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


def test_every_object_fits_into_an_annotation() -> None:
    # A ConfigMap may have 1 MiB; `kubectl apply` keeps a copy in an annotation of at most 256 KiB.
    for place in PLACES:
        for one in built(KUBERNETES / place):
            assert len(json.dumps(one)) < 262_144, (place, one["metadata"]["name"])


# Generated


def test_generated_files_are_up_to_date() -> None:
    for path, content in render_files(ROOT).items():
        assert path.read_text(encoding="utf-8") == content, f"run make deploy: {path}"


def test_the_rules_of_the_cluster_are_those_of_the_pack() -> None:
    shipped = {path.stem: groups(path) for path in RULES.glob("phasewatch-*.yml")}
    objects = of_kind(built(KUBERNETES / "monitoring"), "PrometheusRule")
    assert {one["metadata"]["name"]: one["spec"]["groups"] for one in objects} == shipped
    assert shipped


@needs("promtool")
def test_prometheus_takes_the_rules_of_the_cluster(tmp_path: Path) -> None:
    for one in of_kind(built(KUBERNETES / "monitoring"), "PrometheusRule"):
        (tmp_path / "rules.yml").write_text(yaml.safe_dump(one["spec"]), encoding="utf-8")
        promtool("check", "rules", tmp_path / "rules.yml")


def test_the_boards_of_the_cluster_are_those_of_the_repository() -> None:
    shipped = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS_JSON.glob("*.json")}
    objects = of_kind(built(KUBERNETES / "monitoring"), "ConfigMap")
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in objects)
    assert {name: json.loads(text) for one in objects for name, text in one["data"].items()} == shipped
    assert shipped


# Configured


def test_every_configuration_is_valid_as_it_is_and_with_its_comments_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CONFIGURATIONS:
        text = (KUBERNETES / name).read_text(encoding="utf-8")
        for form in (text, uncommented(text)):
            (tmp_path / "phasewatch.yml").write_text(form, encoding="utf-8")
            assert main(["check", "--config.file", str(tmp_path / "phasewatch.yml")]) == 0, form
            notes = [line for line in capsys.readouterr().err.splitlines() if "note: " in line]
            assert [note for note in notes if "credentials_file: cannot be read now" not in note] == [], form


# Safe


def test_the_exporter_may_run_where_security_is_restricted() -> None:
    for place in PLACES[1:]:
        (workload,) = workloads(built(KUBERNETES / place))
        security = exporter_in(workload)["securityContext"]
        assert security["runAsNonRoot"] is True, place
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, place
        assert security["allowPrivilegeEscalation"] is False, place
        assert security["readOnlyRootFilesystem"] is True, place
        assert security["capabilities"] == {"drop": ["ALL"]}, place


def test_no_pod_has_a_token_of_the_cluster_or_variables_of_services() -> None:
    for place in PLACES[1:]:
        (workload,) = workloads(built(KUBERNETES / place))
        pod = workload["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False, place
        assert pod["enableServiceLinks"] is False, place


def test_every_secret_is_optional_and_mounted_as_a_folder() -> None:
    for place in PLACES[1:]:
        (workload,) = workloads(built(KUBERNETES / place))
        secrets = [volume["secret"] for volume in workload["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
        assert [secret["optional"] for secret in secrets] == [True], place
        assert not any("subPath" in mount for mount in exporter_in(workload)["volumeMounts"]), place


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


def test_removing_a_place_removes_no_namespace_with_what_else_is_in_it() -> None:
    for place in PLACES:
        assert of_kind(built(KUBERNETES / place), "Namespace") == [], place


# The page


def test_every_file_is_listed_and_nothing_else_is() -> None:
    paths = {
        str(path.relative_to(ROOT))
        for path in (*KUBERNETES.rglob("*"), ROOT / "dashboards" / "kustomization.yaml")
        if path.is_file() and path.suffix in {".py", ".yaml", ".yml"}
    }
    assert {code(file) for _, (file, *_) in tables(PAGE, "file", "what is in it")} == paths


def test_the_page_creates_every_namespace_but_that_of_prometheus_and_restricts_that_of_the_exporter() -> None:
    used = {one["metadata"]["namespace"] for place in PLACES[1:] for one in built(KUBERNETES / place)}
    assert set(re.findall(r"^kubectl create namespace (\S+)$", PAGE, re.MULTILINE)) == used
    (central,) = {one["metadata"]["namespace"] for one in built(KUBERNETES / "central")}
    labelled = re.findall(
        r"^kubectl label namespace (\S+) pod-security.kubernetes.io/enforce=(\S+)$", PAGE, re.MULTILINE
    )
    assert labelled == [(central, "restricted")]


@needs("promtool")
def test_the_rule_with_own_thresholds_on_the_page_is_valid(tmp_path: Path) -> None:
    (text,) = (text for text in fences(PAGE, "yaml") if "kind: PrometheusRule" in text)
    one = yaml.safe_load(text)
    assert_valid(one, OLDEST)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(one["spec"]), encoding="utf-8")
    promtool("check", "rules", tmp_path / "rules.yml")


def test_the_program_that_the_page_runs_in_a_pod_is_in_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    folders = {str(Path(program).parent) for program in re.findall(r"-c phasewatch -- (\S+)", PAGE)}
    assert folders == {str(Path(program).parent) for program in re.findall(r'ENTRYPOINT \["([^"]+)"\]', dockerfile)}


def test_the_labels_of_the_page_are_those_of_the_pods() -> None:
    monitors = of_kind(built(KUBERNETES / "monitoring"), "PodMonitor")
    chosen = {one["spec"]["selector"]["matchLabels"]["phasewatch"] for one in monitors}
    assert {code(label) for _, (label, *_) in tables(PAGE, "label of the Pod", "target", "instance")} == {
        f"phasewatch: {value}" for value in chosen
    }
