"""When vLLM updates each metric (0.32): every rule was found in its sources or observed on a real server."""

import pytest

from phasewatch.demo.common.workload import Request, Workload
from phasewatch.demo.vllm.counters import Counters, HistogramCounts, build_families
from phasewatch.demo.vllm.scheduler import Scheduler, Sequence
from phasewatch.demo.vllm.settings import SimulatedVllmSettings

SETTINGS = SimulatedVllmSettings()
WORKLOAD = Workload(prompt=(1, 1), output=(1, 1), max_tokens=1)


def build_sequence(*, cached: int = 0, generated: int = 0, max_tokens: int = 200, preemptions: int = 0) -> Sequence:
    """Sent at 10, admitted at 12, first token at 13, newest token at 15."""
    request = Request(1, 10.0, 300, 0, 100, max_tokens, 0.0, WORKLOAD, has_user=True)
    return Sequence(
        request,
        ready_at=10.0,
        cached=cached,
        scheduled_at=12.0,
        first_token_at=13.0,
        last_token_at=15.0,
        generated=generated,
        preemptions=preemptions,
    )


def value(counters: Counters, name: str, label_value: str = "") -> float:
    return counters.values[name, label_value]


def count_and_sum(counters: Counters, name: str) -> tuple[int, float]:
    histogram = counters.histograms[name]
    return sum(histogram.counts), histogram.sum


def test_an_observation_equal_to_a_bound_falls_into_the_bucket_below_it() -> None:
    histogram = HistogramCounts((1.0, 2.0))
    for observation in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(observation)
    assert list(histogram.accumulate_counts()) == [2, 3, 4]
    assert histogram.sum == 12.0


def test_token_buckets_end_at_the_longest_context_of_the_model() -> None:
    for length, last in ((512, 500.0), (1024, 1000.0), (2048, 2000.0), (8192, 5000.0)):
        (bounds,) = (f.upper_bounds for f in build_families(length) if f.name == "request_prompt_tokens")
        assert bounds[:4] == (1.0, 2.0, 5.0, 10.0), length
        assert bounds[-1] == last, length


def test_a_prompt_is_counted_once_with_its_first_token() -> None:
    counters = Counters(SETTINGS)
    sequence = build_sequence(cached=96)
    counters.count_token(sequence, 13.0)
    assert count_and_sum(counters, "time_to_first_token_seconds") == (1, 3.0)
    sequence.generated, sequence.last_token_at = 1, 13.0
    counters.count_token(sequence, 13.5)
    assert value(counters, "generation_tokens") == 2
    assert value(counters, "prompt_tokens") == 300
    assert value(counters, "prompt_tokens_cached") == 96
    assert value(counters, "prompt_tokens_by_source", "local_compute") == 204
    assert value(counters, "prompt_tokens_by_source", "local_cache_hit") == 96
    assert count_and_sum(counters, "inter_token_latency_seconds") == (1, 0.5)


def test_a_preemption_is_counted_with_the_next_token() -> None:
    counters = Counters(SETTINGS)
    sequence = build_sequence(generated=5, preemptions=2)
    assert value(counters, "num_preemptions") == 0
    counters.count_token(sequence, 16.0)
    assert value(counters, "num_preemptions") == 2
    sequence.counted_preemptions = 2
    counters.count_token(sequence, 17.0)
    assert value(counters, "num_preemptions") == 2


def test_a_finished_request_is_observed_in_every_request_histogram() -> None:
    counters = Counters(SETTINGS)
    counters.count_finished(build_sequence(cached=100, generated=101, preemptions=1))
    observed = {name: count_and_sum(counters, name) for name in counters.histograms}
    assert {name: pair for name, pair in observed.items() if pair[0]} == {
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


def test_the_finished_reason_is_length_at_the_token_limit_and_stop_below() -> None:
    for max_tokens, reason in ((100, "length"), (200, "stop")):
        counters = Counters(SETTINGS)
        counters.count_finished(build_sequence(generated=100, max_tokens=max_tokens))
        counts = {label: count for (name, label), count in counters.values.items() if name == "request_success"}
        assert {label for label, count in counts.items() if count} == {reason}, max_tokens


def test_a_response_of_one_token_has_a_time_per_output_token_of_0() -> None:
    counters = Counters(SETTINGS)
    sequence = build_sequence(generated=1)
    sequence.last_token_at = 13.0
    counters.count_finished(sequence)
    assert count_and_sum(counters, "request_time_per_output_token_seconds") == (1, 0.0)


def test_deferred_requests_are_waiting_but_not_for_capacity() -> None:
    counters, scheduler = Counters(SETTINGS), Scheduler(SETTINGS)
    scheduler.add(build_sequence())
    scheduler.schedule(12.0)
    request_with_grammar = Request(2, 0.0, 10, 0, 5, 5, 90.0, WORKLOAD, has_user=True)
    scheduler.add(Sequence(request_with_grammar, ready_at=90.0))
    scheduler.add(build_sequence())
    counters.update_gauges(scheduler)
    assert value(counters, "num_requests_running") == 1
    assert value(counters, "num_requests_waiting") == 2
    assert value(counters, "num_requests_waiting_by_reason", "capacity") == 1
    assert value(counters, "num_requests_waiting_by_reason", "deferred") == 1
    assert value(counters, "kv_cache_usage_perc") == pytest.approx(19 / 3199)


def test_an_engine_is_awake() -> None:
    states = {state: n for (name, state), n in Counters(SETTINGS).values.items() if name == "engine_sleep_state"}
    assert states == {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
