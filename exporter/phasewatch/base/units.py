"""Quantities as written in a configuration, converted to base units, and durations formatted for people.

Prefixes `k` to `P` are decimal (`GB` is 10**9 bytes, as hardware vendors count); `Ki` to `Pi` are binary.
"""

import re
from math import inf
from typing import Final

_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_PREFIXES: Final = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k|[KMGTP]i?)?([A-Za-z/]+)")


def describe_value(value: object) -> str:
    """An invalid value as text for a message. Lists, mappings and addresses may hold a password: only their type."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str) and "://" in value:
        return "an address"
    return "a mapping" if isinstance(value, dict) else repr(value)


def parse_duration(value: object) -> float:
    """Seconds in a duration such as `5s`, `500ms`, `1m` or `1h30m`.

    Raises:
        ValueError: not a duration; the message says what is expected.
    """
    seconds = inf
    if isinstance(value, str) and _DURATION.fullmatch(value):
        seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in _DURATION_PART.findall(value))
    if seconds == inf:
        raise ValueError(f"expected a duration such as 5s, 500ms or 1m, found {describe_value(value)}")
    return seconds


def _parse_quantity(value: object, unit: str, expected: str) -> float:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[3] != unit:
        raise ValueError(f"expected {expected}, found {describe_value(value)}")
    amount = float(match[1]) * _PREFIXES[match[2] or ""]
    if not 0 < amount < inf:
        raise ValueError(f"expected {expected}, found {describe_value(value)}")
    return amount


def parse_size(value: object) -> float:
    """Bytes in a size such as `16.06GB` or `12GiB`.

    Raises:
        ValueError: not a size; the message says what is expected.
    """
    return _parse_quantity(value, "B", "a size such as 16.06GB or 12GiB")


def parse_bandwidth(value: object) -> float:
    """Bytes per second in a bandwidth such as `864GB/s`.

    Raises:
        ValueError: not a bandwidth; the message says what is expected.
    """
    return _parse_quantity(value, "B/s", "a bandwidth such as 864GB/s")


def parse_compute_rate(value: object) -> float:
    """Floating-point operations per second in a compute rate such as `362TFLOPS`.

    Raises:
        ValueError: not a compute rate; the message says what is expected.
    """
    return _parse_quantity(value, "FLOPS", "a compute rate such as 362TFLOPS")


def format_duration(seconds: float) -> str:
    """A duration in at most two units: `250ms`, `5.4s`, `42s`, `3m 5s`, `2h 10m`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004  # tenths do not matter above
        return f"{seconds:.2g}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    parts = (f"{minutes}m", rest and f"{rest}s") if hours == 0 else (f"{hours}h", minutes and f"{minutes}m")
    return " ".join(part for part in parts if part)
