"""The exporter's readings of the simulated vLLM, compared with what happened in its engine."""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from phasewatch.analysis.ceiling import RateSource
from phasewatch.analysis.quantiles import QUANTILES
from phasewatch.demo.common.roofline import build_roofline
from phasewatch.demo.common.workload import Workload
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from phasewatch.snapshot.engine import EngineSnapshot
from tests.support.simulated_vllm import SETTINGS, SimulatedServer, WindowTruth, build_target, scrape, simulate

L40S = build_roofline(DEVICE, MODEL)

SCENARIOS = {
    "single stream": Workload(users=1, think_seconds=0.01, prompt=(200, 2000), output=(50, 300), max_tokens=400),
    "batch": Workload(users=16, prompt=(200, 900), output=(50, 300), max_tokens=400),
    "slots": Workload(users=40, think_seconds=0.5, prompt=(200, 500), output=(120, 260), max_tokens=400),
    "prefill": Workload(users=24, think_seconds=0.5, prompt=(1500, 2500), output=(4, 12), max_tokens=16),
    "long prompts": Workload(users=6, think_seconds=0.5, prompt=(5000, 7500), output=(40, 120), max_tokens=160),
    "prefix cache": Workload(
        users=12, think_seconds=0.5, prompt=(1700, 1900), output=(50, 120), max_tokens=160, shared_prefix=1536
    ),
    "full cache": Workload(users=20, think_seconds=0.5, prompt=(4690, 4740), output=(280, 320), max_tokens=320),
    "preemption": Workload(users=32, think_seconds=0.5, prompt=(1700, 2100), output=(200, 1200), max_tokens=1500),
}
WINDOW = 60.0
STEADY = (80, 110)
"""First and last second of steady traffic."""

EXACT = 1e-6
"""Relative error of figures that must agree except for rounding."""

Reading = tuple[EngineSnapshot, WindowTruth]


@cache
def read(scenario: str) -> list[Reading]:
    """What the exporter shows in each second of steady traffic, and the truth of the same window."""
    return list(scrape_steady(simulate(SCENARIOS[scenario])))


def scrape_steady(server: SimulatedServer) -> Iterator[Reading]:
    times = (second + 0.37 for second in range(STEADY[1]))
    for time, reading in scrape(server, build_target(window=WINDOW), times):
        if time > STEADY[0]:
            yield reading, WindowTruth(WINDOW, server.engine.ledger.select_between(time - WINDOW, time))


def relative_errors(
    scenario: str, metric: Callable[[EngineSnapshot], float | None], true: Callable[[WindowTruth], float]
) -> list[float]:
    pairs = [(metric(reading), true(truth)) for reading, truth in read(scenario)]
    assert len(pairs) == STEADY[1] - STEADY[0]
    return [abs((math.nan if a is None else a) / b - 1) for a, b in pairs]


def bandwidth(reading: EngineSnapshot) -> float | None:
    return reading.ceiling.memory_bandwidth_utilization_ratio.get(RateSource.DERIVED)


def test_decode_metrics_are_what_streams_observed() -> None:
    metrics: list[tuple[Callable[[EngineSnapshot], float | None], Callable[[WindowTruth], float]]] = [
        (lambda r: r.phases.decode_tokens_per_second, WindowTruth.decode_tokens_per_second),
        (lambda r: r.phases.decode_throughput_tokens_per_second, WindowTruth.decode_throughput_tokens_per_second),
        (lambda r: r.phases.decode_streams, WindowTruth.decode_streams),
        (lambda r: r.latencies.inter_token.mean, WindowTruth.inter_token_latency_mean_seconds),
    ]
    for scenario in SCENARIOS:
        for metric, true in metrics:
            assert max(relative_errors(scenario, metric, true)) < EXACT, (scenario, true.__name__)


def test_prefill_throughput_counts_computed_tokens_without_recomputed_ones() -> None:
    # A prompt is credited with its first token, so each end of a window is off by part of a prompt.
    for scenario in SCENARIOS:
        errors = relative_errors(
            scenario,
            lambda r: r.phases.prefill_throughput_tokens_per_second,
            WindowTruth.prefill_throughput_tokens_per_second,
        )
        assert statistics.median(errors) < 0.02, scenario
        assert max(errors) < 0.05, scenario


def test_time_to_first_token_is_what_users_observed() -> None:
    for scenario in SCENARIOS:
        errors = relative_errors(
            scenario, lambda r: r.latencies.time_to_first_token.mean, WindowTruth.time_to_first_token_mean_seconds
        )
        assert max(errors) < EXACT, scenario


def test_engine_steps_are_those_that_produced_output() -> None:
    for scenario in SCENARIOS:
        errors = relative_errors(
            scenario, lambda r: r.phases.engine_steps_per_second, WindowTruth.engine_steps_per_second
        )
        assert max(errors) < EXACT, scenario


def test_iteration_tokens_are_output_tokens_and_the_prompts_that_a_step_completes() -> None:
    server = simulate(SCENARIOS["long prompts"])
    server.advance(60.0)
    truth = WindowTruth(60.0, server.engine.ledger.select_between(0.0, 60.0))
    firsts = [first for step in truth.steps for first in step.first_tokens]
    histogram = server.engine.counters.histograms["iteration_tokens_total"]
    assert histogram.sum == sum(first.computed_tokens for first in firsts) + len(firsts) + truth.decoded
    assert sum(histogram.counts) == truth.productive_steps < len(truth.steps)


def test_the_prefix_cache_hit_ratio_is_that_of_the_prompts() -> None:
    errors = relative_errors(
        "prefix cache", lambda r: r.phases.prefix_cache_hit_ratio, WindowTruth.prefix_cache_hit_ratio
    )
    assert statistics.median(errors) < 0.02
    assert all(0.8 < (reading.phases.prefix_cache_hit_ratio or 0.0) < 0.9 for reading, _ in read("prefix cache"))


def test_bandwidth_utilization_is_what_was_read() -> None:
    for scenario, limit in (
        ("single stream", 0.005),
        ("batch", 0.005),
        ("slots", 0.005),
        # Steps without output are in no histogram, but read the weights.
        ("prefill", 0.03),
        ("long prompts", 0.03),
        ("full cache", 0.01),
        ("preemption", 0.01),
    ):
        errors = relative_errors(scenario, bandwidth, lambda truth: truth.read_bytes_per_second() / L40S.bandwidth)
        assert statistics.median(errors) < limit, scenario


def test_bandwidth_utilization_counts_shared_blocks_once_although_each_stream_reads_them() -> None:
    for reading, truth in read("prefix cache"):
        utilization = bandwidth(reading)
        assert utilization is not None
        assert 0.85 < utilization / (truth.read_bytes_per_second() / L40S.bandwidth) < 0.95


def test_compute_utilization_is_what_was_computed() -> None:
    for scenario in [name for name in SCENARIOS if name != "preemption"]:
        errors = relative_errors(
            scenario,
            lambda r: r.ceiling.compute_utilization_ratio.get(RateSource.DERIVED),
            lambda truth: truth.operations_per_second() / L40S.compute,
        )
        assert statistics.median(errors) < 0.02, scenario


def test_compute_utilization_leaves_out_what_is_recomputed_after_a_preemption() -> None:
    for reading, truth in read("preemption"):
        assert sum(step.recomputed_tokens for step in truth.steps) > 0
        utilization = reading.ceiling.compute_utilization_ratio[RateSource.DERIVED]
        assert 0.8 < utilization / (truth.operations_per_second() / L40S.compute) < 1


def test_true_inter_token_quantiles_are_within_the_exported_bounds() -> None:
    for scenario in SCENARIOS:
        for reading, truth in read(scenario):
            gaps = sorted(gap for step in truth.steps for gap, count in step.token_gaps for _ in range(count))
            quantiles = reading.latencies.inter_token.quantiles
            assert [order for order, _ in quantiles] == list(QUANTILES), scenario
            for order, quantile in quantiles:
                true = gaps[max(1, math.ceil(order * len(gaps))) - 1]
                upper_bound = math.inf if quantile.upper_bound is None else quantile.upper_bound
                assert (quantile.lower_bound or 0.0) <= true <= upper_bound, (scenario, order)


def test_finished_requests_and_their_lengths_are_those_of_the_ledger() -> None:
    for scenario in ("batch", "slots", "preemption"):
        for reading, truth in read(scenario):
            requests, finished = reading.requests, [request for step in truth.steps for request in step.finished]
            assert sum(requests.finished_per_second.values()) * WINDOW == pytest.approx(len(finished)), scenario
            for shown, true in (
                (requests.latency.mean, [request.latency for request in finished]),
                (requests.prompt_tokens.mean, [request.prompt_tokens for request in finished]),
                (requests.output_tokens.mean, [request.output_tokens for request in finished]),
            ):
                assert shown == pytest.approx(statistics.mean(true), rel=EXACT), scenario


def test_http_answers_are_the_finished_the_refused_and_the_disconnected_requests() -> None:
    server = simulate(
        Workload(users=100, prompt=(200, 900), output=(50, 300), max_tokens=400),
        settings=replace(SETTINGS, max_num_queued_reqs=30),
    )
    server.advance(30.0)
    finished = server.value("request_success", "stop") + server.value("request_success", "length")
    refused = server.value("admission_rejections", "max_num_queued_reqs")
    assert server.engine.counters.http_requests == {"2xx": finished, "5xx": refused}
    held = server.value("num_requests_running") + server.value("num_requests_waiting")
    server.engine.abort_all()
    assert server.engine.counters.http_requests["2xx"] >= finished + held


def test_preemptions_are_counted_only_after_recomputation() -> None:
    server = simulate(SCENARIOS["preemption"])
    late = 0
    for second in range(1, 80):
        server.advance(float(second))
        happened = sum(step.preempted for step in server.engine.ledger.select_between(0.0, second))
        counted = server.value("num_preemptions")
        assert counted <= happened
        late += counted < happened
    assert counted > 10
    assert late > 10
    assert all(reading.load.preemptions_per_second for reading, _ in read("preemption"))


def test_the_result_does_not_depend_on_how_time_is_divided() -> None:
    for scenario in ("full cache", "preemption", "prefix cache"):
        whole, divided = simulate(SCENARIOS[scenario]), simulate(SCENARIOS[scenario])
        whole.advance(45.0)
        for tick in range(45 * 30 + 1):
            divided.advance(tick / 30)
        assert divided.page() == whole.page(), scenario


def test_equal_seeds_give_equal_servers_and_different_seeds_do_not() -> None:
    pages = []
    for seed in (1, 1, 2):
        server = simulate(SCENARIOS["batch"], seed=seed)
        server.advance(30.0)
        pages.append(server.page())
    assert pages[0] == pages[1] != pages[2]


def test_cache_usage_stays_within_0_and_1_and_returns_to_0() -> None:
    for scenario, workload in SCENARIOS.items():
        server = simulate(workload)
        for second in range(60):
            server.advance(float(second))
            assert 0 <= server.value("kv_cache_usage_perc") <= 1, (scenario, second)
        server.engine.abort_all()
        assert server.value("kv_cache_usage_perc") == 0, scenario


def test_requests_are_rejected_only_beyond_the_queue_limit() -> None:
    flood = Workload(users=100, prompt=(200, 500), output=(100, 200), max_tokens=200)
    for limit, rejects in ((64, True), (None, False)):
        server = simulate(flood, settings=replace(SETTINGS, max_num_queued_reqs=limit))
        server.advance(30.0)
        held = server.value("num_requests_running") + server.value("num_requests_waiting")
        assert (server.value("admission_rejections", "max_num_queued_reqs") > 0) == rejects, limit
        assert held <= 64 if rejects else held > 64, limit


def test_a_step_reads_all_weights_and_held_tokens_and_attends_to_preceding_tokens() -> None:
    server = simulate(Workload(users=1, prompt=(3000, 3000), output=(3, 3), max_tokens=3, think_seconds=99.0))
    server.advance(5.0)
    steps = server.engine.ledger.select_between(0.0, 5.0)
    held = [(step.read_bytes - L40S.weight_bytes) / L40S.kv_bytes for step in steps]
    assert held == pytest.approx([2048, 3000, 3001, 3002])
    matrices = [2 * (L40S.layer_parameters * new + L40S.head_parameters * out) for new, out in ((2048, 0), (952, 1))]
    attended = [
        (step.operations - matrix) / L40S.attention_operations for step, matrix in zip(steps, matrices, strict=False)
    ]
    assert attended == pytest.approx([2048 * 1024, 952 * (2048 + 476)])
    assert [step.prompt_tokens for step in steps] == [2048, 952, 0, 0]


def test_rejected_users_retry_after_a_second_regardless_of_their_think_time() -> None:
    thoughtful = Workload(users=4, think_seconds=1e6, prompt=(100, 200), output=(2000, 2000), max_tokens=2000)
    server = simulate(thoughtful, settings=replace(SETTINGS, max_num_queued_reqs=1))
    server.advance(30.0)
    # Three users, thirty seconds, one retry per second.
    assert 45 < server.value("admission_rejections", "max_num_queued_reqs") < 135


def test_requests_that_arrive_during_an_aborted_step_leave_nothing_behind() -> None:
    server = simulate(Workload(per_second=200.0, prompt=(2048, 2048), output=(5, 5), max_tokens=5))
    server.advance(0.1)
    server.engine.abort_all()
    server.clients.start((), 0.1)
    server.advance(5.0)
    (step,) = server.engine.ledger.select_between(0.0, 5.0)
    assert step.end > 0.1
    assert (step.first_tokens, step.token_gaps) == ((), ())
    assert server.value("generation_tokens") == 0


def test_a_paused_server_queues_requests_and_computes_them_when_resumed() -> None:
    server = simulate(Workload(users=5, prompt=(100, 200), output=(10, 20), max_tokens=20))
    server.engine.paused = True
    server.advance(20.0)
    assert (server.value("num_requests_running"), server.value("num_requests_waiting")) == (0, 5)
    assert server.value("generation_tokens") == 0
    server.engine.paused = False
    server.advance(21.0)
    assert server.value("generation_tokens") > 0
    assert server.value("num_requests_waiting") == 0


def test_aborted_requests_are_counted_only_by_their_tokens() -> None:
    server = simulate(Workload(users=5, prompt=(100, 200), output=(1000, 2000), max_tokens=2000))
    server.advance(10.0)
    tokens = server.value("generation_tokens")
    server.engine.abort_all()
    server.advance(11.0)
    assert server.value("generation_tokens") == tokens > 0
    assert (server.value("num_requests_running"), server.value("num_requests_waiting")) == (0, 0)
    assert sum(server.engine.counters.histograms["e2e_request_latency_seconds"].counts) == 0
    assert server.value("request_success", "abort") == 0


def test_requests_wait_for_their_grammar_even_if_the_device_is_free() -> None:
    structured = Workload(users=4, prompt=(100, 200), output=(10, 20), max_tokens=20, grammar_seconds=(5.0, 6.0))
    server = simulate(structured)
    server.advance(4.0)
    assert server.value("num_requests_waiting_by_reason", "deferred") == 4
    server.advance(9.0)
    assert server.value("generation_tokens") > 40


def test_gauges_are_updated_only_at_the_end_of_a_step() -> None:
    # The first step of a single request takes long; until it ends, the page does not show the request.
    server = simulate(Workload(users=1, prompt=(2048, 2048), output=(5, 5), max_tokens=5))
    running = []
    for tick in range(2500):
        server.advance(tick / 1000)
        running.append(server.value("num_requests_running"))
    first = server.engine.ledger.select_between(0.0, 9.0)[0]
    assert first.seconds > 0.1
    assert running.index(1) == math.ceil(first.end * 1000)
