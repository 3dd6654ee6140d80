"""The manifests in deploy/kubernetes agree with each other, the image, the rules and the program.

A port, a user, a version, a path, an address or a name that is changed in one place only is found.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from phasewatch import __version__
from phasewatch.base.units import parse_duration
from phasewatch.cli.arguments import DEFAULT_PORT, create_parser
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from tests.support.alert_stack import uncommented
from tests.support.kubernetes import (
    KUBERNETES,
    PLACES,
    Object,
    built,
    exporter_in,
    matches,
    of_kind,
    open_ports,
    workloads,
)
from tests.support.markdown import words
from tests.support.paths import ROOT
from tests.support.targets import parse_config


def disagreements(root: Path) -> Iterator[str]:
    """What two places of a tree, or a place and the program, tell differently. Empty when all is well."""
    # Resolved: a place that a tree only leads to is built once for all trees.
    places = {place: (root / "deploy" / "kubernetes" / place).resolve() for place in PLACES}
    monitoring, central, example = (built(place) for place in places.values())
    monitors = of_kind(monitoring, "PodMonitor")
    prometheus = yaml.safe_load(uncommented((root / "alerts" / "prometheus.yml").read_text(encoding="utf-8")))
    scrapes = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    scrape = scrapes["phasewatch"]
    dockerfile = (root / "Dockerfile").read_text(encoding="utf-8")
    for place, objects in (("central", central), ("examples/vllm", example)):
        (workload,) = workloads(objects)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        container = exporter_in(workload)
        yield from container_disagreements(container, dockerfile)
        yield from memory_disagreements(container)
        yield from mount_disagreements(container, workload, objects)
        chosen = [one for one in monitors if matches(one["spec"]["selector"], labels)]
        if len(chosen) != 1:
            yield f"{place}: {len(chosen)} PodMonitors choose its Pods"
        for monitor in chosen:
            yield from monitor_disagreements(monitor, container["ports"][0]["name"], labels, scrape)
        if not matches(workload["spec"]["selector"], labels):
            yield f"{place}: the workload does not choose its own Pods"
        for service in of_kind(objects, "Service"):
            if not matches({"matchLabels": service["spec"]["selector"]}, labels):
                yield f"{place}: the Service does not lead to the Pods"
    configurations = [(places[place] / "phasewatch.yml").read_text(encoding="utf-8") for place in PLACES[1:]]
    yield from central_disagreements(central, configurations[0], monitoring)
    yield from sidecar_disagreements(example, configurations[1], monitors)
    compose = yaml.safe_load((root / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["vllm"]
    yield from server_disagreements(example, compose, scrapes["vllm"])


def monitor_disagreements(
    monitor: Object, port: str, labels: Mapping[str, str], scrape: Mapping[str, Any]
) -> Iterator[str]:
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    if endpoint["port"] != port:
        yield f"the PodMonitor asks for another port than {port}"
    if endpoint["interval"] != scrape["scrape_interval"]:
        yield "the interval is not that of alerts/prometheus.yml"
    if parse_duration(endpoint["scrapeTimeout"]) > parse_duration(endpoint["interval"]):
        yield "the timeout is longer than the interval, which the operator refuses"
    if monitor["spec"].get("namespaceSelector") != {"any": True}:
        yield "the PodMonitor does not look into every namespace"
    if {"targetLabel": "job", "replacement": scrape["job_name"]} not in endpoint["relabelings"]:
        yield "the job is not that of alerts/prometheus.yml"
    for label in re.findall(r"__meta_kubernetes_pod_label_(\w+)", json.dumps(endpoint)):
        if label not in {re.sub(r"\W", "_", name) for name in labels}:
            yield f"the Pods do not have the label {label}"


def container_disagreements(container: Object, dockerfile: str) -> Iterator[str]:
    if container["image"] != f"ghcr.io/phasewatch/phasewatch:{__version__}":
        yield f"the image is {container['image']}"
    if container["ports"] != [{"name": "phasewatch", "containerPort": DEFAULT_PORT}]:
        yield f"the port is {container['ports']}"
    if f"PHASEWATCH_WEB_LISTEN_ADDRESS=:{DEFAULT_PORT}\n" not in dockerfile:
        yield "the image listens on another port"
    security = container["securityContext"]
    if f"USER {security['runAsUser']}:{security['runAsGroup']}\n" not in dockerfile:
        yield "the user is another one than that of the image"
    for name, path in (("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")):
        probe = container.get(name, {"httpGet": {"path": path, "port": "phasewatch"}})
        if probe["httpGet"] != {"path": path, "port": container["ports"][0]["name"]}:
            yield f"{name} asks {probe['httpGet']}"


def memory_disagreements(container: Object) -> Iterator[str]:
    """A limit below what was measured would kill the exporter again and again."""
    one, many = (re.search(rf"{text} (\d+) MiB", words("docs/scale.md")) for text in ("With one it takes", "5 s:"))
    assert one
    assert many
    asked, limit = (int(container["resources"][of]["memory"].removesuffix("Mi")) for of in ("requests", "limits"))
    if asked < int(one[1]) or limit < int(many[1]):
        yield f"{asked} to {limit} MiB are less than the exporter takes"


def mount_disagreements(container: Object, workload: Object, objects: list[Object]) -> Iterator[str]:
    """The file that the program is told must be in the ConfigMap, and its secrets where the Secret is mounted."""
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    maps = {one["metadata"]["name"]: one["data"] for one in of_kind(objects, "ConfigMap")}
    there = {
        f"{mounted[volume['name']]}/{key}": text
        for volume in volumes
        if volume["name"] in mounted and "configMap" in volume
        for key, text in maps.get(volume["configMap"]["name"], {}).items()
    }
    config_path = str(create_parser().parse_args(container["args"]).config_file)
    if config_path not in there:
        yield f"no ConfigMap has {config_path}"
        return
    (secrets,) = (mounted[volume["name"]] for volume in volumes if "secret" in volume and volume["name"] in mounted)
    pod = workload["spec"]["template"]["spec"].get("securityContext", {})
    (mode,) = (volume["secret"]["defaultMode"] for volume in volumes if "secret" in volume)
    shared = pod.get("fsGroup") == container["securityContext"]["runAsGroup"]
    if not (mode & 0o004 or (mode & 0o040 and shared)):
        yield f"the exporter cannot read its secrets, which are {mode:o}"
    if "fsGroup" in pod and not shared:
        yield "the group of volumes is not that of the exporter"
    named = [
        target.authorization for target in parse_config(uncommented(there[config_path])).targets if target.authorization
    ]
    if not named:
        yield f"no target of {config_path} shows how credentials are given"
    for authorization in named:
        if str(authorization.credentials_file.parent) != secrets:
            yield f"{authorization.credentials_file} is not where the Secret is mounted, {secrets}"


def central_disagreements(objects: list[Object], configuration: str, monitoring: list[Object]) -> Iterator[str]:
    ((policy,), (service,)) = of_kind(objects, "NetworkPolicy"), of_kind(objects, "Service")
    (workload,) = workloads(objects)
    if not matches(policy["spec"]["podSelector"], workload["spec"]["template"]["metadata"]["labels"]):
        yield "the NetworkPolicy is not for the Pods"
    allowed = open_ports(objects)
    targets = parse_config(uncommented(configuration)).targets
    if not any(target.device_from for target in targets):
        yield "no target shows how a DCGM exporter is asked"
    for url in (url for one in targets for url in (one.url, one.device_from) if url):
        if (urlsplit(url).port, "TCP") not in allowed:
            yield f"the NetworkPolicy keeps the exporter from {url}"
    if not {(53, "UDP"), (53, "TCP")} <= allowed:
        yield "the NetworkPolicy keeps the exporter from names"
    name = exporter_in(workload)["ports"][0]["name"]
    (entry,) = policy["spec"]["ingress"]
    if entry["ports"] != [{"port": name}]:
        yield "the NetworkPolicy opens another port"
    if [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] != [(DEFAULT_PORT, name)]:
        yield "the Service has another port"
    (namespace,) = {one["metadata"]["namespace"] for one in monitoring}
    if entry["from"][0]["namespaceSelector"]["matchLabels"] != {"kubernetes.io/metadata.name": namespace}:
        yield "the NetworkPolicy lets in another namespace than that of monitoring"


def sidecar_disagreements(objects: list[Object], configuration: str, monitors: list[Object]) -> Iterator[str]:
    (workload,) = workloads(objects)
    pod = workload["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    port = server["ports"][0]["containerPort"]
    (target,) = parse_config(configuration).targets
    if target.url != f"http://127.0.0.1:{port}" or f"--port={port}" not in server["args"]:
        yield f"the server is not at {target.url}"
    (sidecar,) = (one for one in monitors if "sidecar" in str(one["spec"]))
    if f"{target.name};(.+);(.+)" not in json.dumps(sidecar):
        yield f"the name {target.name} does not become that of the Pod"
    node, configured = (
        resolve_device(pod["nodeSelector"]["nvidia.com/gpu.product"]),
        resolve_device(target.device.name or ""),
    )
    assert isinstance(node, ResolvedDevice)
    assert isinstance(configured, ResolvedDevice)
    if node.device != configured.device:
        yield "the device is not that of the node"
    if str(target.device.count) != server["resources"]["limits"]["nvidia.com/gpu"]:
        yield "the number of devices is not that of the server"
    homes = [
        (one["env"][0], *(mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] == "models"))
        for one in (server, exporter_in(workload))
    ]
    if homes[0] != homes[1] or homes[0][0]["value"] != homes[0][1]:
        yield "the exporter looks for the model elsewhere than the server puts it"


def server_disagreements(objects: list[Object], compose: Object, scrape: Mapping[str, Any]) -> Iterator[str]:
    """The vLLM of the example against that of docker-compose.yml, and against the job of alerts/prometheus.yml."""
    ((workload,), (monitor,)) = workloads(objects), of_kind(objects, "PodMonitor")
    (server,) = workload["spec"]["template"]["spec"]["containers"]
    if server["image"] != compose["image"]:
        yield f"the server is {server['image']}, and {compose['image']} in docker-compose.yml"
    if any(arguments[0].startswith("-") for arguments in (server["args"], compose["command"])):
        yield "the model is not the first word"
    probe = server["startupProbe"]
    if probe["periodSeconds"] * probe["failureThreshold"] != parse_duration(compose["healthcheck"]["start_period"]):
        yield "a server has another time to start than in docker-compose.yml"
    if workload["spec"]["replicas"] == 1 and workload["spec"]["strategy"] != {"type": "Recreate"}:
        yield "an update waits for ever for a second GPU"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    if {"targetLabel": "job", "replacement": scrape["job_name"]} not in endpoint["relabelings"]:
        yield "the job of the server is not that of alerts/prometheus.yml"
    if not matches(monitor["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"]):
        yield "the PodMonitor of the server does not choose its Pods"


def test_manifests_image_rules_and_program_agree() -> None:
    assert list(disagreements(ROOT)) == []


MUTATIONS: Final = [
    ("Dockerfile", "USER 65532:65532", "USER 65534:65534"),
    ("Dockerfile", "ADDRESS=:10061", "ADDRESS=:10062"),
    ("alerts/prometheus.yml", "scrape_interval: 5s", "scrape_interval: 10s"),
    ("docker-compose.yml", "vllm-openai:v", "vllm-openai:v0."),
    ("docker-compose.yml", 'command: ["${VLLM_MODEL', 'command: ["--model=${VLLM_MODEL'),
    ("docker-compose.yml", "start_period: 30m", "start_period: 3m"),
    ("deploy/kubernetes/central/exporter.yaml", f"phasewatch:{__version__}", "phasewatch:0.0.9"),
    ("deploy/kubernetes/central/exporter.yaml", "containerPort: 10061", "containerPort: 10062"),
    ("deploy/kubernetes/central/exporter.yaml", "port: 10061, targetPort", "port: 10062, targetPort"),
    ("deploy/kubernetes/central/exporter.yaml", "targetPort: phasewatch", "targetPort: metrics"),
    ("deploy/kubernetes/central/exporter.yaml", "runAsUser: 65532", "runAsUser: 1000"),
    ("deploy/kubernetes/central/exporter.yaml", "runAsGroup: 65532", "runAsGroup: 1000"),
    ("deploy/kubernetes/central/exporter.yaml", "/etc/phasewatch/phasewatch.yml", "/etc/phasewatch.yml"),
    ("deploy/kubernetes/central/exporter.yaml", "mountPath: /etc/phasewatch", "mountPath: /config"),
    ("deploy/kubernetes/central/exporter.yaml", "mountPath: /run/secrets/phasewatch", "mountPath: /secrets"),
    ("deploy/kubernetes/central/exporter.yaml", "path: /-/healthy", "path: /healthy"),
    ("deploy/kubernetes/central/exporter.yaml", "path: /-/ready", "path: /-/healthy"),
    ("deploy/kubernetes/central/exporter.yaml", "- {port: 11434}", "- {port: 11435}"),
    ("deploy/kubernetes/central/exporter.yaml", "- {port: 9400}", "- {port: 9401}"),
    ("deploy/kubernetes/central/exporter.yaml", "{port: 53, protocol: UDP}", "{port: 54, protocol: UDP}"),
    ("deploy/kubernetes/central/exporter.yaml", "{port: 53, protocol: TCP}", "{port: 54, protocol: TCP}"),
    ("deploy/kubernetes/central/exporter.yaml", "limits: {memory: 256Mi}", "limits: {memory: 16Mi}"),
    ("deploy/kubernetes/central/exporter.yaml", "fsGroup: 65532", "fsGroup: 1000"),
    ("deploy/kubernetes/central/exporter.yaml", "defaultMode: 0440", "defaultMode: 0400"),
    ("deploy/kubernetes/central/exporter.yaml", "metadata.name: monitoring", "metadata.name: prometheus"),
    ("deploy/kubernetes/central/exporter.yaml", "phasewatch: central", "phasewatch: main"),
    ("deploy/kubernetes/central/kustomization.yaml", "[phasewatch.yml]", "[config.yml=phasewatch.yml]"),
    ("deploy/kubernetes/central/phasewatch.yml", ":11434", ":11500"),
    ("deploy/kubernetes/central/phasewatch.yml", ":9400", ":9401"),
    ("deploy/kubernetes/central/phasewatch.yml", "# device_from:", "# See device_from:"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", f"phasewatch:{__version__}", "phasewatch:latest"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "containerPort: 10061", "containerPort: 9100"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "name: phasewatch-sidecar", "name: phasewatch"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "phasewatch: sidecar", "phasewatch: central"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "runAsUser: 65532", "runAsUser: 0"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "defaultMode: 0444", "defaultMode: 0400"),
    ("deploy/kubernetes/components/sidecar/sidecar.yaml", "memory: 64Mi", "memory: 32Mi"),
    ("deploy/kubernetes/examples/vllm/phasewatch.yml", ":8000", ":8001"),
    ("deploy/kubernetes/examples/vllm/phasewatch.yml", "name: pod", "name: chat"),
    ("deploy/kubernetes/examples/vllm/phasewatch.yml", "NVIDIA L40S", "NVIDIA L4"),
    ("deploy/kubernetes/examples/vllm/phasewatch.yml", "count: 1", "count: 2"),
    ("deploy/kubernetes/examples/vllm/phasewatch.yml", "/run/secrets/phasewatch/", "/run/secrets/"),
    ("deploy/kubernetes/examples/vllm/kustomization.yaml", "mountPath: /models", "mountPath: /cache"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "containerPort: 8000", "containerPort: 8080"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "--port=8000", "--port=8080"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "NVIDIA-L40S", "NVIDIA-L4"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "vllm-openai:v0.30.0", "vllm-openai:v0.5.0"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "[Qwen/", "[--model=Qwen/"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "failureThreshold: 180", "failureThreshold: 3"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "{type: Recreate}", "{type: RollingUpdate}"),
    ("deploy/kubernetes/examples/vllm/vllm.yaml", "replacement: vllm", "replacement: phasewatch"),
    ("deploy/kubernetes/monitoring/kustomization.yaml", "namespace: monitoring", "namespace: observability"),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "port: phasewatch", "port: metrics"),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "interval: 5s", "interval: 15s"),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "scrapeTimeout: 4s", "scrapeTimeout: 40s"),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "  namespaceSelector: {any: true}\n", ""),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "replacement: phasewatch", "replacement: llm"),
    ("deploy/kubernetes/monitoring/podmonitors.yaml", "kubernetes_io_instance", "kubernetes_io_part_of"),
]
"""File, what it says, and what no other place says."""


@pytest.mark.parametrize(("file", "old", "new"), MUTATIONS)  # a second each: kubectl builds the tree
def test_a_change_in_one_place_alone_is_found(file: str, old: str, new: str, tmp_path: Path) -> None:
    folder = tmp_path / "deploy" / "kubernetes"
    folder.mkdir(parents=True)
    touched = Path(file).parts[2:3]
    for part in ("monitoring", "central", "components", "examples"):
        # Only what is built of the file is copied, and so built anew: the example has the component.
        if (part,) == touched or (part, *touched) == ("examples", "components"):
            shutil.copytree(KUBERNETES / part, folder / part, ignore=shutil.ignore_patterns("rules.yaml"))
        else:
            (folder / part).symlink_to(KUBERNETES / part)
    if touched == ("monitoring",):
        # Half a megabyte that has no say in this.
        stub = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rules"}}
        (folder / "monitoring" / "rules.yaml").write_text(json.dumps(stub), encoding="utf-8")
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards" / "kustomization.yaml").write_text("resources: []\n", encoding="utf-8")
    (tmp_path / "alerts").mkdir()
    for other in ("Dockerfile", "alerts/prometheus.yml", "docker-compose.yml"):
        shutil.copy(ROOT / other, tmp_path / other)
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    assert list(disagreements(tmp_path))


def test_the_server_has_the_same_name_under_both_jobs() -> None:
    (vllm,) = of_kind(built(KUBERNETES / "examples" / "vllm"), "PodMonitor")
    (endpoint,) = vllm["spec"]["podMetricsEndpoints"]
    assert {"sourceLabels": ["namespace", "pod"], "separator": "/", "targetLabel": "target"} in endpoint["relabelings"]
