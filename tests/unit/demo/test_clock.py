import pytest

from phasewatch.demo.clock import LONGEST_TICK, PatientClock


class Machine:
    """A clock that is set by hand, and what was left out of it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.left_out: list[float] = []
        self.patient = PatientClock(lambda: self.now, self.left_out.append)

    def after(self, seconds: float) -> float:
        self.now += seconds
        return self.patient()


def test_it_begins_at_0_and_goes_with_the_clock_of_the_machine() -> None:
    machine = Machine()
    assert [machine.after(seconds) for seconds in (0.0, 0.25, LONGEST_TICK, 1.5)] == [0.0, 0.25, 2.25, 3.75]
    assert machine.left_out == []


def test_what_is_beyond_the_longest_tick_is_left_out_and_told() -> None:
    machine = Machine()
    machine.after(0.5)
    assert machine.after(3600.0) == 0.5 + LONGEST_TICK
    assert machine.after(0.25) == 0.75 + LONGEST_TICK
    assert machine.after(10.0) == 0.75 + 2 * LONGEST_TICK
    assert machine.left_out == pytest.approx([3600.0 - LONGEST_TICK, 10.0 - LONGEST_TICK])
