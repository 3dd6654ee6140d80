"""How numbers, moments and names are written on the landing page. All that comes from outside passes through here."""

import time
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Final

from phasewatch.analysis.latency import Latency
from phasewatch.base.units import format_duration
from phasewatch.snapshot.models import FOREVER_SECONDS

UNKNOWN: Final = "\N{EN DASH}"
"""Stands for a number that is not known now."""

_DAY: Final = 86_400
_ABSURD: Final = 1e9
"""No number that is true is as large, in the units of the page."""

_MANY_TOKENS: Final = 999.95


@dataclass(frozen=True, slots=True)
class Moment:
    """When a page is made: Unix seconds, and the monotonic seconds by which histories are kept."""

    wall: float
    monotonic: float


def foreign(text: str) -> str:
    """Text from outside as HTML. Whatever direction it is written in, it disorders nothing around it."""
    return f"<bdi>{escape(text)}</bdi>"


def number(value: float | None, digits: int) -> str:
    """A number with thousands separated, or a dash; of an absurd one, whose digits would fill the page, a bound."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if abs(value) >= _ABSURD:
        return "≥ 1e9" if value > 0 else "≤ -1e9"
    return f"{value:,.{digits}f}"


def speed(value: float | None) -> str:
    """Tokens per second in as many digits as tell something: tenths matter for a single stream."""
    return number(value, 0 if value is not None and value >= _MANY_TOKENS else 1)


def rate(value: float | None) -> str:
    """Tokens per second with their unit, as HTML; the unit of nothing is left out."""
    return UNKNOWN if value is None else f"{speed(value)} <small>tok/s</small>"


def percent(ratio: float | None) -> str:
    """A ratio as whole percents, with the sign."""
    if ratio is None or not isfinite(ratio):
        return UNKNOWN
    return f"{number(100 * max(-_ABSURD, min(ratio, _ABSURD)), 0)} %"


def seconds(latency: Latency, order: float) -> str:
    """A quantile of a latency in seconds: `≤` in the first bucket, `≥` in the last, a dash if there is none."""
    found = dict(latency.quantiles).get(order)
    if found is None:
        return UNKNOWN
    if found.upper_bound is None:
        return f"≥ {found.value:g} s"
    return f"≤ {found.value:g} s" if found.lower_bound == 0 else f"{number(found.value, 3)} s"


def utc(moment: float) -> str:
    """A moment that people and programs can read."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
    return f'<time datetime="{shown[:10]}T{shown[11:19]}Z">{shown}</time>'


def expiry(moment: float | None, now: float) -> str:
    """When a model will be unloaded: in how long, and when that is."""
    if moment is None:
        return UNKNOWN
    if moment >= now + FOREVER_SECONDS:
        return "never"
    if not 0 < moment - now < _DAY:
        return utc(moment)
    return f"in {format_duration(moment - now)} <small>{time.strftime('%H:%M:%S UTC', time.gmtime(moment))}</small>"


def ago(moment: float | None, now: float) -> str:
    """How long ago something was, or when it was if that is more than a day ago."""
    if moment is None:
        return UNKNOWN
    return utc(moment) if now - moment >= _DAY else f"{format_duration(max(now - moment, 0.0))} ago"
