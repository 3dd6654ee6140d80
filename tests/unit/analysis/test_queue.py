"""Queue and cache."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.queue import KvCacheSize, Load, fit_slope, measure_load
from phasewatch.analysis.samples import EngineSample, Histogram
from phasewatch.analysis.window import EngineHistory

CAPACITY = 4000.0
SIZE = KvCacheSize(CAPACITY)


def history(*waiting: float | None, usage: float | None = 0.25, running: float = 2.0) -> EngineHistory:
    samples = tuple(
        EngineSample(
            requests_running=running,
            requests_waiting=count,
            kv_cache_usage=usage,
            preemptions=float(index),
        )
        for index, count in enumerate(waiting)
    )
    return EngineHistory(tuple(map(float, range(len(waiting)))), samples, frozenset())


def test_a_short_burst_stays_visible_as_the_peak() -> None:
    load = measure_load(history(0, 40, 0, 0), SIZE)
    assert (load.requests_waiting, load.requests_waiting_peak) == (0, 40)


def test_the_peak_of_the_cache_comes_from_every_scrape() -> None:
    past = history(0, 0, 0)
    samples = (past.samples[0], replace(past.samples[1], kv_cache_usage=0.97), past.samples[2])
    load = measure_load(replace(past, samples=samples), SIZE)
    assert (load.kv_cache_usage_ratio, load.kv_cache_usage_ratio_peak) == (0.25, 0.97)


def test_growth_is_the_slope_of_the_queue() -> None:
    assert measure_load(history(1, 3, 5, 7), SIZE).requests_waiting_growth_per_second == 2
    assert measure_load(history(4), SIZE).requests_waiting_growth_per_second is None
    assert measure_load(history(None, None), SIZE).requests_waiting_growth_per_second is None


@given(st.floats(-50, 50), st.floats(-1000, 1000), st.lists(st.integers(0, 600), min_size=2, max_size=60, unique=True))
def test_the_slope_of_a_line_is_that_of_the_line(rise: float, offset: float, times: list[int]) -> None:
    assert fit_slope([(float(time), offset + rise * time) for time in times]) == pytest.approx(rise, abs=1e-6)


def test_used_tokens_and_the_context_of_a_request_follow_from_usage() -> None:
    load = measure_load(history(0, usage=0.25, running=2), SIZE)
    assert (load.kv_cache_capacity_tokens, load.kv_cache_used_tokens, load.context_tokens) == (4000, 1000, 500)


def test_without_running_requests_there_is_no_context_length() -> None:
    assert measure_load(history(0, running=0), SIZE).context_tokens is None


def test_used_tokens_need_the_usage() -> None:
    assert measure_load(history(0, usage=None), SIZE).kv_cache_used_tokens is None


def test_preemptions_are_a_rate() -> None:
    past = history(0, 0, 0, 0, 0)
    assert measure_load(past, SIZE).preemptions_per_second == 1


def served(
    *,
    used: float,
    running: float,
    waiting: float = 0.0,
    prompt: float = 60.0,
    output: float = 40.0,
    hits: float = 0.0,
    size: KvCacheSize = SIZE,
) -> Load:
    """The load of an engine whose ten finished requests had these lengths, in tokens."""
    sample = EngineSample(
        requests_running=running,
        requests_waiting=waiting,
        kv_cache_usage=used / CAPACITY,
        prompt_tokens=10 * prompt,
        time_to_first_token=Histogram(1.0, 10.0),
        request_output_tokens=Histogram(10 * output, 10.0),
    )
    return measure_load(EngineHistory((0.0,), (sample,)), size, hits)


def test_the_headroom_leaves_room_for_what_the_running_requests_will_grow_to() -> None:
    assert served(used=0, running=0).kv_cache_headroom_requests == 40
    assert served(used=600, running=10).kv_cache_headroom_requests == 30
    assert served(used=1000, running=10).kv_cache_headroom_requests == 30
    assert served(used=3000, running=38).kv_cache_headroom_requests == 2


def test_requests_that_hold_more_than_finished_ones_did_show_how_long_requests_are() -> None:
    assert served(used=3000, running=10).kv_cache_headroom_requests == 3


def test_requests_that_wait_come_before_further_ones() -> None:
    assert served(used=600, running=10, waiting=12).kv_cache_headroom_requests == 18


def test_the_headroom_is_never_negative() -> None:
    assert served(used=3900, running=39, waiting=300).kv_cache_headroom_requests == 0
    assert served(used=4000, running=60).kv_cache_headroom_requests == 0


def test_requests_take_whole_blocks_and_what_is_reserved_is_not_theirs() -> None:
    assert served(used=0, running=0, size=KvCacheSize(CAPACITY, block=64)).kv_cache_headroom_requests == 31
    assert (
        served(used=0, running=0, size=KvCacheSize(CAPACITY, block=100, reserved=100)).kv_cache_headroom_requests == 39
    )


def test_shared_parts_of_prompts_take_no_further_room() -> None:
    assert served(used=530, running=10, hits=0.5).kv_cache_headroom_requests == 46


def test_hits_that_the_usage_does_not_show_to_be_shared_take_room() -> None:
    """Ten conversations hold 80 tokens each: their hits were on their own earlier turns."""
    assert served(used=800, running=10, hits=0.5).kv_cache_headroom_requests == 30
    assert served(used=0, running=0, hits=0.9).kv_cache_headroom_requests == 40
    assert served(used=80, running=1, hits=0.9).kv_cache_headroom_requests == 39


def test_the_headroom_needs_finished_requests_and_the_admission_of_a_prompt_does_not() -> None:
    sample = EngineSample(
        requests_running=1.0, kv_cache_usage=0.5, prompt_tokens=60.0, time_to_first_token=Histogram(1.0, 1.0)
    )
    load = measure_load(EngineHistory((0.0,), (sample,)), SIZE)
    assert (load.kv_cache_headroom_requests, load.kv_cache_next_request_fits) == (None, 1)


def test_a_prompt_is_admitted_if_the_whole_of_it_fits() -> None:
    assert served(used=3940, running=39).kv_cache_next_request_fits == 1
    assert served(used=3941, running=39).kv_cache_next_request_fits == 0
