"""A page of metrics in, typed samples of each engine out.

Only the samples named in `engines.names` are read; everything else on the page is passed over unparsed, which makes
reading cheap enough for an interval of a second. Samples are known by their own name and labels: `# TYPE` lines are
ignored, because the Python server and the Rust front end disagree about families.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from phasewatch.analysis.samples import HISTOGRAMS, EngineKey, EngineSample, Histogram, Page
from phasewatch.backends.vllm.metric_names import (
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
from phasewatch.base.errors import Reason, ScrapeError

MOST_ENGINES: Final = 256
"""Models times data-parallel ranks on one page; beyond, it is no page of a server's own."""

LONGEST_SERIES: Final = 16_384
"""Characters of one series' name and labels; vLLM's longest, `cache_config_info`, has about 1,300."""


@dataclass(frozen=True, eq=False, slots=True)
class _Series:
    """One series of interest, compared by identity. `slot` is None for the process start time."""

    name: str
    labels: Mapping[str, str]
    slot: Slot | None
    key: EngineKey
    edge: float
    combine: Combine

    def identity(self) -> "_Identity":
        """Equal for the same series in whatever order its labels are written, and under whatever prefix."""
        return self.slot, frozenset(self.labels.items())


_Identity = tuple[Slot | None, frozenset[tuple[str, str]]]

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
        self._by_identity: dict[_Identity, _Series] = {}

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
        first_seen: dict[_Identity, _Series] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.startswith(_STARTS):
                continue
            series_text, _, value_text = line.rpartition(" ")
            series = self._by_text.get(series_text)
            if series is None:
                series_text, value_text = _split(line, number)
                series = self._find(series_text, number, first_seen)
            by_text[series_text] = series
            if series is _NOT_READ:
                continue
            if series in values:
                raise ScrapeError(Reason.PARSE, f"line {number}: the page holds a series of {series.name} twice")
            values[series] = _value(series, value_text, number)
        if by_text.keys() != self._by_text.keys():
            self._by_text = by_text
            self._by_identity = {series.identity(): series for series in values}
        if not any(series.slot for series in values):
            raise _nothing_read(text)
        return _assemble(values, openmetrics=ended)

    def _find(self, text: str, number: int, first_seen: dict[_Identity, _Series]) -> _Series:
        series = self._by_text.get(text) or _series(text, number)
        if series is _NOT_READ:
            return series
        identity = series.identity()
        return self._by_identity.get(identity) or first_seen.setdefault(identity, series)


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
    if "_" not in text and text.isascii():  # Python takes more for a number than the format does
        with contextlib.suppress(ValueError):
            return float(text)
    raise ScrapeError(Reason.PARSE, f"line {number}: the value of {name} is no number")


def _value(series: _Series, text: str, number: int) -> float:
    """The value; NaN for a gauge that says nothing sensible, which is then left out."""
    value = _number(text, series.name, number)
    if 0 <= value < math.inf and (series.slot is None or value <= series.slot.upstream.highest):
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

    def add(self, series: _Series, place: Slot, value: float) -> None:
        if place.part is Part.BUCKET:
            counts = self.buckets.setdefault(place, {})
            counts[series.edge] = counts.get(series.edge, 0.0) + value
        elif series.combine is Combine.MAX:
            self.numbers[place] = max(value, self.numbers.get(place, value))
            if "pid" in series.labels:
                self.by_process.add(place)
        else:
            self.numbers[place] = value + self.numbers.get(place, 0.0)


def _assemble(values: Mapping[_Series, float], *, openmetrics: bool) -> Page:
    process_start: float | None = None
    drafts: dict[EngineKey, _Draft] = {}
    of_model: list[tuple[_Series, Slot, float]] = []
    configs: list[Mapping[str, str]] = []
    for series, value in values.items():
        place = series.slot
        if math.isnan(value):
            continue
        if place is None:
            process_start = value
        elif place.part is Part.LABELS:
            configs.append(series.labels)
        elif place.upstream.of_model:
            of_model.append((series, place, value))
        else:
            draft = drafts.get(series.key)
            if draft is None:
                draft = drafts[series.key] = _Draft()
            draft.add(series, place, value)
    _share(of_model, drafts)
    if len(drafts) > MOST_ENGINES:
        raise ScrapeError(Reason.TOO_LARGE, f"the page speaks of {len(drafts)} engines, more than {MOST_ENGINES}")
    engines = {key: _engine(drafts[key], _config(configs, key, drafts)) for key in sorted(drafts)}
    return Page(process_start, openmetrics, engines)


def _share(of_model: list[tuple[_Series, Slot, float]], drafts: Mapping[EngineKey, _Draft]) -> None:
    """Give what is counted for a model to each of its engines."""
    for series, place, value in of_model:
        for key, draft in drafts.items():
            if key.model_name == series.key.model_name:
                draft.add(series, place, value)


def _config(configs: list[Mapping[str, str]], key: EngineKey, drafts: Mapping[EngineKey, _Draft]) -> Mapping[str, str]:
    """The cache configuration of an engine. It names no model, so it is joined where only one model has that engine,
    and where a single replica (Ray) writes it.
    """
    if sum(other.engine == key.engine for other in drafts) > 1:
        return {}
    found = [labels for labels in configs if labels.get("engine", "0") == key.engine]
    return found[0] if len(found) == 1 else {}


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
