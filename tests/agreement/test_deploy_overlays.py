"""The component adds a sidecar where it should and nowhere else, and the overlays of the page do what it says."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from phasewatch import __version__
from tests.support.kubernetes import (
    KUBERNETES,
    OLDEST,
    PLACES,
    Object,
    assert_valid,
    built,
    exporter_in,
    matches,
    of_kind,
    open_ports,
    workloads,
)
from tests.support.markdown import fences, page
from tests.support.paths import ROOT

PAGE: Final = page("docs/kubernetes.md")

# The component


def with_sidecar(folder: Path, kinds: Mapping[str, Mapping[str, str]], **more: Any) -> list[Object]:
    """A kustomization with the component, an object of each kind with its labels, and more keys."""
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "server", "image": "server"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    for kind, labels in kinds.items():
        metadata = {"metadata": {"name": "server", "labels": labels}}
        one = (
            {"apiVersion": "v1", "kind": kind, **metadata}
            if kind in {"Service", "ConfigMap"}
            else {"apiVersion": "apps/v1", "kind": kind, **metadata, "spec": spec}
        )
        (folder / f"{kind}.yaml").write_text(json.dumps(one), encoding="utf-8")
    (folder / "components").symlink_to(KUBERNETES / "components")
    kustomization = {"resources": [f"{kind}.yaml" for kind in kinds], "components": ["components/sidecar"], **more}
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    return built(folder)


def test_the_sidecar_is_added_to_servers_with_the_label_and_to_nothing_else(tmp_path: Path) -> None:
    label = {"phasewatch": "sidecar"}
    kinds = dict.fromkeys(("Deployment", "StatefulSet", "Service", "ConfigMap"), label)
    objects = with_sidecar(tmp_path, {**kinds, "ReplicaSet": {}})
    assert {one["kind"] for one in objects if "ghcr.io/phasewatch" in json.dumps(one)} == {"Deployment", "StatefulSet"}
    for workload in workloads(objects):
        assert exporter_in(workload)["restartPolicy"] == "Always"
        assert workload["spec"]["template"]["metadata"]["labels"] == {"a": "b", **label}
    assert not any("spec" in one for one in of_kind(objects, "Service") + of_kind(objects, "ConfigMap"))


@pytest.mark.parametrize("where", ["manifest", "kustomization"])
def test_the_check_on_the_page_shows_whether_the_label_has_added_a_sidecar(where: str, tmp_path: Path) -> None:
    label = {"phasewatch": "sidecar"}
    if where == "manifest":
        objects = with_sidecar(tmp_path, {"StatefulSet": label})
    else:
        objects = with_sidecar(tmp_path, {"StatefulSet": {}}, labels=[{"pairs": label}])
    (pattern,) = re.findall(r"^kubectl kustomize \. \| grep '(.+)'$", PAGE, re.MULTILINE)
    assert bool(re.search(pattern, yaml.safe_dump_all(objects))) == (where == "manifest")


# The overlays


OVERLAYS: Final = [text for text in fences(PAGE, "yaml") if "kind: Kustomization" in text]
_REMOTE: Final = re.compile(
    rf"  - https://github\.com/phasewatch/phasewatch//deploy/kubernetes/(\S+)\?ref=v{re.escape(__version__)}\n"
    r"  # (- \.\./phasewatch/deploy/kubernetes/\1)\n"
)
"""What an overlay is of, as it is fetched, and in the line below as it is in a checkout beside the overlay."""


def overlaid(folder: Path, text: str) -> list[Object]:
    """The objects of an overlay of the page, of a checkout beside it."""
    assert len(_REMOTE.findall(text)) == 1, text
    here = folder / "overlay"
    here.mkdir()
    (folder / "phasewatch").symlink_to(ROOT)
    (here / "kustomization.yaml").write_text(_REMOTE.sub(r"  \2\n", text), encoding="utf-8")
    example = KUBERNETES / "examples" / "vllm"
    shutil.copy(example / "phasewatch.yml", here)
    shutil.copy(example / "vllm.yaml", here / "server.yaml")
    return built(here)


def overlay_of(place: str) -> str:
    """The first overlay of the page that is of a place."""
    return next(text for text in OVERLAYS if f"/{place}?ref=" in text)


@pytest.mark.parametrize("text", OVERLAYS)
def test_an_overlay_of_the_page_can_be_built_and_is_valid(text: str, tmp_path: Path) -> None:
    objects = overlaid(tmp_path, text)
    assert of_kind(objects, "Namespace") == []
    for one in objects:
        assert_valid(one, OLDEST)


def test_only_the_overlay_has_the_label_that_kube_prometheus_stack_looks_for(tmp_path: Path) -> None:
    looked_for = ("PodMonitor", "PrometheusRule")
    plain, labelled = (
        [one["metadata"]["labels"] for one in objects if one["kind"] in looked_for]
        for objects in (built(KUBERNETES / "monitoring"), overlaid(tmp_path, overlay_of("monitoring")))
    )
    assert not any("release" in labels for labels in plain)
    assert {labels["release"] for labels in labelled} == {"kube-prometheus-stack"}
    assert "without an overlay, and so without the label `release`" in " ".join(PAGE.split())


def test_a_second_central_exporter_shares_nothing_with_the_first(tmp_path: Path) -> None:
    (text,) = (text for text in OVERLAYS if "nameSuffix" in text)
    both = (built(KUBERNETES / "central"), overlaid(tmp_path, text))
    names = [{(one["kind"], one["metadata"]["name"]) for one in objects} for objects in both]
    assert names[0].isdisjoint(names[1])
    assert {kind for kind, _ in names[0]} == {kind for kind, _ in names[1]}
    # From here on they are in one namespace.
    pods = [workloads(objects)[0]["spec"]["template"]["metadata"]["labels"] for objects in both]
    for mine, objects in enumerate(both):
        selectors = [
            workloads(objects)[0]["spec"]["selector"],
            {"matchLabels": of_kind(objects, "Service")[0]["spec"]["selector"]},
            of_kind(objects, "NetworkPolicy")[0]["spec"]["podSelector"],
        ]
        assert [[matches(selector, labels) for labels in pods] for selector in selectors] == [
            [mine == 0, mine == 1]
        ] * 3
    (config,) = of_kind(both[1], "ConfigMap")
    volumes = workloads(both[1])[0]["spec"]["template"]["spec"]["volumes"]
    assert {"name": config["metadata"]["name"]} in [volume.get("configMap") for volume in volumes]
    # The PodMonitor makes the instance of this label.
    instances = {
        f"{one['metadata']['namespace']}/{labels['app.kubernetes.io/instance']}"
        for one, labels in zip((workloads(objects)[0] for objects in both), pods, strict=True)
    }
    assert len(instances) == 2
    assert all(f"`{instance}`" in PAGE for instance in instances)


def test_the_ports_that_the_page_opens_are_open_beside_the_others(tmp_path: Path) -> None:
    (patches,) = (text for text in fences(PAGE, "yaml") if text.startswith("patches:"))
    before = open_ports(built(KUBERNETES / "central"))
    after = open_ports(overlaid(tmp_path, overlay_of("central") + patches))
    assert after - before == {(443, "TCP"), (5353, "TCP"), (5353, "UDP")}
    assert before < after


@pytest.mark.parametrize("place", PLACES[1:])
def test_the_image_can_come_from_another_registry(place: str, tmp_path: Path) -> None:
    (images,) = (text for text in fences(PAGE, "yaml") if text.startswith("images:"))
    (tmp_path / "own").mkdir()
    (tmp_path / "kubernetes").symlink_to(KUBERNETES)
    text = f"resources: [../kubernetes/{place}]\n{images}"
    (tmp_path / "own" / "kustomization.yaml").write_text(text, encoding="utf-8")
    (workload,) = workloads(built(tmp_path / "own"))
    assert exporter_in(workload)["image"] == f"registry.example.org/phasewatch:{__version__}"
