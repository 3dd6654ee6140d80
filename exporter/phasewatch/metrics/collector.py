"""The table of all metrics, and the metric families of /metrics, built from snapshots at every request.

docs/metrics.md is tested against `TABLE`. An unknown value has no sample: neither 0, nor NaN, nor the previous value.
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
    Metric,
    MetricSample,
    SelfStatus,
)
from phasewatch.metrics.engine import LATENCY_METRICS, LOAD_METRICS, PHASE_METRICS, SOURCE_METRICS
from phasewatch.metrics.exporter import SELF_METRICS
from phasewatch.metrics.model import MODEL_METRICS
from phasewatch.metrics.requests import REQUEST_METRICS, SERVER_REQUEST_METRICS
from phasewatch.metrics.target import TARGET_METRICS as TARGET_STATUS_METRICS
from phasewatch.snapshot.target import TargetSnapshot

ENGINE_METRICS: Final = (
    *PHASE_METRICS,
    *SOURCE_METRICS,
    *LATENCY_METRICS,
    *CEILING_METRICS,
    *LOAD_METRICS,
    *REQUEST_METRICS,
)

TARGET_METRICS: Final = (*TARGET_STATUS_METRICS, *SERVER_REQUEST_METRICS)

TABLE: Final[tuple[Metric, ...]] = (*TARGET_METRICS, *ENGINE_METRICS, *MODEL_METRICS, *SELF_METRICS)


def build_target_families(snapshots: Sequence[TargetSnapshot]) -> Iterator[Family]:
    """Build the families about targets, engines and models. Optional targets that never answered are left out."""
    visible = [target for target in snapshots if target.answered or not target.optional]
    scopes = [({"target": target.name, "backend": target.backend}, target) for target in visible]
    for metric in TARGET_METRICS:
        yield from _build_family(metric, ((labels, metric.read(target)) for labels, target in scopes))
    engines = [
        ({**labels, **_create_engine_labels(engine.key)}, engine)
        for labels, target in scopes
        for engine in target.engines
    ]
    for engine_metric in ENGINE_METRICS:
        yield from _build_family(engine_metric, ((labels, engine_metric.read(engine)) for labels, engine in engines))
    models = [({**labels, "model_name": model.name}, model) for labels, target in scopes for model in target.models]
    for model_metric in MODEL_METRICS:
        yield from _build_family(model_metric, ((labels, model_metric.read(model)) for labels, model in models))


def _create_engine_labels(key: EngineKey) -> dict[str, str]:
    engine = {} if key.engine is None else {"engine": key.engine}
    return {"model_name": key.model_name, **engine}


def build_self_families(status: SelfStatus) -> Iterator[Family]:
    """Build the families about the exporter itself, apart from process_* and python_*."""
    for metric in SELF_METRICS:
        yield from _build_family(metric, [(NO_LABELS, metric.read(status))])


def _build_family(
    metric: Metric, parts: Iterable[tuple[Mapping[str, str], Iterable[MetricSample]]]
) -> Iterator[Family]:
    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
    for scope, samples in parts:
        for labels, value, *suffix in samples:
            if not math.isfinite(value):  # implausibly large values on a page may overflow in a product
                continue
            family.add_sample("".join((metric.name, *suffix)), {**scope, **labels} if labels else dict(scope), value)
    if family.samples:
        yield family


class SnapshotCollector(Collector):
    """A collector of prometheus_client that builds the families from the newest snapshots.

    Args:
        collect_snapshots: returns the exporter's status and the newest snapshot of every target.
    """

    def __init__(self, collect_snapshots: Callable[[], tuple[SelfStatus, Sequence[TargetSnapshot]]]) -> None:
        self._collect_snapshots = collect_snapshots

    def collect(self) -> Iterator[Family]:
        """Build all families from one consistent set of snapshots."""
        status, snapshots = self._collect_snapshots()
        yield from build_target_families(snapshots)
        yield from build_self_families(status)
