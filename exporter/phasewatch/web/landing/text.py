"""Numbers, times and names as text for the landing page. All text from outside is escaped here."""

import time
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Final

from phasewatch.analysis.distribution import Distribution
from phasewatch.base.units import format_duration
from phasewatch.snapshot.models import FOREVER_SECONDS

UNKNOWN: Final = "\N{EN DASH}"
"""Stands for an unknown number."""

_DAY_SECONDS: Final = 86_400
_LARGEST_NUMBER: Final = 1e9
"""Numbers from here on are implausible in every unit of the page, and are shown as a bound."""

_NO_DECIMALS_FROM: Final = 999.95
"""Speed from which decimals are left out, tokens per second: 1,000 when rounded to tenths."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time at which a page is rendered.

    Attributes:
        wall: Unix time.
        monotonic: monotonic seconds, as in `LoadHistory`.
    """

    wall: float
    monotonic: float


def escape_foreign(text: str) -> str:
    """Convert text from outside to HTML, isolated from the text around it in case it is written right to left."""
    return f"<bdi>{escape(text)}</bdi>"


def format_number(value: float | None, digits: int) -> str:
    """Format a number with thousands separators; a dash if unknown, a bound if implausibly large."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if abs(value) >= _LARGEST_NUMBER:
        return "≥ 1e9" if value > 0 else "≤ -1e9"
    return f"{value:,.{digits}f}"


def format_speed(value: float | None) -> str:
    """Format tokens per second without a unit, with tenths below 1,000: they matter for a single stream."""
    return format_number(value, 0 if value is not None and value >= _NO_DECIMALS_FROM else 1)


def format_rate(value: float | None) -> str:
    """Format tokens per second with the unit, as HTML; a dash if unknown."""
    return UNKNOWN if value is None else f"{format_speed(value)} <small>tok/s</small>"


def format_percent(ratio: float | None) -> str:
    """Format a ratio as whole percent, with the sign."""
    if ratio is None or not isfinite(ratio):
        return UNKNOWN
    return f"{format_number(100 * max(-_LARGEST_NUMBER, min(ratio, _LARGEST_NUMBER)), 0)} %"


def format_quantile(latency: Distribution, order: float) -> str:
    """Format a quantile of a latency in seconds: `≤` in the first bucket, `≥` in the last, a dash if unknown."""
    quantile = dict(latency.quantiles).get(order)
    if quantile is None:
        return UNKNOWN
    if quantile.upper_bound is None:
        return f"≥ {quantile.value:g} s"
    return f"≤ {quantile.value:g} s" if quantile.lower_bound == 0 else f"{format_number(quantile.value, 3)} s"


def format_utc(timestamp: float) -> str:
    """Format a Unix time as UTC, in an HTML `time` element."""
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp))
    return f'<time datetime="{text[:10]}T{text[11:19]}Z">{text}</time>'


def format_expiry(timestamp: float | None, now: float) -> str:
    """Format when a model will be unloaded: the time left, and the time of day; both are Unix times."""
    if timestamp is None:
        return UNKNOWN
    if timestamp >= now + FOREVER_SECONDS:
        return "never"
    if not 0 < timestamp - now < _DAY_SECONDS:
        return format_utc(timestamp)
    return (
        f"in {format_duration(timestamp - now)} <small>{time.strftime('%H:%M:%S UTC', time.gmtime(timestamp))}</small>"
    )


def format_age(timestamp: float | None, now: float) -> str:
    """Format the time since a Unix time; from one day on, that time itself."""
    if timestamp is None:
        return UNKNOWN
    return (
        format_utc(timestamp)
        if now - timestamp >= _DAY_SECONDS
        else f"{format_duration(max(now - timestamp, 0.0))} ago"
    )
