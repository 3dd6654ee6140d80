"""A page of metrics in, typed samples of each engine out.

Only the samples named in `engines.names` are read; everything else on the page is passed over unparsed, which makes
reading cheap enough for an interval of a second. Samples are known by their own name and labels: `# TYPE` lines are
ignored, because the Python server and the Rust front end disagree about families.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from phasewatch.engines.names import (
    PREFIXES,
    PROCESS_START,
    SLOTS,
    UPSTREAM,
    Combine,
    Kind,
    Part,
    Slot,
    Upstream,
    slot,
)
from phasewatch.errors import Reason, ScrapeError

LONGEST_SERIES: Final = 16_384
"""Characters of one series' name and labels; vLLM's longest, `cache_config_info`, has about 1,300."""


@dataclass(frozen=True, slots=True, order=True)
class EngineKey:
    """Who a sample speaks of: a model, and the index of the engine (data-parallel rank) that serves it."""

    model_name: str
    engine: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram. `edges` are upper edges in ascending order, `cumulative` the counts up to each.

    Both are empty for a histogram of which only the totals are read.
    """

    sum: float
    count: float
    edges: tuple[float, ...] = ()
    cumulative: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one page says about one engine; None where the page says nothing.

    Gauges: `requests_running`, `requests_waiting`, `kv_cache_usage` (0 to 1). `created` is the Unix time at which the
    counters began. Everything else counts up: tokens, requests, and seconds in the histograms.
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage: float | None = None
    created: float | None = None
    prompt_tokens: float | None = None
    prompt_tokens_computed: float | None = None
    prompt_tokens_transferred: float | None = None
    prompt_tokens_cached: float | None = None
    generation_tokens: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    external_prefix_cache_hits: float | None = None
    preemptions: float | None = None
    iteration_tokens: Histogram | None = None
    time_to_first_token: Histogram | None = None
    inter_token_latency: Histogram | None = None
    queue_time: Histogram | None = None
    prefill_time: Histogram | None = None
    request_latency: Histogram | None = None
    request_prompt_tokens: Histogram | None = None
    request_computed_tokens: Histogram | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)


COUNTERS: Final = tuple(upstream.field for upstream in UPSTREAM if upstream.kind is Kind.COUNTER)
HISTOGRAMS: Final = tuple(upstream.field for upstream in UPSTREAM if upstream.kind in {Kind.HISTOGRAM, Kind.TOTALS})


@dataclass(frozen=True, slots=True)
class Page:
    """One page: what it says of each engine, and of the server that writes it.

    `process_start` is the Unix time at which the server's process started, where the page has it. `one_process` tells
    that a single process writes the page: one that shows its own start, or the Rust front end, which is known by its
    OpenMetrics (0.22 to 0.32; it ignores --api-server-count).
    """

    process_start: float | None
    one_process: bool
    engines: Mapping[EngineKey, EngineSample]


@dataclass(frozen=True, eq=False, slots=True)
class _Series:
    """One series of interest, compared by identity. `slot` is None for the process start time."""

    name: str
    labels: Mapping[str, str]
    slot: Slot | None
    key: EngineKey
    edge: float
    combine: Combine

    def identity(self) -> tuple[str, frozenset[tuple[str, str]]]:
        """Equal for the same series in whatever order its labels are written."""
        return self.name, frozenset(self.labels.items())


_SPACE: Final = r"[ \t]*+"
_LABEL: Final = rf'([a-zA-Z_][a-zA-Z0-9_]*+){_SPACE}={_SPACE}"((?:[^"\\]|\\.)*+)"{_SPACE}'
_SERIES: Final = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:{_SPACE}\{{({_SPACE}(?:{_LABEL},?{_SPACE})*+)\}})?")
_LABELS: Final = re.compile(_LABEL)
_REST: Final = re.compile(r"[ \t]+(\S+)(?:[ \t]+\S+)?(?:[ \t]+#[ \t].*)?[ \t\r]*")
_ESCAPE: Final = re.compile(r"\\(.)")
_ANY_SAMPLE: Final = re.compile(rf"(?:{_SERIES.pattern}{_REST.pattern})|[ \t\r]*")
_STARTS: Final = (*PREFIXES, PROCESS_START)
_NOT_READ: Final = _Series("", {}, None, EngineKey("", ""), 0.0, Combine.SUM)


class PageReader:
    """Reads the pages of one server, and remembers its series from page to page so that labels are parsed once."""

    def __init__(self) -> None:
        self._by_text: dict[str, _Series] = {}
        self._by_identity: dict[tuple[str, frozenset[tuple[str, str]]], _Series] = {}

    def read(self, text: str, *, openmetrics: bool = False) -> Page:
        """Parse a page.

        Args:
            text: the body in the text format 0.0.4 or OpenMetrics.
            openmetrics: whether the server called it OpenMetrics, which must end with `# EOF`.

        Raises:
            ScrapeError: `parse` for a page that is cut off, malformed, holds a series twice or an impossible number in
                a counter; `no_metrics` for a good page without anything of vLLM's. (A server that has yet to serve its
            first request may show its cache configuration only, 0.8: no engine is known then, and nothing is wrong.)
        """
        ended = text.rstrip().endswith("# EOF")
        if openmetrics and not ended:
            raise ScrapeError(Reason.PARSE, "the page is cut off: an OpenMetrics page must end with # EOF")
        if text and not text.endswith("\n"):
            raise ScrapeError(Reason.PARSE, "the page is cut off: its last line has no end")
        values: dict[_Series, float] = {}
        by_text: dict[str, _Series] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.startswith(_STARTS):
                continue
            series_text, _, value_text = line.rpartition(" ")
            series = self._by_text.get(series_text)
            if series is None:
                series_text, value_text = _split(line, number)
                series = self._by_text.get(series_text) or self._first_seen(series_text, number)
            by_text[series_text] = series
            if series is _NOT_READ:
                continue
            if series in values:
                raise ScrapeError(Reason.PARSE, f"line {number}: the page holds a series of {series.name} twice")
            values[series] = _value(series, value_text, number)
        if by_text.keys() != self._by_text.keys():
            self._by_text = by_text
            self._by_identity = {series.identity(): series for series in by_text.values()}
        if not any(series.slot for series in values):
            raise _nothing_read(text)
        return _assemble(values, openmetrics=ended)

    def _first_seen(self, text: str, number: int) -> _Series:
        series = _series(text, number)
        return self._by_identity.setdefault(series.identity(), series)


def _split(line: str, number: int) -> tuple[str, str]:
    """Series and value of a line, with a timestamp and an exemplar taken off."""
    series = _SERIES.match(line)
    rest = _REST.fullmatch(line, series.end()) if series else None
    if series is None or rest is None or series.end() > LONGEST_SERIES:
        raise ScrapeError(Reason.PARSE, f"line {number} is no valid sample")
    return series[0], rest[1]


def _series(text: str, number: int) -> _Series:
    match = _SERIES.fullmatch(text)
    if match is None:
        raise ScrapeError(Reason.PARSE, f"line {number} is no valid sample")
    name = match[1]
    labels = {label[1]: _unescape(label[2]) for label in _LABELS.finditer(match[2] or "")}
    place = slot(name, labels)
    if place is None and name != PROCESS_START:
        return _NOT_READ
    edge = _number(labels.get("le", ""), name, number) if place is not None and place.part is Part.BUCKET else 0.0
    key = EngineKey(labels.get("model_name", ""), labels.get("engine", "0"))
    return _Series(name, labels, place, key, edge, _combine(place, labels))


def _combine(place: Slot | None, labels: Mapping[str, str]) -> Combine:
    if place is None:
        return Combine.MAX
    if place.upstream.kind is Kind.GAUGE and "pid" in labels:
        # Multiprocess gauges without a mode (up to 0.10): each process shows its own view of the same engine.
        return Combine.MAX
    return place.upstream.combine


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def _number(text: str, name: str, number: int) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ScrapeError(Reason.PARSE, f"line {number}: the value of {name} is no number") from error


def _value(series: _Series, text: str, number: int) -> float:
    """The value; NaN for a gauge that says nothing sensible, which is then left out."""
    value = _number(text, series.name, number)
    if 0 <= value < math.inf:
        return value
    if series.slot is None or series.slot.upstream.kind is Kind.GAUGE:
        return math.nan
    if series.slot.part is Part.SUM and math.isfinite(value):
        # queue_time records minus the uptime for a request that fails before it is scheduled (0.8 to 0.32).
        return value
    raise ScrapeError(Reason.PARSE, f"line {number}: {series.name} is {value}, which no counter can be")


@dataclass(slots=True)
class _Draft:
    """The numbers of one engine while a page is read."""

    numbers: dict[Slot, float] = field(default_factory=dict)
    by_process: set[Slot] = field(default_factory=set)
    buckets: dict[Slot, dict[float, float]] = field(default_factory=dict)


def _assemble(values: Mapping[_Series, float], *, openmetrics: bool) -> Page:
    process_start: float | None = None
    drafts: dict[EngineKey, _Draft] = {}
    configs: list[Mapping[str, str]] = []
    for series, value in values.items():
        if math.isnan(value):
            continue
        place = series.slot
        if place is None:
            process_start = value
        elif place.part is Part.LABELS:
            configs.append(series.labels)
        else:
            draft = drafts.get(series.key)
            if draft is None:
                draft = drafts[series.key] = _Draft()
            if place.part is Part.BUCKET:
                counts = draft.buckets.setdefault(place, {})
                counts[series.edge] = counts.get(series.edge, 0.0) + value
            elif series.combine is Combine.MAX:
                draft.numbers[place] = max(value, draft.numbers.get(place, value))
                if "pid" in series.labels:
                    draft.by_process.add(place)
            else:
                draft.numbers[place] = value + draft.numbers.get(place, 0.0)
    one_process = process_start is not None or openmetrics
    return Page(
        process_start, one_process, {key: _engine(drafts[key], _config(configs, key, drafts)) for key in sorted(drafts)}
    )


def _config(configs: list[Mapping[str, str]], key: EngineKey, drafts: Mapping[EngineKey, _Draft]) -> Mapping[str, str]:
    """The cache configuration of an engine: it names no model, so it is joined where only one model has that engine."""
    if sum(other.engine == key.engine for other in drafts) > 1:
        return {}
    return next((labels for labels in configs if labels.get("engine", "0") == key.engine), {})


def _by_rank(upstream: Upstream, part: Part) -> tuple[Slot, ...]:
    slots = [place for _, place in SLOTS if place.upstream is upstream and place.part is part]
    return tuple(sorted(slots, key=lambda place: place.rank))


_NUMBERS: Final = tuple(
    (upstream.field, _by_rank(upstream, Part.VALUE)) for upstream in UPSTREAM if _by_rank(upstream, Part.VALUE)
)
_HISTOGRAMS: Final = tuple(
    (
        upstream.field,
        tuple(
            zip(
                _by_rank(upstream, Part.SUM),
                _by_rank(upstream, Part.COUNT),
                _by_rank(upstream, Part.BUCKET) or (None,) * len(upstream.names),
                strict=True,
            )
        ),
    )
    for upstream in UPSTREAM
    if upstream.field in HISTOGRAMS
)


def _engine(draft: _Draft, cache_config: Mapping[str, str]) -> EngineSample:
    facts: dict[str, float | Histogram | None] = {}
    for name, slots in _NUMBERS:
        found = [place for place in slots if place in draft.numbers]
        # 0.10 shows the KV usage that each process last saw under the new name, and the engine's under the old one.
        found.sort(key=lambda place: place in draft.by_process)
        facts[name] = draft.numbers[found[0]] if found else None
    for name, alternatives in _HISTOGRAMS:
        facts[name] = next(filter(None, (_histogram(draft, *slots) for slots in alternatives)), None)
    return EngineSample(cache_config=cache_config, **facts)  # type: ignore[arg-type]  # the table gives the right type


def _histogram(draft: _Draft, sum_slot: Slot, count_slot: Slot, bucket_slot: Slot | None) -> Histogram | None:
    total, count = draft.numbers.get(sum_slot), draft.numbers.get(count_slot)
    if total is None or count is None:
        return None
    counts = draft.buckets.get(bucket_slot, {}) if bucket_slot else {}
    edges = tuple(sorted(counts))
    return Histogram(total, count, edges, tuple(counts[edge] for edge in edges))


def _nothing_read(text: str) -> ScrapeError:
    """Tells a page without vLLM's metrics from something that is no page of metrics at all."""
    for number, line in enumerate(_sample_lines(text), start=1):
        if not _ANY_SAMPLE.fullmatch(line):
            return ScrapeError(Reason.PARSE, f"this is no page of metrics (sample {number} is malformed)")
    return ScrapeError(
        Reason.NO_METRICS,
        "the page has no vllm metrics: is this vLLM's own address, and does it run without --disable-log-stats?",
    )


def _sample_lines(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if not line.startswith("#"))
