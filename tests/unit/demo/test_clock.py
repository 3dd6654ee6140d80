import pytest

from phasewatch.demo.clock import LONGEST_TICK, SuspendAwareClock


class ManualClock:
    """A clock that a test advances, read through a `SuspendAwareClock`; `skipped` are the seconds it left out."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.skipped: list[float] = []
        self.suspend_aware = SuspendAwareClock(lambda: self.now, self.skipped.append)

    def read_after(self, seconds: float) -> float:
        self.now += seconds
        return self.suspend_aware()


def test_the_clock_starts_at_0_and_follows_the_machines_clock() -> None:
    clock = ManualClock()
    assert [clock.read_after(seconds) for seconds in (0.0, 0.25, LONGEST_TICK, 1.5)] == [0.0, 0.25, 2.25, 3.75]
    assert clock.skipped == []


def test_time_beyond_the_longest_tick_is_left_out_and_reported() -> None:
    clock = ManualClock()
    clock.read_after(0.5)
    assert clock.read_after(3600.0) == 0.5 + LONGEST_TICK
    assert clock.read_after(0.25) == 0.75 + LONGEST_TICK
    assert clock.read_after(10.0) == 0.75 + 2 * LONGEST_TICK
    assert clock.skipped == pytest.approx([3600.0 - LONGEST_TICK, 10.0 - LONGEST_TICK])
