"""What a row of our metric table is: its name and words, and how its samples are read from a snapshot."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.latency import Latency
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.target import TargetSnapshot

MetricSample = tuple[Mapping[str, str], float]
"""Labels beyond those of the scope, and the value."""


@dataclass(frozen=True, slots=True)
class SelfStatus:
    """What the exporter says of itself; times are Unix seconds."""

    version: str
    reload_successful: bool
    reload_success_time: float
    scrapes_missed: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table, without the way its value is read.

    Attributes:
        name: as on the page.
        help: what it means, over which time, and where it comes from.
        kind: `gauge`, `counter`, or `summary` for quantiles taken by us: promtool demands that type for the label.
        labels: all labels, those of the scope first. A server that has no such thing leaves a label out.
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
    """A metric about one model of a target that has no engines of its own."""

    read: Callable[[ModelSnapshot], Iterable[MetricSample]]


@dataclass(frozen=True, slots=True)
class EngineMetric(Metric):
    """A metric about one engine of a target."""

    read: Callable[[EngineSnapshot], Iterable[MetricSample]]


TARGET_LABELS: Final = ("target", "backend")
ENGINE_LABELS: Final = (*TARGET_LABELS, "model_name", "engine")
NO_LABELS: Final[Mapping[str, str]] = {}


def list_optional(value: float | None) -> tuple[MetricSample, ...]:
    """The samples of a number that may be unknown."""
    return () if value is None else ((NO_LABELS, value),)


def describe_target_gauge(name: str, text: str, read: Callable[[TargetSnapshot], float | None]) -> TargetMetric:
    """A gauge about a target that has at most one value."""
    return TargetMetric(name, text, "gauge", TARGET_LABELS, lambda target: list_optional(read(target)))


def describe_engine_gauge(name: str, text: str, read: Callable[[EngineSnapshot], float | None]) -> EngineMetric:
    """A gauge about an engine that has at most one value."""
    return EngineMetric(name, text, "gauge", ENGINE_LABELS, lambda engine: list_optional(read(engine)))


def describe_self_metric(name: str, kind: str, text: str, read: Callable[[SelfStatus], float]) -> SelfMetric:
    """A metric about the exporter that always has one value."""
    return SelfMetric(name, text, kind, (), lambda status: list_optional(read(status)))


def describe_latency(
    name: str, what: str, source: str, read: Callable[[EngineSnapshot], Latency]
) -> tuple[EngineMetric, ...]:
    """The two rows of a latency: by quantile, and its mean.

    Args:
        name: between `llm_` and the unit.
        what: begins both help texts.
        source: upstream's name of it.
        read: finds it in a reading.
    """
    return (
        EngineMetric(
            f"llm_{name}_seconds",
            f"{what}, by quantile over the window, interpolated as histogram_quantile does; in the first bucket its "
            f"upper edge, in the last its lower edge ({source}).",
            "summary",
            (*ENGINE_LABELS, "quantile"),
            lambda engine: [({"quantile": str(order)}, found.value) for order, found in read(engine).quantiles],
        ),
        describe_engine_gauge(
            f"llm_{name}_mean_seconds", f"{what}, mean over the window ({source}).", lambda engine: read(engine).mean
        ),
    )
