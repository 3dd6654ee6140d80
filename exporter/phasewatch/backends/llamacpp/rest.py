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
"""Seconds of the longest pause of a server that has not been seen asleep. A request in a pause is seen at its
end."""

LONGEST_PAUSE_OF_SLEEPER: Final = 3600.0
"""Seconds of the longest pause of a server that has been seen asleep."""

MARGIN: Final = 1.25
IDLE_SECONDS: Final = 1.0
"""The pause for a known time after which the server sleeps: that time and a quarter of it, and a second."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of the sleep of one process.

    Attributes:
        idle_scrapes: consecutive full reads that saw no request.
        read_at: monotonic time of the newest full read; None before the first.
        pause: length of the present or next pause, seconds.
        sleeps: whether it has been seen asleep.
        settled: whether it never sleeps: it stayed awake through the longest pause, or the operator says so.
        known: whether the operator says how long `pause` has to be.
    """

    idle_scrapes: int = 0
    read_at: float | None = None
    pause: float = FIRST_PAUSE
    sleeps: bool = False
    settled: bool = False
    known: bool = False


def create_rest(sleep_idle: float | None) -> Rest:
    """What the operator knows of the sleep of a server.

    Args:
        sleep_idle: seconds without a request after which it falls asleep; 0 if it never does, None if unknown.
    """
    if sleep_idle is None:
        return Rest()
    return Rest(settled=True) if sleep_idle == 0 else Rest(pause=sleep_idle * MARGIN + IDLE_SECONDS, known=True)


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
    if not paused or not idle or rest.known:
        return rest
    if rest.pause >= LONGEST_PAUSE and not rest.sleeps:
        return replace(rest, settled=True)
    return replace(rest, pause=min(2 * rest.pause, LONGEST_PAUSE_OF_SLEEPER if rest.sleeps else LONGEST_PAUSE))


def record_sleep(rest: Rest) -> Rest:
    """Record that the server sleeps. When it wakes, it is read at once."""
    return replace(rest, sleeps=True, settled=False, idle_scrapes=0)
