"""When to leave an idle llama-server alone, so that it can fall asleep (`--sleep-idle-seconds`). Pure.

Each read of /metrics or /slots starts the server's idle time anew (b10434), and no endpoint tells that time. /props
does not, and tells whether the server sleeps. So an idle server is read by /props alone, and the rest after pauses. As
long as it is not known whether the server ever sleeps, each pause is twice as long as the last one; if it stays awake
through the longest one, it is taken not to sleep, and it is read at every scrape from then on.
"""

from dataclasses import dataclass, replace
from typing import Final

IDLE_SCRAPES: Final = 3
"""Consecutive scrapes without a request after which a server is left alone."""

FIRST_PAUSE: Final = 15.0
"""Seconds of the first pause."""

LONGEST_PAUSE: Final = 480.0
"""Seconds of the longest pause."""

MARGIN: Final = 1.25
"""Pause as a multiple of the known time after which the server sleeps."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of the sleep of one process.

    Attributes:
        idle_scrapes: consecutive full reads that saw no request.
        read_at: monotonic time of the newest full read; None before the first.
        pause: length of the present or next pause, seconds.
        sleeps: whether it has been seen asleep.
        settled: whether it stayed awake through the longest pause.
    """

    idle_scrapes: int = 0
    read_at: float | None = None
    pause: float = FIRST_PAUSE
    sleeps: bool = False
    settled: bool = False


def should_rest(rest: Rest, now: float, *, can_sleep: bool) -> bool:
    """Whether nothing but /props is to be read now.

    Args:
        rest: what is known.
        now: monotonic time.
        can_sleep: whether the build has the setting.
    """
    if not can_sleep or rest.settled or rest.read_at is None or rest.idle_scrapes < IDLE_SCRAPES:
        return False
    return now - rest.read_at < rest.pause


def record_full_read(rest: Rest, now: float, *, idle: bool) -> Rest:
    """Record a read of everything; `idle`: whether no request was there, nor had been since the read before."""
    paused = rest.read_at is not None and rest.idle_scrapes >= IDLE_SCRAPES and now - rest.read_at >= rest.pause
    rest = replace(rest, read_at=now, idle_scrapes=rest.idle_scrapes + 1 if idle else 0)
    if not paused or not idle:
        return rest
    if rest.pause >= LONGEST_PAUSE:
        return replace(rest, settled=not rest.sleeps)
    return replace(rest, pause=min(2 * rest.pause, LONGEST_PAUSE))


def record_sleep(rest: Rest) -> Rest:
    """Record that the server sleeps. When it wakes, it is read at once."""
    return replace(rest, sleeps=True, settled=False, idle_scrapes=0)
