"""The demo's clock, which leaves out the time during which the demo was suspended.

A suspended process (Ctrl-Z, a paused container) resumes hours later. Simulating those hours would block it for minutes
to produce numbers that nobody sees.
"""

import time
from collections.abc import Callable
from typing import Final

LONGEST_TICK: Final = 2.0
"""Longest time between two readings that counts as running, seconds; anything beyond it is left out."""


_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_boot_clock() -> float:
    """Seconds since boot. Never adjusted; on Linux it includes the time that the machine was asleep."""
    return time.clock_gettime(_BOOT_CLOCK)


class SuspendAwareClock:
    """Seconds that the demo has been running, without the time that it was suspended.

    Args:
        read: a monotonic clock, in seconds.
        on_skip: called with the number of seconds whenever some are left out.
    """

    def __init__(self, read: Callable[[], float], on_skip: Callable[[float], None]) -> None:
        self._read = read
        self._on_skip = on_skip
        self._start = self._last = read()

    def __call__(self) -> float:
        """Seconds since the start. Advances no faster than the clock it reads."""
        now = self._read()
        surplus = now - self._last - LONGEST_TICK
        self._last = now
        if surplus > 0:
            self._start += surplus
            self._on_skip(surplus)
        return now - self._start
