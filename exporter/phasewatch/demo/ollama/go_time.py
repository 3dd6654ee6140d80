"""Moments of a simulated server: whole nanoseconds of its clock, and how Go writes them."""

from datetime import datetime, tzinfo
from typing import Final

SECOND: Final = 1_000_000_000
"""Nanoseconds. Simulated servers count in whole ones, so that no moment is missed by a rounding error."""


def timestamp(nanoseconds: int, zone: tzinfo) -> str:
    """A moment as Go writes it: RFC 3339 with the zone's offset and up to nine digits, no zeros at their end."""
    seconds, fraction = divmod(nanoseconds, SECOND)
    moment = datetime.fromtimestamp(seconds, zone)
    date = moment.replace(tzinfo=None).isoformat()
    offset = moment.isoformat().removeprefix(date).replace("+00:00", "Z")
    return date + f".{fraction:09d}".rstrip("0").rstrip(".") + offset
