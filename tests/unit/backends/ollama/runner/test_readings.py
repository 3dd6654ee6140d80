"""Which figures of a model are those of its users, and which those of probes."""

from dataclasses import replace
from typing import Final

import pytest

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.latency import Latencies
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.analysis.saturation import SaturationState
from phasewatch.backends.llamacpp.process import ProcessState, build_engines, fold_reading
from phasewatch.backends.llamacpp.reading import ReadingParser
from phasewatch.backends.ollama.runner.readings import combine_engines, fold_probe, serves_metrics
from phasewatch.scrape.http import Response
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer
from tests.support.targets import new_target

KEY: Final = EngineKey("a:latest", None)
TARGET: Final = new_target("o", "ollama", "http://h")

PROBED: Final = EngineSnapshot(
    KEY,
    phases=Phases(prefill_tokens_per_second=1000.0, decode_tokens_per_second=100.0),
    latencies=Latencies(time_to_first_token=Distribution(mean=0.2)),
    ceiling=Ceiling(weight_read_bytes=5e9),
    measurement_source=MeasurementSource.PROBE,
)
UNPROBED: Final = EngineSnapshot(KEY)
USED: Final = EngineSnapshot(
    EngineKey("another label", None),
    phases=Phases(decode_tokens_per_second=20.0, decode_throughput_tokens_per_second=40.0),
    load=Load(requests_running=2.0),
    token_stall_seconds=0.0,
    state=SaturationState.HEALTHY,
    measurement_source=MeasurementSource.TRAFFIC,
)
IDLE: Final = replace(
    USED,
    phases=Phases(decode_throughput_tokens_per_second=0.0, prefill_throughput_tokens_per_second=0.0),
    load=Load(requests_running=0.0),
)


def read(state: ProcessState, server: ScriptedLlamaServer, time: float, *, metrics: bool = True) -> ProcessState:
    """The state after one more full read."""
    page = Response(200, "text/plain", server.render_page(time).encode()) if metrics else Response(501, "", b"")
    slots = Response(200, "application/json", server.render_slots(time))
    return fold_reading(state, ReadingParser().parse(page, slots), ScrapeTiming(time, time, None), TARGET)


def test_a_model_whose_child_is_not_read_is_as_probes_see_it() -> None:
    for probed in (PROBED, UNPROBED):
        assert combine_engines(probed, None) is probed


def test_while_users_are_served_every_figure_is_of_theirs() -> None:
    for probed in (PROBED, UNPROBED):
        engine = combine_engines(probed, USED)
        assert engine.phases == USED.phases
        assert engine.latencies == USED.latencies
        assert engine.ceiling == USED.ceiling
        assert engine.measurement_source is MeasurementSource.TRAFFIC


def test_a_window_with_prefill_alone_is_of_users_too() -> None:
    prefill = replace(IDLE, phases=Phases(prefill_throughput_tokens_per_second=500.0))
    assert combine_engines(PROBED, prefill).phases == prefill.phases


def test_while_users_are_idle_speeds_are_of_probes_and_throughput_and_load_of_users() -> None:
    engine = combine_engines(PROBED, IDLE)
    assert engine.measurement_source is MeasurementSource.PROBE
    assert engine.phases.decode_tokens_per_second == 100.0
    assert engine.phases.prefill_tokens_per_second == 1000.0
    assert engine.phases.decode_throughput_tokens_per_second == 0.0
    assert engine.phases.prefill_throughput_tokens_per_second == 0.0
    assert engine.latencies == PROBED.latencies
    assert engine.ceiling == PROBED.ceiling
    assert engine.load == IDLE.load


def test_an_idle_model_that_was_never_probed_has_the_figures_of_its_users() -> None:
    engine = combine_engines(UNPROBED, IDLE)
    assert engine.measurement_source is MeasurementSource.TRAFFIC
    assert engine.phases == IDLE.phases


def test_the_label_is_that_of_the_inventory() -> None:
    for probed in (PROBED, UNPROBED):
        for watched in (USED, IDLE):
            assert combine_engines(probed, watched).key == KEY


@pytest.mark.parametrize("state", [*SaturationState, None])
def test_what_limits_a_model_is_not_known_unless_nothing_moves(state: SaturationState | None) -> None:
    for probed in (PROBED, UNPROBED):
        for watched in (USED, IDLE):
            shown = combine_engines(probed, replace(watched, state=state)).state
            assert shown is (state if state is SaturationState.STUCK else None)


def test_whether_a_child_shows_its_metrics_is_known_once_it_was_read() -> None:
    server = ScriptedLlamaServer((Job(0.0, 0.5, 400, 0.05),))
    assert serves_metrics(ProcessState()) is None
    assert serves_metrics(read(ProcessState(), server, 1.0)) is True
    assert serves_metrics(read(ProcessState(), server, 1.0, metrics=False)) is False


@pytest.mark.parametrize("metrics", [True, False])
def test_the_tokens_of_a_probe_are_not_in_the_window_after_it(*, metrics: bool) -> None:
    """A probe of 100 tokens per second, then a user's 20."""
    server = ScriptedLlamaServer((Job(0.0, 0.5, 350, 0.01), Job(6.0, 6.5, 400, 0.05)))
    state = ProcessState()
    for time in (1.0, 2.0, 3.0, 4.0, 5.0):
        state = fold_probe(read(state, server, time, metrics=metrics))
        assert build_engines(state, TARGET, time) == ()
    for time in (6.0, 7.0, 8.0, 9.0, 10.0):
        state = read(state, server, time, metrics=metrics)
    (engine,) = build_engines(state, TARGET, 10.0)
    rate = engine.phases.decode_throughput_tokens_per_second
    assert rate == pytest.approx((server.count_tokens(10.0) - 350) / 4.0, rel=0.01 if metrics else 0.15)
    assert engine.phases.decode_tokens_per_second == pytest.approx(20.0, rel=0.03)
