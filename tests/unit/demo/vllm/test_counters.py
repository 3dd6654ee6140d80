"""When vLLM counts what (0.32): each rule was seen in its sources or on a real server."""

import pytest

from phasewatch.demo.vllm.counters import Counters, Distribution, families
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence
from phasewatch.demo.vllm.settings import Settings
from phasewatch.demo.vllm.workload import Request, Workload

SETTINGS = Settings()
ANY = Workload(prompt=(1, 1), output=(1, 1), most=1)


def sequence(*, cached: int = 0, generated: int = 0, most: int = 200, preemptions: int = 0) -> Sequence:
    """Sent at 10, admitted at 12, first token at 13, newest token at 15."""
    request = Request(1, 10.0, 300, 0, 100, most, 0.0, ANY, waits=True)
    return Sequence(
        request,
        ready=10.0,
        cached=cached,
        scheduled=12.0,
        first=13.0,
        last=15.0,
        generated=generated,
        preemptions=preemptions,
    )


def number(counters: Counters, name: str, value: str = "") -> float:
    return counters.numbers[name, value]


def observed(counters: Counters, name: str) -> tuple[int, float]:
    histogram = counters.histograms[name]
    return sum(histogram.counts), histogram.sum


def test_an_observation_at_an_edge_is_below_it() -> None:
    histogram = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [2, 3, 4]
    assert histogram.sum == 12.0


@pytest.mark.parametrize(("length", "last"), [(512, 500.0), (1024, 1000.0), (2048, 2000.0), (8192, 5000.0)])
def test_buckets_for_tokens_end_at_the_longest_that_the_model_takes(length: int, last: float) -> None:
    (edges,) = (family.edges for family in families(length) if family.name == "request_prompt_tokens")
    assert edges[:4] == (1.0, 2.0, 5.0, 10.0)
    assert edges[-1] == last


def test_a_prompt_is_counted_with_the_first_token_and_not_again() -> None:
    counters = Counters(SETTINGS)
    first = sequence(cached=96)
    counters.count_token(first, 13.0)
    assert observed(counters, "time_to_first_token_seconds") == (1, 3.0)
    first.generated, first.last = 1, 13.0
    counters.count_token(first, 13.5)
    assert number(counters, "generation_tokens") == 2
    assert number(counters, "prompt_tokens") == 300
    assert number(counters, "prompt_tokens_cached") == 96
    assert number(counters, "prompt_tokens_by_source", "local_compute") == 204
    assert number(counters, "prompt_tokens_by_source", "local_cache_hit") == 96
    assert observed(counters, "inter_token_latency_seconds") == (1, 0.5)


def test_a_preemption_is_counted_with_the_next_token() -> None:
    counters = Counters(SETTINGS)
    one = sequence(generated=5, preemptions=2)
    assert number(counters, "num_preemptions") == 0
    counters.count_token(one, 16.0)
    assert number(counters, "num_preemptions") == 2
    one.told = 2
    counters.count_token(one, 17.0)
    assert number(counters, "num_preemptions") == 2


def test_the_times_of_a_request_are_those_between_its_events() -> None:
    counters = Counters(SETTINGS)
    counters.count_end(sequence(cached=100, generated=101, preemptions=1))
    assert {name: observed(counters, name) for name in counters.histograms if observed(counters, name)[0]} == {
        "request_prompt_tokens": (1, 300),
        "request_generation_tokens": (1, 101),
        "request_max_num_generation_tokens": (1, 101),
        "request_params_n": (1, 1),
        "request_params_max_tokens": (1, 200),
        "request_time_per_output_token_seconds": (1, 0.02),
        "e2e_request_latency_seconds": (1, 5.0),
        "request_queue_time_seconds": (1, 2.0),
        "request_inference_time_seconds": (1, 3.0),
        "request_prefill_time_seconds": (1, 1.0),
        "request_decode_time_seconds": (1, 2.0),
        "request_num_preemptions": (1, 1),
        "request_prefill_kv_computed_tokens": (1, 200),
    }


@pytest.mark.parametrize(("most", "reason"), [(100, "length"), (200, "stop")])
def test_an_answer_ends_by_itself_or_at_its_limit(most: int, reason: str) -> None:
    counters = Counters(SETTINGS)
    counters.count_end(sequence(generated=100, most=most))
    told = {value: found for (name, value), found in counters.numbers.items() if name == "request_success"}
    assert {value for value, found in told.items() if found} == {reason}


def test_an_answer_of_one_token_takes_no_time_per_token() -> None:
    counters = Counters(SETTINGS)
    one = sequence(generated=1)
    one.last = 13.0
    counters.count_end(one)
    assert observed(counters, "request_time_per_output_token_seconds") == (1, 0.0)


def test_gauges_are_those_of_the_scheduler_and_deferred_ones_do_not_wait_for_capacity() -> None:
    counters, scheduler = Counters(SETTINGS), Scheduler(SETTINGS)
    scheduler.add(sequence())
    scheduler.schedule(12.0)
    grammar = Request(2, 0.0, 10, 0, 5, 5, 90.0, ANY, waits=True)
    scheduler.add(Sequence(grammar, ready=90.0))
    scheduler.add(sequence())
    counters.show(scheduler)
    assert number(counters, "num_requests_running") == 1
    assert number(counters, "num_requests_waiting") == 2
    assert number(counters, "num_requests_waiting_by_reason", "capacity") == 1
    assert number(counters, "num_requests_waiting_by_reason", "deferred") == 1
    assert number(counters, "kv_cache_usage_perc") == pytest.approx(19 / 3199)


def test_an_engine_is_awake() -> None:
    told = {value: n for (name, value), n in Counters(SETTINGS).numbers.items() if name == "engine_sleep_state"}
    assert told == {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
