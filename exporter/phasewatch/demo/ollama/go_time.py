"""Durations and timestamps as Go's `time` package represents, parses and formats them."""

import re
from datetime import datetime, tzinfo
from typing import Final

SECOND: Final = 1_000_000_000
"""Nanoseconds in a second. Simulated servers count whole nanoseconds, so that no event is missed by rounding."""

LONGEST_DURATION: Final = 2**63 - 1
"""The longest Go duration: 292 years of nanoseconds."""

_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION: Final = re.compile(r"([+-]?)((?:\d+\.?\d*(?:ns|us|µs|ms|s|m|h))+|0)")
_PART: Final = re.compile(r"([\d.]+)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration such as 1m30s.

    Raises:
        ValueError: it is not a duration; the message is Go's.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        problem = "missing unit in" if re.fullmatch(r"[+-]?\d+\.?\d*", text) else "invalid"
        raise ValueError(f'time: {problem} duration "{text}"')
    nanoseconds = sum(round(float(number) * _UNITS[unit]) for number, unit in _PART.findall(match[2]))
    return -nanoseconds if match[1] == "-" else nanoseconds


def format_timestamp(nanoseconds: int, zone: tzinfo) -> str:
    """Unix nanoseconds in RFC 3339 as Go formats them: with the zone's offset, up to nine digits, no trailing zeros."""
    seconds, fraction = divmod(nanoseconds, SECOND)
    moment = datetime.fromtimestamp(seconds, zone)
    date = moment.replace(tzinfo=None).isoformat()
    offset = moment.isoformat().removeprefix(date).replace("+00:00", "Z")
    return date + f".{fraction:09d}".rstrip("0").rstrip(".") + offset
