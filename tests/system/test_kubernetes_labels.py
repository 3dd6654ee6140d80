"""What the PodMonitors of deploy/kubernetes make of labels, in a real Prometheus."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.fakes import FakeVllm
from tests.support.kubernetes import KUBERNETES, Object, built, of_kind
from tests.support.processes import eventually, free_port, get_json, needs, running


def as_prometheus_has_it(relabeling: Mapping[str, Any]) -> dict[str, Any]:
    """A relabeling of the operator in Prometheus' own spelling."""
    return {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", key): value for key, value in relabeling.items()}


def job_of(monitor: Object, address: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """What the operator makes of a PodMonitor for one Pod, as far as labels are concerned."""
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    return {
        "scrape_interval": "100ms",
        "scrape_timeout": "100ms",
        "static_configs": [{"targets": [address], "labels": dict(labels)}],
        "relabel_configs": [as_prometheus_has_it(one) for one in endpoint["relabelings"]],
        "metric_relabel_configs": [as_prometheus_has_it(one) for one in endpoint["metricRelabelings"]],
    }


CASES: Final = [
    (
        "phasewatch-central",
        "chat-0",
        {
            "namespace": "phasewatch",
            "pod": "phasewatch-5d9c7-x2x4q",
            "__meta_kubernetes_pod_label_app_kubernetes_io_instance": "phasewatch",
        },
        {"target": "chat-0", "instance": "phasewatch/phasewatch", "namespace": "phasewatch"},
    ),
    (
        "phasewatch-sidecar",
        "pod",
        {"namespace": "models", "pod": "vllm-0"},
        {"target": "models/vllm-0", "instance": "models/vllm-0", "namespace": "models"},
    ),
    (
        "phasewatch-sidecar",
        "chat",
        {"namespace": "models", "pod": "vllm-1"},
        {"target": "chat", "instance": "models/vllm-1", "namespace": "models"},
    ),
]
"""PodMonitor, name in the configuration, what the operator knows of the Pod, and the labels that Prometheus keeps."""


@needs("prometheus")
def test_series_have_the_names_that_rules_and_boards_expect(tmp_path: Path) -> None:
    monitors = {one["metadata"]["name"]: one for one in of_kind(built(KUBERNETES / "monitoring"), "PodMonitor")}
    with contextlib.ExitStack() as stack:
        jobs: list[dict[str, Any]] = []
        for monitor, target, pod, _ in CASES:
            exporter = stack.enter_context(FakeVllm(f'llm_target_up{{target="{target}"}} 1\n'.encode()))
            job = job_of(monitors[monitor], exporter.url.removeprefix("http://"), pod)
            jobs.append({**job, "job_name": f"{len(jobs)}"})
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": jobs}), encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        flags = [
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ]
        stack.enter_context(running("prometheus", *flags, log=tmp_path / "prometheus.log"))

        def labels_of(metric: str) -> list[dict[str, str]]:
            answer = get_json(f"http://{address}/api/v1/query?query={metric}")
            metrics = sorted((series["metric"] for series in answer["data"]["result"]), key=lambda one: one["instance"])
            return metrics if len(metrics) == len(CASES) else []

        measured = eventually(lambda: labels_of("llm_target_up"), "every exporter is scraped")
        expected = [{"__name__": "llm_target_up", "job": "phasewatch", **labels} for *_, labels in CASES]
        assert measured == sorted(expected, key=lambda one: one["instance"])
        assert [(up["job"], up["instance"]) for up in labels_of("up")] == [
            (series["job"], series["instance"]) for series in measured
        ]
