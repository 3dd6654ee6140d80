"""The window: the pages that it covers, growth over it, restarts and gaps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.samples import EngineKey, EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, PageWindow, append_page, extract_history

KEY = EngineKey("m", "0")


def sample(tokens: float = 0, **fields: float | Histogram | None) -> EngineSample:
    return replace(EngineSample(generation_tokens=tokens), **fields)  # type: ignore[arg-type]


def append_samples(
    *steps: tuple[float, EngineSample], length: float = 60, window: PageWindow | None = None
) -> PageWindow:
    window = window or PageWindow()
    for time, engine_sample in steps:
        window = append_page(window, Page(None, False, {KEY: engine_sample}), time, length)
    return window


def find_history(window: PageWindow) -> EngineHistory | None:
    """The history of the engine; None for a single scrape."""
    past = extract_history(window, KEY)
    return past if past.seconds else None


def span(window: PageWindow) -> tuple[float, float]:
    return window.pages[0].time, window.pages[-1].time


def test_a_single_page_has_no_growth() -> None:
    assert find_history(append_samples((0, sample(5)))) is None


def test_growth_is_the_difference_between_both_ends() -> None:
    history = find_history(append_samples((0, sample(5)), (1, sample(6)), (2.5, sample(9))))
    assert history is not None
    assert (history.seconds, history.growth.generation_tokens) == (2.5, 4)


def test_the_window_has_its_nominal_length_at_any_interval() -> None:
    for interval in (0.5, 1.0, 5.0, 15.0, 30.0, 60.0):
        window = append_samples(*((interval * count, sample(count)) for count in range(300)))
        start, end = span(window)
        assert end - start == 60, interval


def test_jitter_of_the_scrapes_does_not_change_the_length_of_the_window() -> None:
    lengths = []
    window = PageWindow()
    for count in range(300):
        window = append_samples((count + (0.004 if count % 2 else 0.0), sample(count)), window=window)
        lengths.append(span(window)[1] - span(window)[0])
    assert all(length == pytest.approx(60, abs=0.01) for length in lengths[60:])


def test_a_page_from_before_a_long_gap_is_not_the_start_of_the_window() -> None:
    window = append_samples(*((count, sample(count)) for count in range(10)), (200, sample(500)))
    assert span(window) == (200, 200)
    window = append_samples((201, sample(501)), window=window)
    assert span(window) == (200, 201)


def test_a_short_gap_is_covered() -> None:
    window = append_samples(*((count, sample(count)) for count in range(100)), (120, sample(300)))
    assert span(window) == (60, 120)


COUNTS_DOWN = [
    {"generation_tokens": 4.0},
    {"preemptions": 1.0},
    {"time_to_first_token": Histogram(1.0, 1.0)},
    {"inter_token_latency": Histogram(9.0, 9.0, (0.1, float("inf")), (1.0, 9.0))},
    {"created": 101.0},
]


def test_a_falling_counter_or_a_new_creation_time_restarts_the_window_of_the_target() -> None:
    for after in COUNTS_DOWN:
        other = EngineKey("m", "1")
        before = sample(
            5,
            preemptions=2.0,
            time_to_first_token=Histogram(1.0, 2.0),
            inter_token_latency=Histogram(8.0, 9.0, (0.1, float("inf")), (2.0, 9.0)),
            created=100.0,
        )
        window = append_page(PageWindow(), Page(None, False, {KEY: before, other: before}), 0, 60)
        window = append_page(window, Page(None, False, {KEY: before, other: before}), 1, 60)
        window = append_page(window, Page(None, False, {KEY: replace(before, **after), other: before}), 2, 60)  # type: ignore[arg-type]
        assert span(window) == (2, 2), after
        assert extract_history(window, other).growth == EngineSample(), after


def test_a_new_process_start_restarts_the_window_even_if_all_counters_are_higher() -> None:
    window = append_page(PageWindow(), Page(1000.0, True, {KEY: sample(5)}), 0, 60)
    window = append_page(window, Page(1010.0, True, {KEY: sample(50)}), 1, 60)
    assert span(window) == (1, 1)


def test_the_start_of_another_process_on_a_merged_page_is_not_a_restart() -> None:
    own = sample(5, created=990.0)
    window = append_page(PageWindow(), Page(1000.0, False, {KEY: own}), 0, 60)
    window = append_page(window, Page(1010.0, False, {KEY: own}), 1, 60)
    assert (span(window), window.restarts) == ((0, 1), 0)
    window = append_page(window, Page(1010.0, False, {KEY: replace(own, created=1009.0)}), 2, 60)
    assert window.restarts == 1


def test_a_start_time_that_changes_while_counters_go_on_is_another_programs() -> None:
    def fold(*tokens: float) -> int:
        window = PageWindow()
        for second, count in enumerate(tokens):
            window = append_page(window, Page(1000.0 + second, False, {KEY: sample(count)}), second, 60)
        return window.restarts

    assert fold(500, 500, 510) == 0
    assert fold(500, 40) == 1
    assert fold(5, 50) == 1


def test_a_falling_sum_drops_its_histogram_until_it_has_left_the_window() -> None:
    def step(time: float, queue: float) -> tuple[float, EngineSample]:
        return time, sample(time, queue_time=Histogram(queue, time), prefill_time=Histogram(time, time))

    window = append_samples(step(0, 5), step(1, 6), step(2, -1990), step(3, -1989), length=10)
    history = find_history(window)
    assert history is not None
    assert history.growth.queue_time is None
    assert history.growth.generation_tokens == 3
    assert history.growth.prefill_time is not None
    window = append_samples(*(step(time, -1992 + time) for time in range(4, 13)), window=window, length=10)
    history = find_history(window)
    assert span(window) == (2, 12)
    assert history is not None
    assert history.growth.queue_time == Histogram(10, 10)


def test_a_histogram_that_its_backend_calls_corrupt_is_dropped_alone() -> None:
    def step(time: float) -> Page:
        histogram = Histogram(time, time)
        return Page(None, False, {KEY: sample(time, queue_time=histogram, prefill_time=histogram)})

    window = append_page(PageWindow(), step(0), 0, 60)
    window = append_page(window, step(1), 1, 60, {KEY: ("prefill_time",)})
    past = extract_history(append_page(window, step(2), 2, 60), KEY)
    assert past.growth.prefill_time is None
    assert past.growth.queue_time == Histogram(2, 2)


def test_a_gap_that_empties_the_window_is_not_a_restart() -> None:
    window = append_samples((0, sample(5)), (1, sample(6)), (200, sample(7)))
    assert (span(window), window.restarts) == ((200, 200), 0)
    assert append_samples((201, sample(1)), window=window).restarts == 1


def test_a_counter_that_appears_in_a_known_engine_was_0_before() -> None:
    late = sample(7, preemptions=40.0, queue_time=Histogram(6.0, 3.0, (1.0, float("inf")), (2.0, 3.0)))
    window = append_samples((0, sample(5)), (1, sample(6)), (2, late))
    history = find_history(window)
    assert history is not None
    assert (history.seconds, history.growth.generation_tokens, history.growth.preemptions) == (2, 2, 40)
    assert history.growth.queue_time == late.queue_time
    history = find_history(append_samples((3, replace(late, preemptions=41.0)), window=window))
    assert history is not None
    assert (history.seconds, history.growth.preemptions) == (3, 41)


def test_a_counter_that_is_there_when_an_engine_appears_was_not_0_before() -> None:
    late = sample(7, preemptions=900.0)
    window = append_page(PageWindow(), Page(None, False, {EngineKey("n", "0"): sample(1)}), 0, 60)
    window = append_samples((1, late), (2, replace(late, preemptions=901.0)), window=window)
    history = find_history(window)
    assert history is not None
    assert (history.seconds, history.growth.preemptions) == (1, 1)


def test_a_series_that_is_missing_once_does_not_jump_when_it_returns() -> None:
    full = sample(7, preemptions=900.0)
    window = append_samples((0, full), (1, full), (2, sample(7)))
    history = find_history(window)
    assert history is not None
    assert history.growth.preemptions is None
    assert find_history(append_samples((3, full), window=window)) is None


def test_changed_buckets_restart_the_history_of_their_engine() -> None:
    def step(time: float, *upper_bounds: float) -> tuple[float, EngineSample]:
        return time, sample(time, queue_time=Histogram(0, 0, upper_bounds, (0.0,) * len(upper_bounds)))

    assert find_history(append_samples(step(0, 1, 2), step(1, 1, 2), step(2, 1, 3))) is None


def test_an_engine_that_was_missing_from_a_page_starts_again() -> None:
    other = EngineKey("n", "0")
    window = append_samples((0, sample(5)))
    window = append_page(window, Page(None, False, {other: sample(1)}), 1, 60)
    window = append_samples((2, sample(9)), window=window)
    assert find_history(window) is None


STEP = st.tuples(st.floats(0.01, 40), st.integers(0, 1000), st.booleans())


@given(st.lists(STEP, min_size=1, max_size=40))
def test_growth_is_never_negative_nor_over_more_than_the_window(
    steps: list[tuple[float, int, bool]],
) -> None:
    window, time, tokens = PageWindow(), 0.0, 0.0
    for seconds, more, restart in steps:
        time += seconds
        tokens = more if restart else tokens + more
        window = append_samples((time, sample(tokens)), window=window)
        history = find_history(window)
        if history is not None:
            assert 0 < history.seconds <= 75
            assert history.growth.generation_tokens is not None
            assert history.growth.generation_tokens >= 0
