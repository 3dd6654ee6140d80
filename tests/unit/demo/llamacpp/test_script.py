"""What the exporter shows of the demo's llama-server, against what truly happens in it."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import pytest

from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.llamacpp.rest import FIRST_PAUSE
from phasewatch.config.settings import DeviceSettings, Target
from phasewatch.demo.common.acts import Act
from phasewatch.demo.llamacpp.ledger import LlamaStep
from phasewatch.demo.llamacpp.script import LLAMA_CYCLE, LLAMA_CYCLE_SECONDS
from phasewatch.demo.llamacpp.server import LLAMA_DEVICE, SimulatedLlamaServer
from phasewatch.snapshot.engine import EngineSnapshot
from tests.support.simulated_llamacpp import CREATED, scrape_llama_server
from tests.support.targets import new_target

SEEDS: Final = (1, 2, 3)
START: Final = 0.37
WINDOW: Final = 60.0

Observation = tuple[float, Act, EngineSnapshot, SimulatedLlamaServer]
"""Seconds since the start, current act, what PhaseWatch shows, and the server."""


def build_target() -> Target:
    device = DeviceSettings(name=LLAMA_DEVICE)
    return new_target("simulated", "llamacpp", "http://simulated.invalid", device=device, interval=1.0, window=WINDOW)


def observe(seed: int, seconds: float) -> Iterator[Observation]:
    server = SimulatedLlamaServer(seed, CREATED)
    times = (START + number for number in range(int(seconds - START)))
    for time, engine in scrape_llama_server(server, build_target(), times):
        yield time, server.act, engine, server


def test_each_act_shows_its_state_in_its_second_half_in_every_cycle() -> None:
    for seed in SEEDS:
        for act, group in groupby(observe(seed, 2 * LLAMA_CYCLE_SECONDS), key=lambda one: one[1]):
            states = [engine.state for _, _, engine, _ in group]
            assert set(states[len(states) // 2 :]) == {act.state}, (seed, act.name)


def test_the_script_shows_that_slots_are_lacking_and_that_nothing_is() -> None:
    assert {act.state for act in LLAMA_CYCLE} == {SaturationState.HEALTHY, SaturationState.CONCURRENCY_LIMITED}


def test_the_server_is_not_without_people_for_longer_than_it_is_left_alone_at_first() -> None:
    *_, nobody = LLAMA_CYCLE
    assert not nobody.workloads
    assert nobody.seconds <= FIRST_PAUSE


def test_the_speeds_that_are_shown_are_those_of_the_ledger() -> None:
    for time, act, engine, server in observe(1, LLAMA_CYCLE_SECONDS):
        if time < WINDOW + START or engine.phases.decode_throughput_tokens_per_second is None:
            continue
        steps = server.truth.select_between(time - WINDOW, time)
        shown = engine.phases
        assert shown.decode_throughput_tokens_per_second == pytest.approx(count_tokens(steps) / WINDOW, rel=0.01), act
        assert shown.decode_tokens_per_second == pytest.approx(measure_stream_speed(steps, time - WINDOW), rel=0.08), (
            act
        )


def count_tokens(steps: tuple[LlamaStep, ...]) -> int:
    return sum(step.tokens for step in steps)


def measure_stream_speed(steps: tuple[LlamaStep, ...], start: float) -> float:
    """Tokens per second of the streams' time since `start`, which can cut a stall in two."""
    waits = [min(gap, step.end - start) for step in steps for gap in step.token_gaps]
    return len(waits) / sum(waits)
