"""The exporter's readings of the simulated vLLM, held against what truly happened inside it."""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from phasewatch.analysis.ceiling import Counted
from phasewatch.analysis.quantiles import QUANTILES
from phasewatch.demo.roofline import machine
from phasewatch.demo.vllm.simulation import DEVICE, MODEL
from phasewatch.demo.vllm.workload import Workload
from phasewatch.snapshot.target import EngineReading
from tests.support.simulated_vllm import SERVER, Simulated, Truth, readings, simulated, target

L40S = machine(DEVICE, MODEL)

SCENARIOS = {
    "single stream": Workload(users=1, think=0.01, prompt=(200, 2000), output=(50, 300), most=400),
    "batch": Workload(users=16, prompt=(200, 900), output=(50, 300), most=400),
    "slots": Workload(users=40, think=0.5, prompt=(200, 500), output=(120, 260), most=400),
    "prefill": Workload(users=24, think=0.5, prompt=(1500, 2500), output=(4, 12), most=16),
    "long prompts": Workload(users=6, think=0.5, prompt=(5000, 7500), output=(40, 120), most=160),
    "prefix cache": Workload(users=12, think=0.5, prompt=(1700, 1900), output=(50, 120), most=160, shared=1536),
    "full cache": Workload(users=20, think=0.5, prompt=(4690, 4740), output=(280, 320), most=320),
    "preemption": Workload(users=32, think=0.5, prompt=(1700, 2100), output=(200, 1200), most=1500),
}
WINDOW = 60.0
STEADY = (80, 110)

Reading = tuple[EngineReading, Truth]


@pytest.fixture(scope="module")
def read() -> Callable[[str], list[Reading]]:
    """What was shown at each second of steady traffic, and the truth of the same window; computed once a scenario."""
    known: dict[str, list[Reading]] = {}

    def found(name: str) -> list[Reading]:
        if name not in known:
            known[name] = list(watched(simulated(SCENARIOS[name])))
        return known[name]

    return found


def watched(server: Simulated) -> Iterator[Reading]:
    times = (second + 0.37 for second in range(STEADY[1]))
    for time, reading in readings(server, target(window=WINDOW), times):
        if time > STEADY[0]:
            yield reading, Truth(WINDOW, server.engine.ledger.between(time - WINDOW, time))


def errors(
    pairs: list[Reading], shown: Callable[[EngineReading], float | None], true: Callable[[Truth], float]
) -> list[float]:
    found = [(shown(reading), true(truth)) for reading, truth in pairs]
    assert len(found) == STEADY[1] - STEADY[0]
    return [abs((math.nan if a is None else a) / b - 1) for a, b in found]


@pytest.mark.parametrize("name", SCENARIOS)
def test_decode_is_what_streams_got(name: str, read: Callable[[str], list[Reading]]) -> None:
    pairs = read(name)
    assert max(errors(pairs, lambda r: r.phases.decode_tokens_per_second, Truth.decode_tokens_per_second)) < 1e-6
    assert (
        max(
            errors(
                pairs, lambda r: r.phases.decode_throughput_tokens_per_second, Truth.decode_throughput_tokens_per_second
            )
        )
        < 1e-6
    )
    assert max(errors(pairs, lambda r: r.phases.decode_streams, Truth.decode_streams)) < 1e-6
    assert max(errors(pairs, lambda r: r.latencies.inter_token.mean, Truth.inter_token_latency_mean_seconds)) < 1e-6


@pytest.mark.parametrize("name", SCENARIOS)
def test_prefill_is_what_was_computed_and_nothing_computed_again(
    name: str, read: Callable[[str], list[Reading]]
) -> None:
    # A prompt is credited with its first token, so the ends of a window are off by a part of one.
    shown = errors(
        read(name),
        lambda r: r.phases.prefill_throughput_tokens_per_second,
        Truth.prefill_throughput_tokens_per_second,
    )
    assert statistics.median(shown) < 0.02
    assert max(shown) < 0.05


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_time_to_the_first_token_is_what_users_waited(name: str, read: Callable[[str], list[Reading]]) -> None:
    shown = errors(read(name), lambda r: r.latencies.time_to_first_token.mean, Truth.time_to_first_token_mean_seconds)
    assert max(shown) < 1e-6


@pytest.mark.parametrize("name", SCENARIOS)
def test_steps_are_those_that_put_something_out(name: str, read: Callable[[str], list[Reading]]) -> None:
    shown = errors(read(name), lambda r: r.phases.engine_steps_per_second, Truth.engine_steps_per_second)
    assert max(shown) < 1e-6


def test_tokens_of_a_step_are_those_put_out_and_the_prompts_that_it_ended() -> None:
    server = simulated(SCENARIOS["long prompts"])
    server.advance(60.0)
    truth = Truth(60.0, server.engine.ledger.between(0.0, 60.0))
    firsts = [first for step in truth.steps for first in step.firsts]
    told = server.engine.counters.histograms["iteration_tokens_total"]
    assert told.sum == sum(first.computed for first in firsts) + len(firsts) + truth.decoded
    assert sum(told.counts) == truth.putting_out < len(truth.steps)


def test_the_hit_ratio_of_the_prefix_cache_is_that_of_the_prompts(read: Callable[[str], list[Reading]]) -> None:
    pairs = read("prefix cache")
    shown = errors(pairs, lambda r: r.phases.prefix_cache_hit_ratio, Truth.prefix_cache_hit_ratio)
    assert statistics.median(shown) < 0.02
    assert all(0.8 < (reading.phases.prefix_cache_hit_ratio or 0.0) < 0.9 for reading, _ in pairs)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("single stream", 0.005),
        ("batch", 0.005),
        ("slots", 0.005),
        # Steps that put out nothing are in no histogram, and read weights all the same.
        ("prefill", 0.03),
        ("long prompts", 0.03),
        ("full cache", 0.01),
        ("preemption", 0.01),
    ],
)
def test_the_bandwidth_is_what_was_read(name: str, most: float, read: Callable[[str], list[Reading]]) -> None:
    shown = errors(read(name), bandwidth, lambda truth: truth.read_bytes_per_second() / L40S.bandwidth)
    assert statistics.median(shown) < most


def bandwidth(reading: EngineReading) -> float | None:
    return reading.ceiling.memory_bandwidth_utilization_ratio.get(Counted.DERIVED)


def test_what_several_streams_share_is_read_by_each_and_counted_once(read: Callable[[str], list[Reading]]) -> None:
    for reading, truth in read("prefix cache"):
        shown = bandwidth(reading)
        assert shown is not None
        assert 0.85 < shown / (truth.read_bytes_per_second() / L40S.bandwidth) < 0.95


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "preemption"])
def test_the_operations_are_those_that_were_taken(name: str, read: Callable[[str], list[Reading]]) -> None:
    shown = errors(
        read(name),
        lambda r: r.ceiling.compute_utilization_ratio.get(Counted.DERIVED),
        lambda truth: truth.operations_per_second() / L40S.compute,
    )
    assert statistics.median(shown) < 0.02


def test_operations_that_are_taken_again_after_a_preemption_are_not_counted(
    read: Callable[[str], list[Reading]],
) -> None:
    for reading, truth in read("preemption"):
        assert sum(step.again for step in truth.steps) > 0
        shown = reading.ceiling.compute_utilization_ratio[Counted.DERIVED]
        assert 0.8 < shown / (truth.operations_per_second() / L40S.compute) < 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_true_inter_token_quantile_lies_inside_the_exported_edges(
    name: str, read: Callable[[str], list[Reading]]
) -> None:
    for reading, truth in read(name):
        gaps = sorted(gap for step in truth.steps for gap, count in step.gaps for _ in range(count))
        assert [order for order, _ in reading.latencies.inter_token.quantiles] == list(QUANTILES)
        for order, quantile in reading.latencies.inter_token.quantiles:
            true = gaps[max(1, math.ceil(order * len(gaps))) - 1]
            assert (quantile.lower or 0.0) <= true <= (math.inf if quantile.upper is None else quantile.upper)


def test_preemptions_are_counted_when_they_have_been_made_good(read: Callable[[str], list[Reading]]) -> None:
    server = simulated(SCENARIOS["preemption"])
    late = 0
    for second in range(1, 80):
        server.advance(float(second))
        happened = sum(step.preempted for step in server.engine.ledger.between(0.0, second))
        counted = server.engine.counters.numbers["num_preemptions", ""]
        assert counted <= happened
        late += counted < happened
    assert counted > 10
    assert late > 10
    assert all(reading.load.preemptions_per_second for reading, _ in read("preemption"))


def test_how_time_is_cut_changes_nothing() -> None:
    for name in ("full cache", "preemption", "prefix cache"):
        whole, cut = simulated(SCENARIOS[name]), simulated(SCENARIOS[name])
        whole.advance(45.0)
        for tick in range(45 * 30 + 1):
            cut.advance(tick / 30)
        assert cut.page() == whole.page()


def test_the_same_seed_gives_the_same_server_and_another_one_does_not() -> None:
    pages = []
    for seed in (1, 1, 2):
        server = simulated(SCENARIOS["batch"], seed=seed)
        server.advance(30.0)
        pages.append(server.page())
    assert pages[0] == pages[1] != pages[2]


def test_the_cache_never_holds_more_than_it_has_and_loses_nothing() -> None:
    for workload in SCENARIOS.values():
        server = simulated(workload)
        for second in range(60):
            server.advance(float(second))
            assert 0 <= server.engine.counters.numbers["kv_cache_usage_perc", ""] <= 1
        server.engine.abort_all()
        assert server.engine.counters.numbers["kv_cache_usage_perc", ""] == 0


def test_requests_beyond_the_queue_limit_are_refused_and_nothing_else_is() -> None:
    flood = Workload(users=100, prompt=(200, 500), output=(100, 200), most=200)
    for limit, refuses in ((64, True), (None, False)):
        server = simulated(flood, settings=replace(SERVER, max_num_queued_reqs=limit))
        server.advance(30.0)
        numbers = server.engine.counters.numbers
        held = numbers["num_requests_running", ""] + numbers["num_requests_waiting", ""]
        assert (numbers["admission_rejections", "max_num_queued_reqs"] > 0) == refuses
        assert held <= 64 if refuses else held > 64


def test_a_step_reads_all_weights_and_what_its_requests_hold_and_attends_to_what_is_before() -> None:
    server = simulated(Workload(users=1, prompt=(3000, 3000), output=(3, 3), most=3, think=99.0))
    server.advance(5.0)
    steps = server.engine.ledger.between(0.0, 5.0)
    read = [(step.read_bytes - L40S.weight_bytes) / L40S.kv_bytes for step in steps]
    assert read == pytest.approx([2048, 3000, 3001, 3002])
    matrices = [2 * (L40S.layer_parameters * new + L40S.head_parameters * out) for new, out in ((2048, 0), (952, 1))]
    attended = [
        (step.operations - known) / L40S.attention_operations for step, known in zip(steps, matrices, strict=False)
    ]
    assert attended == pytest.approx([2048 * 1024, 952 * (2048 + 476)])
    assert [step.prompt_tokens for step in steps] == [2048, 952, 0, 0]


def test_users_who_are_refused_try_again_soon_however_long_they_think_about_answers() -> None:
    thoughtful = Workload(users=4, think=1e6, prompt=(100, 200), output=(2000, 2000), most=2000)
    server = simulated(thoughtful, settings=replace(SERVER, max_num_queued_reqs=1))
    server.advance(30.0)
    # Three users, thirty seconds, and a second of patience.
    assert 45 < server.engine.counters.numbers["admission_rejections", "max_num_queued_reqs"] < 135


def test_nothing_is_left_of_what_came_during_a_step_that_was_given_up() -> None:
    server = simulated(Workload(per_second=200.0, prompt=(2048, 2048), output=(5, 5), most=5))
    server.advance(0.1)
    server.engine.abort_all()
    server.crowd.begin((), 0.1)
    server.advance(5.0)
    (step,) = server.engine.ledger.between(0.0, 5.0)
    assert step.end > 0.1
    assert (step.firsts, step.gaps) == ((), ())
    assert server.engine.counters.numbers["generation_tokens", ""] == 0


def test_a_paused_server_queues_what_comes_and_a_resumed_one_goes_on_with_it() -> None:
    server = simulated(Workload(users=5, prompt=(100, 200), output=(10, 20), most=20))
    server.engine.paused = True
    server.advance(20.0)
    numbers = server.engine.counters.numbers
    assert (numbers["num_requests_running", ""], numbers["num_requests_waiting", ""]) == (0, 5)
    assert numbers["generation_tokens", ""] == 0
    server.engine.paused = False
    server.advance(21.0)
    assert numbers["generation_tokens", ""] > 0
    assert numbers["num_requests_waiting", ""] == 0


def test_what_clients_gave_up_leaves_no_trace_but_its_tokens() -> None:
    server = simulated(Workload(users=5, prompt=(100, 200), output=(1000, 2000), most=2000))
    server.advance(10.0)
    tokens = server.engine.counters.numbers["generation_tokens", ""]
    server.engine.abort_all()
    server.advance(11.0)
    numbers, histograms = server.engine.counters.numbers, server.engine.counters.histograms
    assert numbers["generation_tokens", ""] == tokens > 0
    assert (numbers["num_requests_running", ""], numbers["num_requests_waiting", ""]) == (0, 0)
    assert sum(histograms["e2e_request_latency_seconds"].counts) == 0
    assert numbers["request_success", "abort"] == 0


def test_a_grammar_is_waited_for_and_the_device_is_not() -> None:
    slow = Workload(users=4, prompt=(100, 200), output=(10, 20), most=20, grammar=(5.0, 6.0))
    server = simulated(slow)
    server.advance(4.0)
    assert server.engine.counters.numbers["num_requests_waiting_by_reason", "deferred"] == 4
    server.advance(9.0)
    numbers = server.engine.counters.numbers
    assert numbers["generation_tokens", ""] > 40


def test_gauges_are_as_old_as_the_last_step() -> None:
    # One request alone, whose first step takes long: until it is over, the page knows nothing of it.
    server = simulated(Workload(users=1, prompt=(2048, 2048), output=(5, 5), most=5))
    seen = []
    for tick in range(2500):
        server.advance(tick / 1000)
        seen.append(server.engine.counters.numbers["num_requests_running", ""])
    first = server.engine.ledger.between(0.0, 9.0)[0]
    assert first.seconds > 0.1
    assert seen.index(1) == math.ceil(first.end * 1000)
