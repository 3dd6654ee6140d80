"""Descriptions of metrics: name, help, type and labels, and how samples are read from a snapshot."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.distribution import Distribution
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import TargetSnapshot

MetricSample = tuple[Mapping[str, str], float] | tuple[Mapping[str, str], float, str]
"""Labels in addition to those of the scope, the value, and for the totals of a summary the suffix of the name."""


@dataclass(frozen=True, slots=True)
class SelfStatus:
    """Status of the exporter.

    Attributes:
        version: its version.
        reload_successful: whether the newest attempt to load the configuration succeeded.
        reload_success_time: Unix time at which the configuration in force was loaded.
        scrapes_missed: scrapes skipped because the previous one was still running.
    """

    version: str
    reload_successful: bool
    reload_success_time: float
    scrapes_missed: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table, without how its samples are read.

    Attributes:
        name: full name, as on /metrics.
        help: meaning, window and source of the value.
        kind: `gauge`, `counter`, or `summary` for quantiles that we compute: promtool requires that type for the label
            `quantile`.
        labels: all labels, those of the scope first. A label without a value for a server is omitted.
    """

    name: str
    help: str
    kind: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelfMetric(Metric):
    """A metric about the exporter."""

    read: Callable[[SelfStatus], Iterable[MetricSample]]


@dataclass(frozen=True, slots=True)
class TargetMetric(Metric):
    """A metric about a target."""

    read: Callable[[TargetSnapshot], Iterable[MetricSample]]


@dataclass(frozen=True, slots=True)
class ModelMetric(Metric):
    """A metric about one model of a target that manages models (Ollama)."""

    read: Callable[[ModelSnapshot], Iterable[MetricSample]]


@dataclass(frozen=True, slots=True)
class EngineMetric(Metric):
    """A metric about one engine of a target."""

    read: Callable[[EngineSnapshot], Iterable[MetricSample]]


TARGET_LABELS: Final = ("target", "backend")
ENGINE_LABELS: Final = (*TARGET_LABELS, "model_name", "engine")
NO_LABELS: Final[Mapping[str, str]] = {}


def list_optional(value: float | None) -> tuple[MetricSample, ...]:
    """List the sample of a value: none if it is unknown."""
    return () if value is None else ((NO_LABELS, value),)


def describe_target_gauge(name: str, text: str, read: Callable[[TargetSnapshot], float | None]) -> TargetMetric:
    """Describe a gauge with at most one sample per target."""
    return TargetMetric(name, text, "gauge", TARGET_LABELS, lambda target: list_optional(read(target)))


def describe_engine_gauge(name: str, text: str, read: Callable[[EngineSnapshot], float | None]) -> EngineMetric:
    """Describe a gauge with at most one sample per engine."""
    return EngineMetric(name, text, "gauge", ENGINE_LABELS, lambda engine: list_optional(read(engine)))


def describe_self_metric(name: str, kind: str, text: str, read: Callable[[SelfStatus], float]) -> SelfMetric:
    """Describe a metric about the exporter with exactly one sample."""
    return SelfMetric(name, text, kind, (), lambda status: list_optional(read(status)))


def list_totals(distribution: Distribution, labels: Mapping[str, str] = NO_LABELS) -> Iterator[MetricSample]:
    """List `_sum` and `_count` of a summary, as far as they are known.

    Both are the server's own and cover the time since its start, as those of a client library do. The receiver of the
    OpenTelemetry Collector drops a summary without `_count`.
    """
    if distribution.sum is not None:
        yield labels, distribution.sum, "_sum"
    if distribution.count is not None:
        yield labels, distribution.count, "_count"


def describe_distribution(
    names: tuple[str, str], what: str, source: str, read: Callable[[EngineSnapshot], Distribution]
) -> tuple[EngineMetric, ...]:
    """Describe the two metrics of a distribution: quantiles with the server's totals, and mean.

    Args:
        names: names of the quantiles and of the mean.
        what: meaning of the quantity, with which both help texts begin.
        source: upstream metric.
        read: gets the distribution from an engine's snapshot.
    """

    def list_samples(engine: EngineSnapshot) -> Iterator[MetricSample]:
        distribution = read(engine)
        for order, quantile in distribution.quantiles:
            yield {"quantile": str(order)}, quantile.value
        yield from list_totals(distribution)

    return (
        EngineMetric(
            names[0],
            f"{what}, by quantile over the window, interpolated as histogram_quantile does; in the first bucket its "
            f"upper edge, in the last its lower edge; _sum and _count since the server's start ({source}).",
            "summary",
            (*ENGINE_LABELS, "quantile"),
            list_samples,
        ),
        describe_engine_gauge(names[1], f"{what}, mean over the window ({source}).", lambda engine: read(engine).mean),
    )


def describe_latency(
    name: str, what: str, source: str, read: Callable[[EngineSnapshot], Distribution]
) -> tuple[EngineMetric, ...]:
    """Describe the two metrics of a latency, like `describe_distribution`; `name` has neither `llm_` nor the unit."""
    return describe_distribution((f"llm_{name}_seconds", f"llm_{name}_mean_seconds"), what, source, read)
