"""The state of one process: what a restart, a sleep and a cache of its own change."""

import pytest

from phasewatch.backends.llamacpp.facts import ProcessFacts, Props
from phasewatch.backends.llamacpp.process import ProcessState, build_engines, fold_failure, fold_reading, is_stuck
from phasewatch.backends.llamacpp.reading import Reading, ReadingParser
from phasewatch.backends.llamacpp.slots import Slot
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.scrape.http import Response
from phasewatch.snapshot.health import ScrapeTiming
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer
from tests.support.targets import new_target

TARGET = new_target("t", "llamacpp", "http://a.invalid")
BUSY = ScriptedLlamaServer((Job(0.0, 1.0, 4000, 0.05),))
TIMEOUT = ScrapeError(Reason.TIMEOUT, "late")


def fold(state: ProcessState, reading: Reading, time: float) -> ProcessState:
    return fold_reading(state, reading, ScrapeTiming(time, time, None), TARGET)


def watch(server: ScriptedLlamaServer, start: int, end: int, state: ProcessState | None = None) -> ProcessState:
    state, parser = state or ProcessState(facts=ProcessFacts("tiny", Props(slots=2, context=2048))), ReadingParser()
    for time in map(float, range(start, end)):
        page = Response(200, "", server.render_page(time).encode(), start=server.start)
        state = fold(state, parser.parse(page, Response(200, "", server.render_slots(time))), time)
    return state


def test_a_restart_clears_the_window_and_keeps_what_is_known_of_the_model() -> None:
    before = watch(BUSY, 0, 20)
    new = ScriptedLlamaServer((Job(20.0, 21.0, 400, 0.1),), start="2000", before=10**5)
    after = watch(new, 20, 30, before)
    assert after.facts == before.facts
    (engine,) = build_engines(after, TARGET, 30.0)
    assert engine.phases.decode_throughput_tokens_per_second == pytest.approx(10, rel=0.15)


def test_a_refusal_is_the_end_of_a_process_and_a_late_page_is_not() -> None:
    state = watch(BUSY, 0, 20)
    assert fold_failure(state, TIMEOUT).pages == state.pages
    assert fold_failure(state, ScrapeError(Reason.CONNECT, "refused", refused=True)).pages.window.newest is None
    assert fold_failure(state, ScrapeError(Reason.CONNECT, "broke off")).pages == state.pages


def test_only_a_silence_of_a_minute_that_began_in_decode_is_stuck() -> None:
    state = fold_failure(watch(BUSY, 0, 20), TIMEOUT)
    assert [is_stuck(state, now) for now in (20.0, 78.9, 79.1)] == [False, False, True]
    broken = fold_failure(watch(BUSY, 0, 20), ScrapeError(Reason.CONNECT, "broke off"))
    prefill = fold_failure(watch(ScriptedLlamaServer((Job(0.0, 900.0, 10, 0.05),)), 0, 20), TIMEOUT)
    mixed = ScriptedLlamaServer((Job(0.0, 1.0, 4000, 0.05), Job(0.0, 900.0, 10, 0.05, slot=1)))
    for other in (broken, prefill, fold_failure(watch(mixed, 0, 20), TIMEOUT), watch(BUSY, 0, 20), ProcessState()):
        assert not is_stuck(other, 500.0)


def test_what_a_process_does_that_gives_no_page_is_not_shown() -> None:
    state = watch(BUSY, 0, 20)
    assert len(build_engines(state, TARGET, 20.0)) == 1
    assert build_engines(fold_failure(state, TIMEOUT), TARGET, 25.0) == ()
    assert build_engines(fold(state, Reading(resting=True), 25.0), TARGET, 25.0) == ()
    (stuck,) = build_engines(fold_failure(state, TIMEOUT), TARGET, 200.0)
    assert stuck.token_stall_seconds == pytest.approx(181)
    assert stuck.phases.decode_throughput_tokens_per_second is None


def test_a_sleeping_process_has_no_requests_and_its_window_goes_on() -> None:
    state = watch(ScriptedLlamaServer((Job(0.0, 1.0, 100, 0.05),)), 0, 20)
    for time in (20.0, 25.0, 30.0):
        state = fold(state, Reading(asleep=True), time)
    (engine,) = build_engines(state, TARGET, 30.0)
    assert engine.asleep
    assert engine.load.requests_running == 0
    # It generated 100 tokens in 30 s, and the first scrape saw none of them.
    assert engine.phases.decode_throughput_tokens_per_second == pytest.approx(100 / 30)


def test_slots_that_hold_more_than_one_context_together_have_caches_of_their_own() -> None:
    state = ProcessState(facts=ProcessFacts("tiny", Props(slots=2, context=1000)))
    for time, held in ((0.0, 400), (1.0, 400), (2.0, 700), (3.0, 300)):
        slots = tuple(Slot(index, True, 1000, 5, held, 10, 5) for index in (0, 1))
        state = fold(state, Reading(slots=slots), time)
        (engine,) = build_engines(state, TARGET, time)
        assert engine.load.kv_cache_capacity_tokens == (2000 if time >= 2 else None), time
        assert engine.load.kv_cache_used_tokens == 2 * held


def test_a_build_that_does_not_show_tokens_held_has_no_cache_usage() -> None:
    state = ProcessState(facts=ProcessFacts("tiny", Props(slots=1, context=1000)))
    for time in (0.0, 1.0):
        state = fold(state, Reading(slots=(Slot(0, True, 1000, 5, None, None, 5),)), time)
    (engine,) = build_engines(state, TARGET, 1.0)
    assert engine.load.kv_cache_usage_ratio is None
    assert engine.load.context_tokens is None
    assert engine.load.requests_running == 1
