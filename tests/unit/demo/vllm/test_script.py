"""The scripted cycle in simulated time: every act shows the state that it intends, whatever the seed."""

from collections.abc import Iterator
from itertools import groupby

import pytest

from phasewatch.analysis.saturation import State
from phasewatch.config.resolve import Limits, Target
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, Act, act_at
from phasewatch.demo.vllm.simulation import SimulatedVllm
from tests.support.simulated_vllm import STARTED, readings, target

SEEDS = (1, 2, 3, 4, 5)

LONG_ANSWERS = 160.0
"""Where the act begins whose state depends most on chance."""

UNLUCKY = ((99, 0.0), (74, LONG_ANSWERS))
"""Seeds and offsets with which it once did not show its state for some seconds of its second half."""


class Scripted:
    """The whole simulated server."""

    def __init__(self, seed: int, offset: float = 0.0) -> None:
        self.vllm = SimulatedVllm(seed, STARTED, offset)

    def advance(self, now: float) -> None:
        self.vllm.advance(now)

    def page(self) -> str:
        return self.vllm.answer("GET", "/metrics").body.decode()


Moment = tuple[float, Act, State]


def shown(
    seed: int, seconds: float, *, watched: Target, interval: float = 1.0, start: float = 0.37, offset: float = 0.0
) -> Iterator[Moment]:
    """Position in the cycle, act and what was shown, scrape by scrape."""
    server = Scripted(seed, offset)
    times = (start + number * interval for number in range(int((seconds - start) / interval)))
    for time, reading in readings(server, watched, times):
        assert reading.state is not None
        yield offset + time, server.vllm.act, reading.state


def unintended(moments: Iterator[Moment]) -> list[tuple[float, str, State]]:
    """What was shown in the second half of an act and was not what it intended."""
    wrong = []
    for act, group in groupby(moments, key=lambda moment: moment[1]):
        told = list(group)
        end = act_at(told[0][0])[1]
        second_half = [(time, state) for time, _, state in told if time >= end - act.seconds / 2]
        assert len(second_half) >= 2
        wrong += [(time, act.name, state) for time, state in second_half if state is not act.state]
    return wrong


def test_a_cycle_intends_every_state_once_and_lasts_a_few_minutes() -> None:
    assert sorted(act.state for act in CYCLE) == sorted(State)
    assert 240 <= CYCLE_SECONDS <= 360


def test_every_act_has_a_name_of_its_own_and_a_sentence_for_people() -> None:
    assert len({act.name for act in CYCLE}) == len(CYCLE)
    assert all(act.about.endswith(".") and act.about[0].isupper() for act in CYCLE)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_act_shows_its_state_in_its_second_half_in_the_first_cycle_and_the_next(seed: int) -> None:
    assert unintended(shown(seed, 2 * CYCLE_SECONDS, watched=target())) == []


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_states_are_told_without_knowing_how_the_server_was_started(seed: int) -> None:
    assert unintended(shown(seed, CYCLE_SECONDS, watched=target(limits=Limits()))) == []


def test_the_states_are_told_at_another_interval_and_window() -> None:
    for interval, window in ((2.0, 60.0), (1.0, 15.0)):
        moments = shown(1, CYCLE_SECONDS, watched=target(window=window), interval=interval)
        assert unintended(moments) == []


@pytest.mark.parametrize(("seed", "offset"), UNLUCKY)
@pytest.mark.parametrize(("interval", "window"), [(1.0, 30.0), (2.0, 30.0), (1.0, 15.0), (1.0, 60.0)])
def test_answers_that_overflow_the_cache_do_so_often_enough_whatever_chance_does(
    seed: int, offset: float, interval: float, window: float
) -> None:
    seconds = LONG_ANSWERS - offset + next(act.seconds for act in CYCLE if act.state is State.PREEMPTING)
    watched = target(window=window)
    assert unintended(shown(seed, seconds, watched=watched, interval=interval, offset=offset)) == []


@pytest.mark.parametrize("seed", [58, 67, 74, 87])
def test_in_the_half_that_counts_no_preemption_is_long_past(seed: int) -> None:
    act, end = act_at(LONG_ANSWERS)
    server = SimulatedVllm(seed, STARTED, LONG_ANSWERS)
    counted, newest, longest = 0.0, 0.0, 0.0
    for quarter in range(1, int((end - LONG_ANSWERS) * 4)):
        server.advance(quarter / 4)
        page = server.answer("GET", "/metrics").body.decode()
        (value,) = (line.split()[-1] for line in page.splitlines() if line.startswith("vllm:num_preemptions_total{"))
        if float(value) > counted:
            counted, newest = float(value), quarter / 4
        if quarter / 4 >= act.seconds / 2:
            longest = max(longest, quarter / 4 - newest)
    assert newest > 0
    assert longest < 10.0


@pytest.mark.parametrize(
    ("name", "before", "states"),
    [
        ("paused", "a flood", [State.SHEDDING, State.DEFERRED, State.STUCK]),
        ("nobody", "paused", [State.DEFERRED, State.HEALTHY, State.IDLE]),
    ],
)
def test_what_was_before_is_remembered_for_a_while(name: str, before: str, states: list[State]) -> None:
    start, known = 0.0, {}
    for act in CYCLE:
        known[act.name] = (start, act.seconds)
        start += act.seconds
    offset, seconds = known[before][0], known[before][1] + known[name][1]
    moments = shown(1, seconds, watched=target(), offset=offset)
    assert [state for state, _ in groupby(state for _, act, state in moments if act.name == name)] == states


def test_no_counter_ever_falls() -> None:
    restarts = 0
    server = Scripted(1)
    before: dict[str, float] = {}
    for second in range(int(CYCLE_SECONDS) + 60):
        server.advance(second + 0.5)
        now = {
            name: float(number)
            for name, _, number in (line.rpartition(" ") for line in server.page().splitlines())
            if any(part in name for part in ("_total", "_bucket", "_count", "_sum")) and not name.startswith("#")
        }
        restarts += any(now[name] < number for name, number in before.items())
        before = now
    assert len(before) > 300
    assert restarts == 0


def test_every_act_begins_with_an_empty_server() -> None:
    server = SimulatedVllm(1, STARTED)
    end = 0.0
    for act in CYCLE:
        end += act.seconds
        server.advance(end)
        page = server.answer("GET", "/metrics").body.decode()
        for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            (value,) = (line.split()[-1] for line in page.splitlines() if line.startswith(f"vllm:{gauge}{{"))
            assert float(value) == 0


@pytest.mark.parametrize("cycle", [0, 1, 1000])
def test_acts_follow_each_other_for_ever(cycle: int) -> None:
    start = cycle * CYCLE_SECONDS
    for act in CYCLE:
        assert act_at(start) == (act, start + act.seconds)
        assert act_at(start + act.seconds - 0.001) == (act, start + act.seconds)
        start += act.seconds
    assert act_at(start)[0] is CYCLE[0]
