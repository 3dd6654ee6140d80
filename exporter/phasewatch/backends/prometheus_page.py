"""Parser for pages of metrics: text in, typed samples of each engine out, for any server that writes the format.

Everything on the page that is not in the backend's `MetricTable` is skipped, which makes parsing cheap enough for an
interval of one second.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from phasewatch.analysis.samples import HISTOGRAMS, EngineKey, EngineSample, Histogram, Page
from phasewatch.backends.metric_table import Combine, MetricSlot, MetricTable, SamplePart
from phasewatch.backends.prometheus_series import (
    NOT_READ,
    PROCESS_START,
    Series,
    SeriesIdentity,
    explain_missing_value,
    is_read,
    is_sample_line,
    parse_series,
    parse_value,
    split_line,
)
from phasewatch.base.errors import Reason, ScrapeError

MAX_ENGINES: Final = 256
"""Models times data-parallel ranks on one page. A page with more does not come from a single server."""


_LONGEST_UNREAD: Final = 512
"""Characters of a series up to which it is remembered that it is not read. Those of vLLM have about a hundred."""


class PageReader:
    """Parses the pages of one server. Series are cached from page to page, so that labels are parsed once.

    Args:
        table: the metrics to read.
    """

    def __init__(self, table: MetricTable) -> None:
        self._table = table
        self._beginnings = (*table.beginnings, PROCESS_START)
        self._by_text: dict[str, Series] = {}
        self._by_identity: dict[SeriesIdentity, Series] = {}

    def read(self, text: str, *, openmetrics: bool = False) -> Page:
        """Parse a page.

        Args:
            text: the body in the text format 0.0.4 or OpenMetrics.
            openmetrics: whether the server called it OpenMetrics, which must end with `# EOF`.

        Raises:
            ScrapeError: `parse` for a page that is truncated or malformed, or has a series twice or an impossible value
                of a counter, as far as it is read; `no_metrics` for a valid page without any of the table's metrics, or
                that of a router. A page with nothing but the cache configuration is valid and has no engines (vLLM 0.8
                before its first request).
        """
        ended = _check_end(text, openmetrics=openmetrics)
        content = self._read_lines(text)
        if not any(series.slot for series in content.values):
            raise _explain_absence(text, self._table)
        samples = _assemble_samples(content.values, self._table)
        engines = {key: sample for key, sample in samples.items() if _is_engine(key, sample)}
        if samples and not engines:
            raise ScrapeError(
                Reason.NO_METRICS,
                "the page has neither a model's name nor token counters, like that of a router: "
                "watch each server behind it as a target of its own",
            )
        http_requests = _count_http_requests(content.values)
        return Page(
            _find_process_start(content.starts), ended, engines, http_requests, notes=tuple(sorted(content.notes))
        )

    def _read_lines(self, text: str) -> "_Content":
        content = _Content()
        by_text: dict[str, Series] = {}
        first_seen: dict[SeriesIdentity, Series] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.startswith(self._beginnings):
                continue
            series_text, _, value_text = line.rpartition(" ")
            series = self._by_text.get(series_text)
            if series is None:
                if not is_read(line, self._table):
                    if 0 < len(series_text) <= _LONGEST_UNREAD:
                        by_text[series_text] = NOT_READ
                    continue
                series_text, value_text = split_line(line, number)
                series = self._find(series_text, number, first_seen)
            by_text[series_text] = series
            if series is not NOT_READ:
                content.add(series, value_text, number)
        if by_text.keys() != self._by_text.keys():
            self._by_text = by_text
            self._by_identity = {series.identify(): series for series in content.values}
        return content

    def _find(self, text: str, number: int, first_seen: dict[SeriesIdentity, Series]) -> Series:
        series = self._by_text.get(text) or parse_series(text, number, self._table)
        if series is NOT_READ:
            return series
        identity = series.identify()
        return self._by_identity.get(identity) or first_seen.setdefault(identity, series)


@dataclass(slots=True)
class _Content:
    """The values on a page. `starts`: every start time of a process; `notes`: what was left out, in words."""

    values: dict[Series, float] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)

    def add(self, series: Series, text: str, number: int) -> None:
        """Add a line's value; raises `parse` if it is invalid or the series is there already."""
        value = parse_value(series, text, number)
        if series.name == PROCESS_START:
            self.starts.append(value)
            return
        if series in self.values:
            raise ScrapeError(Reason.PARSE, f"line {number}: the page holds a series of {series.name} twice")
        self.values[series] = value
        note = explain_missing_value(series, text) if math.isnan(value) else None
        if note is not None:
            self.notes.add(note)


@dataclass(slots=True)
class _Draft:
    """The numbers of one engine while its page is being read. `buckets`: cumulative counts by upper bound."""

    numbers: dict[MetricSlot, float] = field(default_factory=dict)
    by_process: set[MetricSlot] = field(default_factory=set)
    buckets: dict[MetricSlot, dict[float, float]] = field(default_factory=dict)

    def add(self, series: Series, slot: MetricSlot, value: float) -> None:
        if slot.part is SamplePart.BUCKET:
            counts = self.buckets.setdefault(slot, {})
            counts[series.upper_bound] = counts.get(series.upper_bound, 0.0) + value
        elif series.combine is Combine.MAX:
            self.numbers[slot] = max(value, self.numbers.get(slot, value))
            if "pid" in series.labels:
                self.by_process.add(slot)
        else:
            self.numbers[slot] = value + self.numbers.get(slot, 0.0)


def _check_end(text: str, *, openmetrics: bool) -> bool:
    """Whether a page has the end of an OpenMetrics one, after which there need not be a line feed.

    Raises:
        ScrapeError: `parse` if it is cut off.
    """
    ended = text.rstrip().rpartition("\n")[2] == "# EOF"
    if openmetrics and not ended:
        raise ScrapeError(Reason.PARSE, "the page is cut off: an OpenMetrics page must end with # EOF")
    if text and not ended and not text.endswith("\n"):
        raise ScrapeError(Reason.PARSE, "the page is cut off: its last line has no end")
    return ended


def _find_process_start(starts: list[float]) -> float | None:
    """The start time of the server's process, if the page has exactly one: a page merged with that of a sidecar has
    several, and which one is the server's is unknown.
    """
    return starts[0] if len(starts) == 1 and not math.isnan(starts[0]) else None


def _is_engine(key: EngineKey, sample: EngineSample) -> bool:
    """Whether a sample is that of an engine. A router (the one of vLLM's production stack, for example) shows gauges of
    the servers behind it under the names of theirs, by address and without a model.
    """
    tokens = (sample.prompt_tokens, sample.prompt_tokens_computed, sample.generation_tokens)
    counts = any(count is not None for count in tokens) or any(getattr(sample, name) for name in HISTOGRAMS)
    return bool(key.model_name or sample.cache_config or counts)


def _assemble_samples(values: Mapping[Series, float], table: MetricTable) -> Mapping[EngineKey, EngineSample]:
    drafts: dict[EngineKey, _Draft] = {}
    of_model: list[tuple[Series, MetricSlot, float]] = []
    configs: list[Series] = []
    for series, value in values.items():
        slot = series.slot
        if slot is None or math.isnan(value):
            continue
        if slot.part is SamplePart.LABELS:
            configs.append(series)
        elif slot.metric.of_model:
            of_model.append((series, slot, value))
        else:
            draft = drafts.get(series.key)
            if draft is None:
                draft = drafts[series.key] = _Draft()
            draft.add(series, slot, value)
    _add_model_counters(of_model, drafts)
    if len(drafts) > MAX_ENGINES:
        raise ScrapeError(Reason.TOO_LARGE, f"the page speaks of {len(drafts)} engines, more than {MAX_ENGINES}")
    return {key: _build_sample(drafts[key], table, _find_config(configs, key, drafts)) for key in sorted(drafts)}


def _count_http_requests(values: Mapping[Series, float]) -> Mapping[str, float]:
    """Answered HTTP requests by class of status."""
    counts: dict[str, float] = {}
    for series, value in values.items():
        if series.http_class:
            counts[series.http_class] = value + counts.get(series.http_class, 0.0)
    return counts


def _add_model_counters(of_model: list[tuple[Series, MetricSlot, float]], drafts: Mapping[EngineKey, _Draft]) -> None:
    """Add what is counted for a model as a whole to each of its engines."""
    for series, slot, value in of_model:
        for key, draft in drafts.items():
            if key.model_name == series.key.model_name:
                draft.add(series, slot, value)


def _find_config(configs: list[Series], key: EngineKey, drafts: Mapping[EngineKey, _Draft]) -> Mapping[str, str]:
    """The cache configuration of an engine. It has no model label, so it is used only if a single model has an engine
    of this index, and if a single replica (Ray) exposes it.
    """
    if sum(other.engine == key.engine for other in drafts) > 1:
        return {}
    matches = [series for series in configs if series.key.engine == key.engine]
    return matches[0].labels if len(matches) == 1 else {}


def _build_sample(draft: _Draft, table: MetricTable, cache_config: Mapping[str, str]) -> EngineSample:
    fields: dict[str, float | Histogram | None] = {}
    for name, slots in table.numbers.items():
        present = [slot for slot in slots if slot in draft.numbers]
        # vLLM 0.10 exposes the KV usage that each process saw last under the new name, the engine's under the old one.
        present.sort(key=lambda slot: slot in draft.by_process)
        fields[name] = draft.numbers[present[0]] if present else None
    for name, alternatives in table.histograms.items():
        fields[name] = next(filter(None, (_build_histogram(draft, *slots) for slots in alternatives)), None)
    return EngineSample(cache_config=cache_config, **fields)  # type: ignore[arg-type]  # the table ensures the type


def _build_histogram(
    draft: _Draft, sum_slot: MetricSlot, count_slot: MetricSlot, bucket_slot: MetricSlot | None
) -> Histogram | None:
    total, count = draft.numbers.get(sum_slot), draft.numbers.get(count_slot)
    if total is None or count is None:
        return None
    counts = draft.buckets.get(bucket_slot, {}) if bucket_slot else {}
    upper_bounds = tuple(sorted(counts))
    return Histogram(total, count, upper_bounds, tuple(counts[bound] for bound in upper_bounds))


def _explain_absence(text: str, table: MetricTable) -> ScrapeError:
    """The error for a page without any of the table's metrics, or for a text that is not a page of metrics."""
    for number, line in enumerate(_list_sample_lines(text), start=1):
        if not is_sample_line(line):
            return ScrapeError(Reason.PARSE, f"this is no page of metrics (sample {number} is malformed)")
    return ScrapeError(Reason.NO_METRICS, table.absent)


def _list_sample_lines(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if not line.startswith("#"))
