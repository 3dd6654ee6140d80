"""The table by which a page of metrics is read: which upstream metric fills which field of an `EngineSample`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Final


class MetricKind(StrEnum):
    """What a metric is upstream."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    TOTALS = "totals"
    """A histogram of which only `_sum` and `_count` are read."""
    INFO = "info"
    CREATED = "created"
    """The time at which a counter began, as prometheus_client writes it beside the counter."""


class SamplePart(StrEnum):
    """Which number of a metric one sample carries."""

    VALUE = "value"
    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"
    LABELS = "labels"


class Combine(StrEnum):
    """How samples that differ only in labels that are not kept (Ray's ReplicaId and WorkerId) become one number."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True)
class UpstreamMetric:
    """One fact about an engine.

    Attributes:
        field: attribute of `EngineSample` that it fills.
        kind: its type upstream.
        names: names without prefix and suffix, newest first, each with the releases that expose it by default.
        where: labels a sample must carry to count.
        highest: largest value that makes sense.
        of_model: whether it is counted for all engines of a model together, without an engine label.
        combine: how several samples become one.
    """

    field: str
    kind: MetricKind
    names: Mapping[str, str]
    where: Mapping[str, str] = dataclass_field(default_factory=dict)
    combine: Combine = Combine.SUM
    of_model: bool = False
    highest: float = inf


@dataclass(frozen=True, eq=False)
class MetricSlot:
    """Where one upstream sample belongs. Compared by identity: its table holds the only instances.

    `rank` is 0 for the newest name; where a page carries two names of one fact, the lower rank counts.
    """

    metric: UpstreamMetric
    part: SamplePart
    rank: int


_SUFFIXES: Final[Mapping[MetricKind, Mapping[str, SamplePart]]] = {
    MetricKind.GAUGE: {"": SamplePart.VALUE},
    # Ray exported counters without _total for years.
    MetricKind.COUNTER: {"_total": SamplePart.VALUE, "": SamplePart.VALUE},
    MetricKind.HISTOGRAM: {"_bucket": SamplePart.BUCKET, "_sum": SamplePart.SUM, "_count": SamplePart.COUNT},
    MetricKind.TOTALS: {"_sum": SamplePart.SUM, "_count": SamplePart.COUNT},
    MetricKind.INFO: {"": SamplePart.LABELS},
    MetricKind.CREATED: {"_created": SamplePart.VALUE},
}


@dataclass(frozen=True, eq=False)
class MetricTable:
    """Every metric that is read from the pages of one kind of server.

    Attributes:
        metrics: the rows.
        prefixes: with which the names of samples begin, one of them each; an empty one for names without a prefix.
        absent: message for a good page that has none of these metrics: what is missing and what to check.
    """

    metrics: tuple[UpstreamMetric, ...]
    prefixes: tuple[str, ...]
    absent: str

    @cached_property
    def slots(self) -> Mapping[str, tuple[MetricSlot, ...]]:
        """Slots by sample name without prefix. One name may fill several: see `UpstreamMetric.where`."""
        slots: dict[str, tuple[MetricSlot, ...]] = {}
        for name, slot in self._list_slots():
            slots[name] = (*slots.get(name, ()), slot)
        return slots

    @cached_property
    def beginnings(self) -> tuple[str, ...]:
        """How the lines of the samples begin."""
        bare = self.slots if "" in self.prefixes else ()
        return (*filter(None, self.prefixes), *bare)

    @cached_property
    def numbers(self) -> Mapping[str, tuple[MetricSlot, ...]]:
        """Slots of single numbers by the field that they fill, newest name first."""
        slots = {metric.field: self._rank_slots(metric, SamplePart.VALUE) for metric in self.metrics}
        return {name: ranked for name, ranked in slots.items() if ranked}

    @cached_property
    def histograms(self) -> Mapping[str, tuple[tuple[MetricSlot, MetricSlot, MetricSlot | None], ...]]:
        """Slots of sum, count and, where they are read, buckets by the field that they fill, newest name first."""
        return {
            metric.field: tuple(
                zip(
                    self._rank_slots(metric, SamplePart.SUM),
                    self._rank_slots(metric, SamplePart.COUNT),
                    self._rank_slots(metric, SamplePart.BUCKET) or (None,) * len(metric.names),
                    strict=True,
                )
            )
            for metric in self.metrics
            if metric.kind in {MetricKind.HISTOGRAM, MetricKind.TOTALS}
        }

    def find_slot(self, sample_name: str, labels: Mapping[str, str]) -> MetricSlot | None:
        """The slot of a sample in any of its dialects; None for one that is not read."""
        for prefix in self.prefixes:
            if sample_name.startswith(prefix):
                for slot in self.slots.get(sample_name.removeprefix(prefix), ()):
                    if all(labels.get(label) == value for label, value in slot.metric.where.items()):
                        return slot
                return None
        return None

    def _list_slots(self) -> Iterator[tuple[str, MetricSlot]]:
        for metric in self.metrics:
            for rank, name in enumerate(metric.names):
                for suffix, part in _SUFFIXES[metric.kind].items():
                    yield name + suffix, MetricSlot(metric, part, rank)

    def _rank_slots(self, metric: UpstreamMetric, part: SamplePart) -> tuple[MetricSlot, ...]:
        slots = {
            slot: slot.rank
            for named in self.slots.values()
            for slot in named
            if slot.metric is metric and slot.part is part
        }
        return tuple(sorted(slots, key=slots.__getitem__))
