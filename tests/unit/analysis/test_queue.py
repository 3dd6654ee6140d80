"""Queue, cache and stall."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.queue import (
    Progress,
    advance_progress,
    fit_slope,
    measure_load,
    measure_token_stall,
)
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory

CAPACITY = 4000.0


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
    load = measure_load(history(0, 40, 0, 0), CAPACITY)
    assert (load.requests_waiting, load.requests_waiting_peak) == (0, 40)


def test_the_peak_of_the_cache_comes_from_every_scrape() -> None:
    past = history(0, 0, 0)
    samples = (past.samples[0], replace(past.samples[1], kv_cache_usage=0.97), past.samples[2])
    load = measure_load(replace(past, samples=samples), CAPACITY)
    assert (load.kv_cache_usage_ratio, load.kv_cache_usage_ratio_peak) == (0.25, 0.97)


def test_growth_is_the_slope_of_the_queue() -> None:
    assert measure_load(history(1, 3, 5, 7), CAPACITY).requests_waiting_growth_per_second == 2
    assert measure_load(history(4), CAPACITY).requests_waiting_growth_per_second is None
    assert measure_load(history(None, None), CAPACITY).requests_waiting_growth_per_second is None


@given(st.floats(-50, 50), st.floats(-1000, 1000), st.lists(st.integers(0, 600), min_size=2, max_size=60, unique=True))
def test_the_slope_of_a_line_is_that_of_the_line(rise: float, offset: float, times: list[int]) -> None:
    assert fit_slope([(float(time), offset + rise * time) for time in times]) == pytest.approx(rise, abs=1e-6)


def test_used_tokens_and_the_context_of_a_request_follow_from_usage() -> None:
    load = measure_load(history(0, usage=0.25, running=2), CAPACITY)
    assert (load.kv_cache_capacity_tokens, load.kv_cache_used_tokens, load.context_tokens) == (4000, 1000, 500)


def test_without_running_requests_there_is_no_context_length() -> None:
    assert measure_load(history(0, running=0), CAPACITY).context_tokens is None


def test_used_tokens_need_the_usage() -> None:
    assert measure_load(history(0, usage=None), CAPACITY).kv_cache_used_tokens is None


def test_preemptions_are_a_rate() -> None:
    past = history(0, 0, 0, 0, 0)
    assert measure_load(past, CAPACITY).preemptions_per_second == 1


def stalls(*steps: tuple[float, float | None]) -> list[float | None]:
    """Tokens and running requests at each second -> the stall after it."""
    progress: Progress | None = None
    result = []
    for time, (tokens, running) in enumerate(steps):
        progress = advance_progress(
            progress, EngineSample(generation_tokens=tokens, requests_running=running), float(time)
        )
        result.append(measure_token_stall(progress, float(time)))
    return result


def test_a_stall_grows_while_it_lasts_and_ends_with_the_next_token() -> None:
    assert stalls((0, 0), (5, 1), (5, 1), (5, 1), (6, 1)) == [None, 0, 1, 2, 0]


def test_a_stall_is_absent_while_nothing_runs() -> None:
    assert stalls((5, 1), (5, 0), (5, 0), (5, None)) == [None, None, None, None]


def test_idle_time_before_a_request_is_not_part_of_its_stall() -> None:
    assert stalls((5, 0), (5, 0), (5, 0), (5, 1), (5, 1)) == [None, None, None, 0, 1]


def test_the_first_scrape_has_no_stall() -> None:
    assert stalls((5, 1), (5, 1)) == [None, 1]


def test_a_page_without_tokens_has_no_stall() -> None:
    assert advance_progress(None, EngineSample(requests_running=1.0), 0.0) is None
