"""The one table of our metrics, and the families that /metrics shows, built anew from immutable snapshots each time.

`TABLE` is what docs/metrics.md is tested against. A number that is not known now has no sample: neither 0, nor NaN, nor
the value of before.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from phasewatch.analysis.samples import EngineKey
from phasewatch.metrics.ceiling import CEILING_METRICS
from phasewatch.metrics.descriptor import (
    NO_LABELS,
    TARGET_LABELS,
    Metric,
    MetricSample,
    SelfMetric,
    SelfStatus,
    TargetMetric,
    describe_self_metric,
    describe_target_gauge,
)
from phasewatch.metrics.engine import LATENCY_METRICS, LOAD_METRICS, PHASE_METRICS
from phasewatch.metrics.model import MODEL_METRICS
from phasewatch.snapshot.target import TargetSnapshot


def _target_info(target: TargetSnapshot) -> Iterator[MetricSample]:
    if target.facts.version is not None:
        yield {"version": target.facts.version}, 1.0


def _model_info(target: TargetSnapshot) -> Iterator[MetricSample]:
    for name in sorted({engine.key.model_name for engine in target.engines} & target.facts.models.keys()):
        model = target.facts.models[name]
        length = "" if model.max_model_len is None else str(model.max_model_len)
        yield {"model_name": name, "root": model.root or "", "max_model_len": length}, 1.0
    for reading in target.models:
        if reading.digest is not None and reading.details is not None:
            yield (
                {
                    "model_name": reading.name,
                    "digest": reading.digest,
                    "quantization": reading.details.quantization,
                    "parameter_size": reading.details.parameter_size,
                    "family": reading.details.family,
                },
                1.0,
            )


def _errors(target: TargetSnapshot) -> Iterator[MetricSample]:
    for reason, count in target.errors.items():
        yield {"reason": reason.value}, float(count)


TARGET_METRICS: Final = (
    describe_target_gauge(
        "llm_target_up",
        "1 if the newest scrape of the server gave its metrics, 0 if it failed.",
        lambda target: None if target.up is None else float(target.up),
    ),
    TargetMetric(
        "llm_target_info",
        "1, with the version that the server tells (vLLM /version, Ollama /api/version).",
        "gauge",
        (*TARGET_LABELS, "version"),
        _target_info,
    ),
    TargetMetric(
        "llm_model_info",
        "1, with what the server tells of a model it serves (vLLM /v1/models; Ollama /api/ps, /api/tags).",
        "gauge",
        (
            *TARGET_LABELS,
            "model_name",
            "root",
            "max_model_len",
            "digest",
            "quantization",
            "parameter_size",
            "family",
        ),
        _model_info,
    ),
    describe_target_gauge(
        "llm_target_scrape_duration_seconds",
        "Time the newest scrape of the server took, failed ones included.",
        lambda target: target.scrape_seconds,
    ),
    describe_target_gauge(
        "llm_target_last_success_timestamp_seconds",
        "Unix time of the newest scrape that gave metrics.",
        lambda target: target.last_success,
    ),
    TargetMetric(
        "llm_target_scrape_errors_total",
        "Scrapes that failed, by reason.",
        "counter",
        (*TARGET_LABELS, "reason"),
        _errors,
    ),
)

ENGINE_METRICS: Final = (*PHASE_METRICS, *LATENCY_METRICS, *CEILING_METRICS, *LOAD_METRICS)

SELF_METRICS: Final = (
    SelfMetric(
        "phasewatch_build_info",
        "1, with the version of the exporter.",
        "gauge",
        ("version",),
        lambda status: [({"version": status.version}, 1.0)],
    ),
    describe_self_metric(
        "phasewatch_config_last_reload_successful",
        "gauge",
        "1 if the newest attempt to load the configuration succeeded, 0 if the one before is still in force.",
        lambda status: float(status.reload_successful),
    ),
    describe_self_metric(
        "phasewatch_config_last_reload_success_timestamp_seconds",
        "gauge",
        "Unix time at which the configuration in force was loaded.",
        lambda status: status.reload_success_time,
    ),
    describe_self_metric(
        "phasewatch_scrapes_missed_total",
        "counter",
        "Scrapes that were not made because the one before was still under way.",
        lambda status: float(status.scrapes_missed),
    ),
)

TABLE: Final[tuple[Metric, ...]] = (*TARGET_METRICS, *ENGINE_METRICS, *MODEL_METRICS, *SELF_METRICS)


def build_target_families(snapshots: Sequence[TargetSnapshot]) -> Iterator[Family]:
    """The families about targets and their engines. Optional targets that never answered are left out."""
    visible = [target for target in snapshots if target.answered or not target.optional]
    shown = [({"target": target.name, "backend": target.backend}, target) for target in visible]
    for metric in TARGET_METRICS:
        yield from _family(metric, ((labels, metric.read(target)) for labels, target in shown))
    engines = [
        ({**labels, **_engine_labels(engine.key)}, engine) for labels, target in shown for engine in target.engines
    ]
    for engine_metric in ENGINE_METRICS:
        yield from _family(engine_metric, ((labels, engine_metric.read(engine)) for labels, engine in engines))
    models = [({**labels, "model_name": model.name}, model) for labels, target in shown for model in target.models]
    for model_metric in MODEL_METRICS:
        yield from _family(model_metric, ((labels, model_metric.read(model)) for labels, model in models))


def _engine_labels(key: EngineKey) -> dict[str, str]:
    engine = {} if key.engine is None else {"engine": key.engine}
    return {"model_name": key.model_name, **engine}


def build_self_families(status: SelfStatus) -> Iterator[Family]:
    """The families about the exporter itself, apart from process_* and python_*."""
    for metric in SELF_METRICS:
        yield from _family(metric, [(NO_LABELS, metric.read(status))])


def _family(metric: Metric, parts: Iterable[tuple[Mapping[str, str], Iterable[MetricSample]]]) -> Iterator[Family]:
    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
    for scope, samples in parts:
        for labels, value in samples:
            if not math.isfinite(value):  # absurd numbers on a page may have an infinite product
                continue
            family.add_sample(metric.name, {**scope, **labels} if labels else dict(scope), value)
    if family.samples:
        yield family


class SnapshotCollector(Collector):
    """Gives prometheus_client the families of the moment.

    Args:
        view: returns the exporter's status and the newest snapshot of every target.
    """

    def __init__(self, view: Callable[[], tuple[SelfStatus, Sequence[TargetSnapshot]]]) -> None:
        self._view = view

    def collect(self) -> Iterator[Family]:
        """Build every family from one consistent view."""
        status, snapshots = self._view()
        yield from build_target_families(snapshots)
        yield from build_self_families(status)
