"""The series of a page of metrics: one line in, its series and value out.

Only the series in the backend's `MetricTable` are parsed. They are identified by their own names and labels. `# TYPE`
lines are ignored, because the front ends of one server disagree about families (vLLM 0.22 to 0.32).
"""

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from phasewatch.analysis.samples import EngineKey
from phasewatch.backends.metric_table import Combine, MetricKind, MetricSlot, MetricTable, SamplePart
from phasewatch.base.errors import Reason, ScrapeError

PROCESS_START: Final = "process_start_time_seconds"
"""Exposed by single-process servers, and by other programs whose metrics are merged into the page."""

MAX_SERIES_LENGTH: Final = 16_384
"""Characters in the name and labels of one series that is read. The longest one of vLLM, `cache_config_info`, has about
1,300."""


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """One series to read, compared by identity.

    `slot` is None for the process start time and for HTTP requests, of which `http_class` is the class of status.
    """

    name: str
    labels: Mapping[str, str]
    slot: MetricSlot | None
    key: EngineKey
    upper_bound: float
    combine: Combine
    http_class: str = ""

    def identify(self) -> "SeriesIdentity":
        """A key that is equal for the same series with another order of labels or another prefix."""
        return self.slot, frozenset(self.labels.items())


SeriesIdentity = tuple[MetricSlot | None, frozenset[tuple[str, str]]]

_COUNTED: Final = frozenset({MetricKind.COUNTER, MetricKind.HISTOGRAM, MetricKind.TOTALS})

_SPACE: Final = r"[ \t]*+"
_LABEL: Final = rf'([a-zA-Z_][a-zA-Z0-9_]*+){_SPACE}={_SPACE}"((?:[^"\\]|\\.)*+)"{_SPACE}'
_SERIES: Final = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:{_SPACE}\{{({_SPACE}(?:{_LABEL},?{_SPACE})*+)\}})?")
_LABELS: Final = re.compile(_LABEL)
_REST: Final = re.compile(r"[ \t]+(\S+)(?:[ \t]+\S+)?(?:[ \t]+#[ \t].*)?[ \t\r]*")
_ESCAPE: Final = re.compile(r"\\(.)")
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_ANY_SAMPLE: Final = re.compile(rf"(?:{_SERIES.pattern}{_REST.pattern})|[ \t\r]*")

NOT_READ: Final = Series("", {}, None, EngineKey("", ""), 0.0, Combine.SUM)
"""Represents all series that are not read."""


def is_read(line: str, table: MetricTable) -> bool:
    """Whether a line, by its name, may be a sample to read. The rest of other lines may be anything.

    Names without the prefix of the server may be those of another program, whose metrics were merged into the page:
    what is malformed under them is not the server's.
    """
    match = _NAME.match(line)
    if match is None:
        return False
    if match[0] == PROCESS_START or (table.http_requests is not None and match[0] == table.http_requests.name):
        return _match_sample(line) is not None
    return table.has_name(match[0])


def split_line(line: str, number: int) -> tuple[str, str]:
    """The texts of series and value of a line, without timestamp and exemplar.

    Raises:
        ScrapeError: `parse` if the line is not a sample; `number` is that of the line.
    """
    sample = _match_sample(line)
    if sample is None:
        raise ScrapeError(Reason.PARSE, f"line {number} is no valid sample")
    try:
        sample[0].encode()
    except UnicodeEncodeError as error:
        raise ScrapeError(Reason.PARSE, f"line {number} is not UTF-8") from error
    return sample


def _match_sample(line: str) -> tuple[str, str] | None:
    """The texts of series and value of a line; None if it is not a sample, or too long."""
    series = _SERIES.match(line)
    rest = _REST.fullmatch(line, series.end()) if series else None
    if series is None or rest is None or series.end() > MAX_SERIES_LENGTH:
        return None
    return series[0], rest[1]


def parse_series(text: str, number: int, table: MetricTable) -> Series:
    """The series of a name with labels; `NOT_READ` for one that the table does not have.

    Raises:
        ScrapeError: `parse` if the text is malformed; `number` is that of its line.
    """
    match = _SERIES.fullmatch(text)
    if match is None:
        raise ScrapeError(Reason.PARSE, f"line {number} is no valid sample")
    name = match[1]
    labels = {label[1]: _unescape(label[2]) for label in _LABELS.finditer(match[2] or "")}
    slot = table.find_slot(name, labels)
    http = table.http_requests
    http_class = http.find_class(labels) if http and name == http.name else ""
    if slot is None and name != PROCESS_START and not http_class:
        return NOT_READ
    bucket = slot is not None and slot.part is SamplePart.BUCKET
    upper_bound = _parse_number(labels.get("le", ""), name, number) if bucket else 0.0
    key = EngineKey(labels.get(table.model_label, ""), labels.get(table.engine_label, "0"))
    return Series(name, labels, slot, key, upper_bound, _choose_combination(slot, labels), http_class)


def _choose_combination(slot: MetricSlot | None, labels: Mapping[str, str]) -> Combine:
    if slot is None:
        return Combine.MAX
    if slot.metric.kind is MetricKind.GAUGE and "pid" in labels:
        # Gauges of prometheus_client's multiprocess mode without aggregation (vLLM up to 0.10): each process exposes
        # its own view of the same engine.
        return Combine.MAX
    return slot.metric.combine


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def _parse_number(text: str, name: str, number: int) -> float:
    if "_" not in text and text.isascii():  # Python accepts numbers that the format does not
        with contextlib.suppress(ValueError):
            return float(text)
    raise ScrapeError(Reason.PARSE, f"line {number}: the value of {name} is no number")


def parse_value(series: Series, text: str, number: int) -> float:
    """The value of a series; NaN for an impossible value of anything but a counter, which is then left out.

    Raises:
        ScrapeError: `parse` if it is not a number, or impossible for a counter; `number` is that of its line.
    """
    value = _parse_number(text, series.name, number)
    if 0 <= value < math.inf and (series.slot is None or value <= series.slot.metric.highest):
        return value
    if not series.http_class and (series.slot is None or series.slot.metric.kind not in _COUNTED):
        return math.nan
    if series.slot is not None and series.slot.part is SamplePart.SUM and math.isfinite(value):
        # The sum of a histogram may be negative: vLLM records minus the uptime as the queue time of a request that
        # fails before it is scheduled (0.8 to 0.32).
        return value
    raise ScrapeError(Reason.PARSE, f"line {number}: {series.name} is {value}, which no counter can be")


def explain_missing_value(series: Series, text: str) -> str | None:
    """A note about a gauge whose value is left out because it exceeds the largest valid one; None for other reasons."""
    highest = series.slot.metric.highest if series.slot else math.inf
    return f"{series.name} is above {highest:g} and therefore left out" if float(text) > highest else None


def is_sample_line(line: str) -> bool:
    """Whether a line is a sample of any metric, or blank."""
    return _ANY_SAMPLE.fullmatch(line) is not None
