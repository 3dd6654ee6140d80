"""Work, inactivity and stall of an engine."""

from dataclasses import replace

from phasewatch.analysis.progress import (
    Progress,
    advance_progress,
    has_worked,
    measure_inactivity,
    measure_token_stall,
)
from phasewatch.analysis.samples import EngineSample, Histogram

WORKED = EngineSample(
    prompt_tokens=900.0,
    generation_tokens=500.0,
    estimated_flops_per_gpu=1e12,
    iteration_tokens=Histogram(0.0, 90.0),
    time_to_first_token=Histogram(0.0, 9.0),
    inter_token_latency=Histogram(0.0, 491.0),
    request_latency=Histogram(0.0, 8.0),
    preemptions=3.0,
    rejections=2.0,
    prefix_cache_queries=900.0,
    requests_running=1.0,
    requests_waiting=4.0,
    kv_cache_usage=0.5,
)


def follow(*samples: EngineSample) -> list[Progress | None]:
    """The progress after each of the samples, which are a second apart."""
    progress: Progress | None = None
    result = []
    for time, sample in enumerate(samples):
        progress = advance_progress(progress, sample, float(time))
        result.append(progress)
    return result


def stalls(*steps: tuple[float | None, float | None]) -> list[float | None]:
    """Generated tokens and running requests at each second -> the stall after it."""
    samples = (EngineSample(generation_tokens=tokens, requests_running=running) for tokens, running in steps)
    return [measure_token_stall(progress, float(time)) for time, progress in enumerate(follow(*samples))]


def inactivities(*samples: EngineSample) -> list[float | None]:
    return [measure_inactivity(progress, float(time)) for time, progress in enumerate(follow(*samples))]


def test_a_stall_grows_while_it_lasts_and_ends_with_the_next_token() -> None:
    assert stalls((0, 0), (5, 1), (5, 1), (5, 1), (6, 1)) == [None, 0, 1, 2, 0]


def test_a_stall_is_absent_while_nothing_runs() -> None:
    assert stalls((5, 1), (5, 0), (5, 0), (5, None)) == [None, None, None, None]


def test_idle_time_before_a_request_is_not_part_of_its_stall() -> None:
    assert stalls((5, 0), (5, 0), (5, 0), (5, 1), (5, 1)) == [None, None, None, 0, 1]


def test_the_first_scrape_has_no_stall() -> None:
    assert stalls((5, 1), (5, 1)) == [None, 1]


def test_a_first_request_that_never_gets_a_token_stalls() -> None:
    assert stalls((0, 0), (0, 1), (0, 1), (0, 1)) == [None, 0, 1, 2]


def test_a_page_without_counters_of_work_has_neither_stall_nor_inactivity() -> None:
    assert follow(EngineSample(requests_running=1.0)) == [None]
    assert measure_token_stall(None, 9.0) is None
    assert measure_inactivity(None, 9.0) is None


def test_an_engine_that_never_generates_has_no_token_stall_and_is_inactive_once_nothing_moves() -> None:
    embedding = replace(WORKED, generation_tokens=0.0, requests_running=1.0)
    samples = [replace(embedding, prompt_tokens=900.0 + 10 * min(second, 2)) for second in range(5)]
    assert [measure_token_stall(progress, float(time)) for time, progress in enumerate(follow(*samples))] == [None] * 5
    assert inactivities(*samples) == [0, 0, 0, 1, 2]


def test_every_counter_of_work_is_progress() -> None:
    moved = (
        {"prompt_tokens": 901.0},
        {"generation_tokens": 501.0},
        {"estimated_flops_per_gpu": 2e12},
        {"iteration_tokens": Histogram(0.0, 91.0)},
        {"time_to_first_token": Histogram(0.0, 10.0)},
        {"inter_token_latency": Histogram(0.0, 492.0)},
        {"request_latency": Histogram(0.0, 9.0)},
        {"decode_seconds": 1.0},
        {"prefill_seconds": 1.0},
    )
    for change in moved:
        assert has_worked(WORKED, replace(WORKED, **change)), change
        assert inactivities(WORKED, WORKED, replace(WORKED, **change)) == [0, 1, 0], change


def test_neither_gauges_nor_refusals_nor_lookups_are_progress() -> None:
    idle = {"requests_running": 2.0, "requests_waiting": 9.0, "kv_cache_usage": 0.9}
    for change in (idle, {"rejections": 9.0}, {"prefix_cache_queries": 990.0}, {"preemptions": 4.0}):
        assert not has_worked(WORKED, replace(WORKED, **change)), change  # type: ignore[arg-type]


def test_a_queue_in_front_of_nothing_is_inactive_and_an_idle_engine_is_not() -> None:
    queue = replace(WORKED, requests_running=0.0)
    idle = replace(queue, requests_waiting=0.0)
    assert inactivities(idle, idle, queue, queue, queue, idle) == [None, None, 0, 1, 2, None]


def test_a_paused_queue_is_no_part_of_the_stall_of_what_runs_afterwards() -> None:
    queue = replace(WORKED, requests_running=0.0)
    progress = follow(queue, queue, queue, WORKED, WORKED)
    assert [measure_token_stall(one, float(time)) for time, one in enumerate(progress)] == [None, None, None, 0, 1]


def test_a_counter_that_is_missing_once_neither_ends_a_stall_nor_hides_it() -> None:
    gaps = (replace(WORKED, iteration_tokens=None), replace(WORKED, generation_tokens=None))
    for gap in gaps:
        progress = follow(WORKED, WORKED, gap, WORKED, gap)
        assert [measure_token_stall(one, float(time)) for time, one in enumerate(progress)] == [None, 1, 2, 3, 4]


def test_operations_alone_do_not_show_that_an_engine_never_generates() -> None:
    first = EngineSample(requests_running=1.0, generation_tokens=0.0, estimated_flops_per_gpu=0.0)
    progress = follow(first, *[replace(first, estimated_flops_per_gpu=1e12)] * 3)
    assert [measure_token_stall(one, float(time)) for time, one in enumerate(progress)] == [None, 0, 1, 2]


def test_the_most_running_requests_are_remembered() -> None:
    seen = follow(*(replace(WORKED, requests_running=count) for count in (2.0, 6.0, None, 1.0)))
    assert [one.most_running for one in seen if one] == [2, 6, 6, 6]
