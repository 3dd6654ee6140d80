"""The window: what it covers, and all the ways in which it must not lie."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.samples import EngineKey, EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, PageWindow, append_page, extract_history

KEY = EngineKey("m", "0")


def sample(tokens: float = 0, **facts: float | Histogram | None) -> EngineSample:
    return replace(EngineSample(generation_tokens=tokens), **facts)  # type: ignore[arg-type]


def pushed(*steps: tuple[float, EngineSample], length: float = 60, window: PageWindow | None = None) -> PageWindow:
    window = window or PageWindow()
    for time, found in steps:
        window = append_page(window, Page(None, False, {KEY: found}), time, length)
    return window


def grown(window: PageWindow) -> EngineHistory | None:
    """The history, if it is long enough for anything to have grown."""
    past = extract_history(window, KEY)
    return past if past.seconds else None


def span(window: PageWindow) -> tuple[float, float]:
    return window.pages[0].time, window.pages[-1].time


def test_a_single_page_tells_no_increase() -> None:
    assert grown(pushed((0, sample(5)))) is None


def test_the_increase_is_that_between_the_ends() -> None:
    found = grown(pushed((0, sample(5)), (1, sample(6)), (2.5, sample(9))))
    assert found is not None
    assert (found.seconds, found.growth.generation_tokens) == (2.5, 4)


@pytest.mark.parametrize("interval", [0.5, 1.0, 5.0, 15.0, 30.0, 60.0])
def test_the_window_keeps_its_length(interval: float) -> None:
    window = pushed(*((interval * count, sample(count)) for count in range(300)))
    start, end = span(window)
    assert end - start == 60


def test_scrapes_that_are_not_quite_on_time_do_not_make_the_window_jump() -> None:
    lengths = []
    window = PageWindow()
    for count in range(300):
        window = pushed((count + (0.004 if count % 2 else 0.0), sample(count)), window=window)
        lengths.append(span(window)[1] - span(window)[0])
    assert all(length == pytest.approx(60, abs=0.01) for length in lengths[60:])


def test_a_scrape_from_before_a_long_gap_does_not_stand_in_for_the_start_of_the_window() -> None:
    window = pushed(*((count, sample(count)) for count in range(10)), (200, sample(500)))
    assert span(window) == (200, 200)
    window = pushed((201, sample(501)), window=window)
    assert span(window) == (200, 201)


def test_a_short_gap_is_covered() -> None:
    window = pushed(*((count, sample(count)) for count in range(100)), (120, sample(300)))
    assert span(window) == (60, 120)


COUNTS_DOWN = [
    {"generation_tokens": 4.0},
    {"preemptions": 1.0},
    {"time_to_first_token": Histogram(1.0, 1.0)},
    {"inter_token_latency": Histogram(9.0, 9.0, (0.1, float("inf")), (1.0, 9.0))},
    {"created": 101.0},
]


@pytest.mark.parametrize("after", COUNTS_DOWN)
def test_a_counter_that_falls_or_began_anew_restarts_the_window_of_the_whole_target(
    after: dict[str, float | Histogram],
) -> None:
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
    assert span(window) == (2, 2)
    assert extract_history(window, other).growth == EngineSample()


def test_another_start_of_the_process_restarts_the_window_even_if_every_counter_is_higher() -> None:
    window = append_page(PageWindow(), Page(1000.0, True, {KEY: sample(5)}), 0, 60)
    window = append_page(window, Page(1010.0, True, {KEY: sample(50)}), 1, 60)
    assert span(window) == (1, 1)


def test_a_falling_sum_drops_that_histogram_only_until_it_has_left_the_window() -> None:
    def step(time: float, queue: float) -> tuple[float, EngineSample]:
        return time, sample(time, queue_time=Histogram(queue, time), prefill_time=Histogram(time, time))

    window = pushed(step(0, 5), step(1, 6), step(2, -1990), step(3, -1989), length=10)
    found = grown(window)
    assert found is not None
    assert found.growth.queue_time is None
    assert found.growth.generation_tokens == 3
    assert found.growth.prefill_time is not None
    window = pushed(*(step(time, -1992 + time) for time in range(4, 13)), window=window, length=10)
    found = grown(window)
    assert span(window) == (2, 12)
    assert found is not None
    assert found.growth.queue_time == Histogram(10, 10)


def test_a_histogram_that_its_backend_calls_corrupt_is_dropped_alone() -> None:
    def step(time: float) -> Page:
        histogram = Histogram(time, time)
        return Page(None, False, {KEY: sample(time, queue_time=histogram, prefill_time=histogram)})

    window = append_page(PageWindow(), step(0), 0, 60)
    window = append_page(window, step(1), 1, 60, {KEY: ("prefill_time",)})
    past = extract_history(append_page(window, step(2), 2, 60), KEY)
    assert past.growth.prefill_time is None
    assert past.growth.queue_time == Histogram(2, 2)


def test_a_gap_that_empties_the_window_is_no_restart() -> None:
    window = pushed((0, sample(5)), (1, sample(6)), (200, sample(7)))
    assert (span(window), window.restarts) == ((200, 200), 0)
    assert pushed((201, sample(1)), window=window).restarts == 1


def test_a_series_that_appears_late_restarts_the_engine_and_never_counts_from_nothing() -> None:
    late = sample(7, preemptions=900.0)
    window = pushed((0, sample(5)), (1, sample(6)), (2, late))
    assert grown(window) is None
    found = grown(pushed((3, replace(late, preemptions=901.0)), window=window))
    assert found is not None
    assert (found.seconds, found.growth.preemptions) == (1, 1)


def test_a_series_that_is_missing_once_gives_no_jump_when_it_returns() -> None:
    full = sample(7, preemptions=900.0)
    window = pushed((0, full), (1, full), (2, sample(7)))
    found = grown(window)
    assert found is not None
    assert found.growth.preemptions is None
    assert grown(pushed((3, full), window=window)) is None


def test_other_buckets_restart_the_engine() -> None:
    def step(time: float, *edges: float) -> tuple[float, EngineSample]:
        return time, sample(time, queue_time=Histogram(0, 0, edges, (0.0,) * len(edges)))

    assert grown(pushed(step(0, 1, 2), step(1, 1, 2), step(2, 1, 3))) is None


def test_an_engine_that_was_away_starts_anew() -> None:
    other = EngineKey("n", "0")
    window = pushed((0, sample(5)))
    window = append_page(window, Page(None, False, {other: sample(1)}), 1, 60)
    window = pushed((2, sample(9)), window=window)
    assert grown(window) is None


STEP = st.tuples(st.floats(0.01, 40), st.integers(0, 1000), st.booleans())


@given(st.lists(STEP, min_size=1, max_size=40))
def test_whatever_happens_no_increase_is_negative_or_longer_than_the_window(
    steps: list[tuple[float, int, bool]],
) -> None:
    window, time, tokens = PageWindow(), 0.0, 0.0
    for seconds, more, restart in steps:
        time += seconds
        tokens = more if restart else tokens + more
        window = pushed((time, sample(tokens)), window=window)
        found = grown(window)
        if found is not None:
            assert 0 < found.seconds <= 75
            assert found.growth.generation_tokens is not None
            assert found.growth.generation_tokens >= 0
