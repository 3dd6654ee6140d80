"""The table for reading a page of metrics: which upstream metric fills which field of an `EngineSample`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Final


class MetricKind(StrEnum):
    """The type of a metric upstream."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    TOTALS = "totals"
    """A histogram of which only `_sum` and `_count` are read."""
    INFO = "info"
    CREATED = "created"
    """The Unix time at which a counter began, which prometheus_client exposes beside the counter."""


class SamplePart(StrEnum):
    """The part of a metric that a sample carries."""

    VALUE = "value"
    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"
    LABELS = "labels"


class Combine(StrEnum):
    """How samples that differ only in labels that are dropped (Ray's ReplicaId and WorkerId) become one number."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True)
class UpstreamMetric:
    """One metric of an engine, under all its names.

    Attributes:
        field: attribute of `EngineSample` that it fills.
        kind: its type upstream.
        names: names without prefix and suffix, newest first, each with the releases that expose it by default.
        where: labels that a sample must have to be read.
        combine: how several samples become one number.
        of_model: whether it is counted for all engines of a model together, without an engine label.
        highest: largest valid value of a gauge.
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
    """The metric and part that an upstream sample belongs to. Compared by identity: its table has the only instances.

    `rank` is 0 for the newest name. If a page has one metric under two names, the lower rank is used.
    """

    metric: UpstreamMetric
    part: SamplePart
    rank: int


@dataclass(frozen=True)
class HttpCounter:
    """The counter of HTTP requests that a server's web framework exposes beside the server's own metrics.

    Attributes:
        name: full name of its samples.
        path_label: label with the path that was requested, as the server routes it.
        method_label: label with the HTTP method. Only POST is counted, or samples without that label.
        status_label: label with the status of the answer, as a number ("503") or a class ("5xx").
        paths: the paths that are counted.
    """

    name: str
    path_label: str
    method_label: str
    status_label: str
    paths: frozenset[str]

    def find_class(self, labels: Mapping[str, str]) -> str:
        """The class of status that a sample counts, such as "5xx"; empty for a sample that is not read."""
        status = _STATUS.fullmatch(labels.get(self.status_label, ""))
        counted = labels.get(self.path_label, "").rstrip("/") in self.paths
        posted = labels.get(self.method_label, "POST") == "POST"
        return f"{status[1]}xx" if status and counted and posted else ""


_STATUS: Final = re.compile(r"([245])(?:xx|[0-9]{2})")
"""Statuses that end a request: informational ones and redirections do not."""

_SUFFIXES: Final[Mapping[MetricKind, Mapping[str, SamplePart]]] = {
    MetricKind.GAUGE: {"": SamplePart.VALUE},
    # Ray has long exported counters without _total.
    MetricKind.COUNTER: {"_total": SamplePart.VALUE, "": SamplePart.VALUE},
    MetricKind.HISTOGRAM: {"_bucket": SamplePart.BUCKET, "_sum": SamplePart.SUM, "_count": SamplePart.COUNT},
    MetricKind.TOTALS: {"_sum": SamplePart.SUM, "_count": SamplePart.COUNT},
    MetricKind.INFO: {"": SamplePart.LABELS},
    MetricKind.CREATED: {"_created": SamplePart.VALUE},
}


@dataclass(frozen=True, eq=False)
class MetricTable:
    """All metrics that are read from the pages of one kind of server.

    Attributes:
        metrics: the rows.
        prefixes: possible prefixes of the names of samples; an empty one for names without a prefix.
        model_label: label with the name of the model.
        engine_label: label with the index of the engine, which is "0" for samples without it.
        absent: message for a valid page without any of these metrics: what is missing and what to check.
        http_requests: the counter of HTTP requests, where the server has one.
    """

    metrics: tuple[UpstreamMetric, ...]
    prefixes: tuple[str, ...]
    model_label: str
    engine_label: str
    absent: str
    http_requests: HttpCounter | None = None

    @cached_property
    def slots(self) -> Mapping[str, tuple[MetricSlot, ...]]:
        """Slots by sample name without prefix. A name may have several, which differ in `UpstreamMetric.where`."""
        slots: dict[str, tuple[MetricSlot, ...]] = {}
        for name, slot in self._list_slots():
            slots[name] = (*slots.get(name, ()), slot)
        return slots

    @cached_property
    def beginnings(self) -> tuple[str, ...]:
        """Possible beginnings of the lines to read."""
        bare = self.slots if "" in self.prefixes else ()
        http = (self.http_requests.name,) if self.http_requests else ()
        return (*filter(None, self.prefixes), *bare, *http)

    @cached_property
    def _sample_names(self) -> set[str]:
        http = {self.http_requests.name} if self.http_requests else set()
        return http.union(prefix + name for prefix in self.prefixes for name in self.slots)

    @cached_property
    def numbers(self) -> Mapping[str, tuple[MetricSlot, ...]]:
        """Slots of plain numbers by the field that they fill, newest name first."""
        slots = {metric.field: self._rank_slots(metric, SamplePart.VALUE) for metric in self.metrics}
        return {name: ranked for name, ranked in slots.items() if ranked}

    @cached_property
    def histograms(self) -> Mapping[str, tuple[tuple[MetricSlot, MetricSlot, MetricSlot | None], ...]]:
        """Slots of sum, count and buckets (None if not read) by the field that they fill, newest name first."""
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

    def has_name(self, sample_name: str) -> bool:
        """Whether samples of a name are read, in any dialect, if their labels are those of a row."""
        return sample_name in self._sample_names

    def find_slot(self, sample_name: str, labels: Mapping[str, str]) -> MetricSlot | None:
        """The slot of a sample, in any dialect; None for a sample that is not read."""
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
