"""The demo's own time, which stands still while the demo does.

A process that was stopped (Ctrl-Z, a paused container) finds that hours have passed. To simulate them would block it
for minutes, for numbers that nobody has seen.
"""

import time
from collections.abc import Callable
from typing import Final

LONGEST_TICK: Final = 2.0
"""Seconds that may pass between two looks at the clock; what is beyond them is left out."""


_MACHINE: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def machine_seconds() -> float:
    """A clock of the machine that is never set; on Linux it goes on while the machine sleeps."""
    return time.clock_gettime(_MACHINE)


class PatientClock:
    """Seconds that the demo has lived through.

    Args:
        read: a clock of the machine, in seconds.
        left_out: is told how many seconds are left out whenever some are.
    """

    def __init__(self, read: Callable[[], float], left_out: Callable[[float], None]) -> None:
        self._read = read
        self._left_out = left_out
        self._began = self._last = read()

    def __call__(self) -> float:
        """The time now. It never goes faster than that of the machine."""
        now = self._read()
        surplus = now - self._last - LONGEST_TICK
        self._last = now
        if surplus > 0:
            self._began += surplus
            self._left_out(surplus)
        return now - self._began
