"""The script in simulated time: every act shows its intended state, whatever the seed."""

from collections.abc import Iterator
from itertools import groupby

import pytest

from phasewatch.analysis.saturation import SaturationState
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.demo.common.acts import Act
from phasewatch.demo.vllm.script import CYCLE, CYCLE_SECONDS, METRICS_TO_WATCH, find_act
from phasewatch.demo.vllm.simulation import SimulatedVllm
from phasewatch.metrics.collector import TABLE
from tests.support.simulated_vllm import CREATED, build_target, scrape

SEEDS = (1, 2, 3, 4, 5)

LONG_ANSWERS_START = 160.0
"""Start of the act whose state depends most on chance, in the cycle."""

UNLUCKY_SEEDS = ((99, 0.0), (74, LONG_ANSWERS_START))
"""Seeds and offsets with which an earlier script did not show that state for some seconds of the second half."""


class ScriptedServer:
    """The whole simulated server."""

    def __init__(self, seed: int, offset: float = 0.0) -> None:
        self.vllm = SimulatedVllm(seed, CREATED, offset)

    def advance(self, now: float) -> None:
        self.vllm.advance(now)

    def page(self) -> str:
        return self.vllm.respond("GET", "/metrics").body.decode()


Observation = tuple[float, Act, SaturationState]
"""Position in the cycle, current act, and the state that PhaseWatch shows."""


def observe(
    seed: int, seconds: float, *, target: Target, interval: float = 1.0, start: float = 0.37, offset: float = 0.0
) -> Iterator[Observation]:
    server = ScriptedServer(seed, offset)
    times = (start + number * interval for number in range(int((seconds - start) / interval)))
    for time, reading in scrape(server, target, times):
        assert reading.state is not None
        yield offset + time, server.vllm.act, reading.state


def find_unintended(observations: Iterator[Observation]) -> list[tuple[float, str, SaturationState]]:
    """Time, act and state of observations in the second half of an act that are not its intended state."""
    unintended = []
    for act, group in groupby(observations, key=lambda observation: observation[1]):
        of_act = list(group)
        _, end = find_act(of_act[0][0])
        second_half = [(time, state) for time, _, state in of_act if time >= end - act.seconds / 2]
        assert len(second_half) >= 2
        unintended += [(time, act.name, state) for time, state in second_half if state is not act.state]
    return unintended


def read_value(page: str, name: str) -> float:
    (value,) = (line.split()[-1] for line in page.splitlines() if line.startswith(f"vllm:{name}{{"))
    return float(value)


def test_a_cycle_has_one_act_for_every_state_and_lasts_a_few_minutes() -> None:
    assert sorted(act.state for act in CYCLE) == sorted(SaturationState)
    assert 240 <= CYCLE_SECONDS <= 360


def test_every_act_has_a_unique_name_and_an_explanation() -> None:
    assert len({act.name for act in CYCLE}) == len(CYCLE)
    assert all(act.about.endswith(".") and act.about[0].isupper() for act in CYCLE)


def test_every_state_has_metrics_to_watch_that_the_exporter_has() -> None:
    assert METRICS_TO_WATCH.keys() == set(SaturationState)
    assert {name for names in METRICS_TO_WATCH.values() for name in names} <= {metric.name for metric in TABLE}


# A test per seed: each takes seconds, and a failure should name its seed without waiting for the others.
@pytest.mark.parametrize("seed", SEEDS)
def test_each_act_shows_its_state_in_its_second_half_in_every_cycle(seed: int) -> None:
    assert find_unintended(observe(seed, 2 * CYCLE_SECONDS, target=build_target())) == []


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_states_are_shown_without_configured_limits(seed: int) -> None:
    assert find_unintended(observe(seed, CYCLE_SECONDS, target=build_target(server=ServerSettings()))) == []


def test_the_states_are_shown_with_other_intervals_and_windows() -> None:
    for interval, window in ((2.0, 60.0), (1.0, 15.0)):
        observations = observe(1, CYCLE_SECONDS, target=build_target(window=window), interval=interval)
        assert find_unintended(observations) == [], (interval, window)


def test_long_answers_show_preemptions_with_unlucky_seeds_too() -> None:
    duration = next(act.seconds for act in CYCLE if act.state is SaturationState.PREEMPTING)
    for seed, offset in UNLUCKY_SEEDS:
        seconds = LONG_ANSWERS_START - offset + duration
        for interval, window in ((1.0, 30.0), (2.0, 30.0), (1.0, 15.0), (1.0, 60.0)):
            target = build_target(window=window)
            observations = observe(seed, seconds, target=target, interval=interval, offset=offset)
            assert find_unintended(observations) == [], (seed, offset, interval, window)


def test_the_second_half_of_long_answers_has_a_preemption_every_ten_seconds() -> None:
    act, end = find_act(LONG_ANSWERS_START)
    for seed in (58, 67, 74, 87):
        server = ScriptedServer(seed, LONG_ANSWERS_START)
        counted, newest, longest = 0.0, 0.0, 0.0
        for quarter in range(1, int((end - LONG_ANSWERS_START) * 4)):
            time = quarter / 4
            server.advance(time)
            value = read_value(server.page(), "num_preemptions_total")
            if value > counted:
                counted, newest = value, time
            if time >= act.seconds / 2:
                longest = max(longest, time - newest)
        assert newest > 0, seed
        assert longest < 10.0, seed


def test_the_previous_act_affects_the_state_for_a_while() -> None:
    start, acts = 0.0, {}
    for act in CYCLE:
        acts[act.name] = (start, act.seconds)
        start += act.seconds
    for name, previous, states in (
        ("paused", "a flood", [SaturationState.SHEDDING, SaturationState.DEFERRED, SaturationState.STUCK]),
        ("nobody", "paused", [SaturationState.HEALTHY, SaturationState.IDLE]),
    ):
        offset, seconds = acts[previous][0], acts[previous][1] + acts[name][1]
        observations = observe(1, seconds, target=build_target(), offset=offset)
        assert [state for state, _ in groupby(s for _, act, s in observations if act.name == name)] == states, name


def test_no_counter_ever_decreases() -> None:
    decreases = 0
    server = ScriptedServer(1)
    before: dict[str, float] = {}
    for second in range(int(CYCLE_SECONDS) + 60):
        server.advance(second + 0.5)
        now = {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in server.page().splitlines())
            if any(part in name for part in ("_total", "_bucket", "_count", "_sum")) and not name.startswith("#")
        }
        decreases += any(now[name] < value for name, value in before.items())
        before = now
    assert len(before) > 300
    assert decreases == 0


def test_every_act_begins_with_an_empty_server() -> None:
    server = ScriptedServer(1)
    end = 0.0
    for act in CYCLE:
        end += act.seconds
        server.advance(end)
        for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            assert read_value(server.page(), gauge) == 0, (act.name, gauge)


def test_the_acts_repeat_endlessly() -> None:
    for cycle in (0, 1, 1000):
        start = cycle * CYCLE_SECONDS
        for act in CYCLE:
            assert find_act(start) == (act, start + act.seconds), (cycle, act.name)
            assert find_act(start + act.seconds - 0.001) == (act, start + act.seconds), (cycle, act.name)
            start += act.seconds
        assert find_act(start)[0] is CYCLE[0], cycle
