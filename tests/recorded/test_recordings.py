"""Real servers' pages through the real pipeline, held against what their clients saw, token by token."""

import math
import statistics
from collections.abc import Callable
from functools import cache

import pytest

from phasewatch.analysis.quantiles import QUANTILES
from phasewatch.analysis.window import PageWindow, append_page, subtract_counters
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from tests.support.pages import Metrics, bodies, replayed, value, values
from tests.support.truth import Truth, truth

# Spans of steady traffic, in seconds of each recording.
STEADY: dict[str, list[tuple[float, float]]] = {
    "single-stream": [(10, 70)],
    "batch-ramp": [(12, 24), (33, 47), (55, 67), (78, 87), (98, 103)],
    "two-api-servers": [(39, 52.1)],
    "speculative": [(19, 55)],
    "seq-limit": [(27, 79)],
    "kv-saturation": [(33, 92)],
    "prefill-interference": [(12, 24), (34, 50), (60, 74)],
    "data-parallel": [(18, 23), (37, 45), (55, 67), (77, 89), (100, 110)],
}
# Other releases and front ends: one stream, then four.
OLDER = ("rust-front-end", "vllm-0.16.0", "vllm-0.12.0", "vllm-0.10.0", "vllm-0.9.1", "vllm-0.8.5")
TELLS_CACHED = ("vllm-0.16.0", "vllm-0.12.0", "vllm-0.10.0")
STEADY |= {name: [(35, 58)] for name in OLDER}
STEADY["vllm-0.10.0-two-api-servers"] = [(18, 28)]
STEADY["disaggregated-decode"] = [(16, 73)]
NEWEST = [name for name in STEADY if not name.startswith(("vllm", "rust", "disaggregated"))]
ONE_ENGINE = [name for name in NEWEST if name != "data-parallel"]


@cache
def shown(name: str, window: float) -> list[tuple[float, float, Metrics]]:
    """Start and end of the window, and what was shown, for each scrape in steady traffic."""
    times: list[float] = []
    steady = []
    for time, metrics in replayed(name, window=window):
        if any(start <= time <= end for start, end in STEADY[name]):
            steady.append((min(times, key=lambda earlier: abs(earlier - (time - window))), time, metrics))
        times.append(time)
    return steady


def median_error(name: str, window: float, metric: str, expected: Callable[[Truth, float, float], float]) -> float:
    client = truth(name)
    errors = []
    for start, end, metrics in shown(name, window):
        samples = values(metrics, metric)
        wanted = expected(client, start, end)
        if samples and wanted:
            errors.append(abs(sum(samples) / wanted - 1))
        else:
            assert not any(samples)
    assert len(errors) > 10
    return statistics.median(errors)


@pytest.mark.parametrize("window", [30, 60])
@pytest.mark.parametrize("name", [*ONE_ENGINE, "disaggregated-decode"])
def test_decode_speed_of_one_stream_is_what_clients_saw(name: str, window: float) -> None:
    metric = "llm_decode_tokens_per_second"
    assert median_error(name, window, metric, Truth.decode_tokens_per_second) < 0.01


@pytest.mark.parametrize("window", [10, 30, 60])
@pytest.mark.parametrize("name", [*NEWEST, "disaggregated-decode"])
def test_decode_throughput_of_all_engines_is_what_clients_got(name: str, window: float) -> None:
    # n-gram speculation: how many tokens an event carries is known for a request as a whole only.
    limit = 0.015 if (name, window) == ("speculative", 10) else 0.01
    metric = "llm_decode_throughput_tokens_per_second"
    assert median_error(name, window, metric, Truth.decode_throughput_tokens_per_second) < limit


@pytest.mark.parametrize("window", [10, 30, 60])
@pytest.mark.parametrize("name", NEWEST)
def test_prefill_throughput_of_all_engines_is_what_clients_sent(name: str, window: float) -> None:
    metric = "llm_prefill_throughput_tokens_per_second"
    assert median_error(name, window, metric, Truth.prefill_throughput_tokens_per_second) < 0.02


@pytest.mark.parametrize("window", [30, 60])
@pytest.mark.parametrize("name", [*ONE_ENGINE, "disaggregated-decode"])
def test_the_mean_time_to_first_token_is_what_clients_waited(name: str, window: float) -> None:
    metric = "llm_time_to_first_token_mean_seconds"
    assert median_error(name, window, metric, Truth.time_to_first_token_mean_seconds) < 0.03


@pytest.mark.parametrize("window", [30, 60])
@pytest.mark.parametrize("name", [name for name in ONE_ENGINE if name != "speculative"])
def test_the_mean_inter_token_latency_is_what_clients_waited(name: str, window: float) -> None:
    metric = "llm_inter_token_latency_mean_seconds"
    assert median_error(name, window, metric, Truth.inter_token_latency_mean_seconds) < 0.03


@pytest.mark.parametrize("name", ONE_ENGINE)
def test_the_true_inter_token_quantile_lies_inside_the_exported_edges(name: str) -> None:
    client = truth(name)
    inside = []
    for start, end, metrics in shown(name, 60):
        latencies = client.inter_token_latencies(start, end)
        for order in QUANTILES:
            labels = {"quantile": str(order)}
            lower = value(metrics, "llm_inter_token_latency_bound_seconds", **labels, bound="lower")
            upper = value(metrics, "llm_inter_token_latency_bound_seconds", **labels, bound="upper") or math.inf
            assert lower is not None
            # The machine was busy, and a client's clock sees the network and its own scheduling as well: single
            # observations cross an edge, so ranks are allowed to be off by 2 % of all and a handful.
            slack = 0.02 * len(latencies) + 3
            assert ranked(latencies, order * len(latencies) + slack) >= lower
            assert ranked(latencies, order * len(latencies) - slack) <= upper
            inside.append(lower <= ranked(latencies, order * len(latencies)) <= upper)
    assert len(inside) > 50
    assert statistics.mean(inside) > 0.8


def ranked(latencies: list[float], rank: float) -> float:
    return latencies[min(len(latencies), max(1, math.ceil(rank))) - 1]


@pytest.mark.parametrize("name", ["batch-ramp", "speculative", "prefill-interference"])
def test_inter_token_quantiles_are_those_of_prometheus_from_the_same_two_pages(name: str) -> None:
    times = [time for time, _ in bodies(name)]
    pages = dict(bodies(name))
    compared = 0
    for time, metrics in replayed(name, window=30):
        start = min(times, key=lambda earlier: abs(earlier - (time - 30)))
        if start >= time or not values(metrics, "llm_inter_token_latency_seconds"):
            continue
        (first,) = PageReader(METRIC_NAMES).read(pages[start]).engines.values()
        (last,) = PageReader(METRIC_NAMES).read(pages[time]).engines.values()
        latency = subtract_counters(first, last).inter_token_latency
        assert latency is not None
        for order in QUANTILES:
            found = value(metrics, "llm_inter_token_latency_seconds", quantile=str(order))
            assert found == pytest.approx(theirs(order, latency.upper_bounds, latency.cumulative), rel=1e-9)
            compared += 1
    assert compared > 80


def theirs(order: float, edges: tuple[float, ...], cumulative: tuple[float, ...]) -> float:
    """Prometheus' bucketQuantile, written down a second time; in the first bucket its upper edge."""
    rank = order * cumulative[-1]
    bucket = next((index for index, count in enumerate(cumulative[:-1]) if count >= rank), len(edges) - 1)
    if bucket == len(edges) - 1:
        return edges[-2]
    if bucket == 0:
        return edges[0]
    count, start = cumulative[bucket] - cumulative[bucket - 1], edges[bucket - 1]
    return start + (edges[bucket] - start) * ((rank - cumulative[bucket - 1]) / count)


def test_a_restart_yields_no_negative_no_spike_and_no_stale_value() -> None:
    client = truth("restart")
    most = max(
        client.decode_throughput_tokens_per_second(time, time + 1) for time in range(3, 74) if time not in range(19, 55)
    )
    states = []
    for time, metrics in replayed("restart"):
        up = value(metrics, "llm_target_up")
        states.append(up)
        assert all(number >= 0 for (name, _), number in metrics.items() if "growth" not in name)
        if up == 0:
            assert not any("model_name" in dict(labels) for _, labels in metrics)
        throughput = value(metrics, "llm_decode_throughput_tokens_per_second")
        if throughput is not None:
            assert throughput <= most * 1.01, time
    assert states.index(0) < len(states) - 10
    assert states[-1] == 1


def test_after_a_restart_the_window_starts_empty() -> None:
    back = False
    before: float | None = 1.0
    for _, metrics in replayed("restart"):
        up = value(metrics, "llm_target_up")
        if before == 0 and up == 1:
            back = True
            assert values(metrics, "llm_requests_running")
            assert not values(metrics, "llm_decode_throughput_tokens_per_second")
        before = up
    assert back


def test_a_restart_between_two_scrapes_is_detected_from_the_counters() -> None:
    pages = [(time, body) for time, body in bodies("restart")]
    gap = next(index for index in range(1, len(pages)) if pages[index][0] - pages[index - 1][0] > 5)
    reader = PageReader(METRIC_NAMES)
    before, after = reader.read(pages[gap - 1][1]), reader.read(pages[gap][1])
    window = append_page(append_page(PageWindow(), before, 0, 60), after, 1, 60)
    assert len(window.pages) == 1


def test_two_engines_have_two_series() -> None:
    for time, metrics in replayed("data-parallel"):
        if time > 18:
            assert len(values(metrics, "llm_requests_running")) == 2
            assert len(values(metrics, "llm_decode_throughput_tokens_per_second", engine="1")) == 1


@pytest.mark.parametrize("name", ["two-api-servers", "data-parallel"])
def test_steps_counted_by_several_api_servers_are_not_doubled(name: str) -> None:
    ratios = []
    for _, _, metrics in shown(name, 10):
        for engine in ("0", "1") if name == "data-parallel" else ("0",):
            steps = value(metrics, "llm_engine_steps_per_second", engine=engine)
            latency = value(metrics, "llm_inter_token_latency_mean_seconds", engine=engine)
            streams = value(metrics, "llm_decode_streams", engine=engine)
            assert steps is not None
            assert latency is not None
            assert streams is not None
            # A step cannot be shorter than what lies between two outputs of the streams that it served.
            assert steps * latency <= 1.01
            if streams > 1.5:
                ratios.append(steps * latency)
    assert statistics.median(ratios) > 0.8


def test_steps_counted_by_one_api_server_are_taken_as_they_are() -> None:
    pages = dict(bodies("batch-ramp"))
    for start, end, metrics in shown("batch-ramp", 10):
        reader = PageReader(METRIC_NAMES)
        (first,) = reader.read(pages[start]).engines.values()
        (last,) = reader.read(pages[end]).engines.values()
        iterations = subtract_counters(first, last).iteration_tokens
        assert iterations is not None
        assert value(metrics, "llm_step_tokens") == pytest.approx(iterations.sum / iterations.count)


def test_speculation_shows_as_tokens_per_step_and_not_as_a_slower_stream() -> None:
    for _, _, metrics in shown("speculative", 30):
        per_step = value(metrics, "llm_tokens_per_step")
        latency = value(metrics, "llm_inter_token_latency_mean_seconds")
        assert per_step is not None
        assert latency is not None
        assert per_step > 2
        assert value(metrics, "llm_decode_tokens_per_second") == pytest.approx(per_step / latency)


def test_cached_prompt_tokens_are_counted_as_cache_hits() -> None:
    shared = [
        (value(metrics, "llm_prefill_throughput_tokens_per_second"), value(metrics, "llm_prefix_cache_hit_ratio"))
        for time, metrics in replayed("prefix-cache", window=10)
        if time > 40
    ]
    ratios = [ratio for _, ratio in shared if ratio is not None]
    assert ratios
    assert max(ratios) > 0.8


def test_a_paused_server_has_a_queue_and_no_stall() -> None:
    for time, metrics in replayed("paused"):
        if 30 < time < 74:
            waiting = value(metrics, "llm_requests_waiting")
            assert waiting is not None
            assert waiting > 0
            assert value(metrics, "llm_requests_running") == 0
            assert value(metrics, "llm_token_stall_seconds") is None


def test_a_stall_shows_while_it_lasts() -> None:
    client = truth("prefill-interference")
    arrivals = sorted(event for request in client.requests for event in request.events)
    longest = 0.0
    for time, metrics in replayed("prefill-interference"):
        stall = value(metrics, "llm_token_stall_seconds")
        if stall is None:
            continue
        longest = max(longest, stall)
        last = max((event for event in arrivals if event <= time), default=None)
        if last is not None:
            # Known from one scrape to the next: never longer than the truth, and shorter by one interval at most.
            assert stall <= time - last + 0.5
    assert longest > 3


def test_preemptions_and_a_full_cache_are_seen() -> None:
    peaks = []
    rates = []
    for _, metrics in replayed("preemption"):
        peaks += values(metrics, "llm_kv_cache_usage_ratio_peak")
        rates += values(metrics, "llm_preemptions_per_second")
    assert max(peaks) > 0.95
    assert max(rates) > 0


@pytest.mark.parametrize("name", OLDER)
def test_decode_is_what_clients_saw_on_every_release(name: str) -> None:
    speed = median_error(name, 15, "llm_decode_tokens_per_second", Truth.decode_tokens_per_second)
    throughput = median_error(
        name, 15, "llm_decode_throughput_tokens_per_second", Truth.decode_throughput_tokens_per_second
    )
    latency = median_error(name, 15, "llm_inter_token_latency_mean_seconds", Truth.inter_token_latency_mean_seconds)
    assert (speed < 0.01, throughput < 0.01, latency < 0.03) == (True, True, True)


@pytest.mark.parametrize("name", TELLS_CACHED)
def test_computed_prompt_tokens_are_those_that_the_server_reported_to_its_clients(name: str) -> None:
    metric = "llm_prefill_throughput_tokens_per_second"
    assert median_error(name, 15, metric, Truth.prefill_throughput_tokens_per_second) < 0.02


def test_without_a_count_of_cached_tokens_no_prefill_throughput_is_claimed() -> None:
    assert all(not values(m, "llm_prefill_throughput_tokens_per_second") for _, m in replayed("vllm-0.8.5"))


def test_a_server_before_its_first_request_is_up_and_has_no_engine() -> None:
    _, metrics = next(replayed("vllm-0.8.5"))
    assert value(metrics, "llm_target_up") == 1
    assert not values(metrics, "llm_requests_running")


def test_the_rust_front_end_counts_its_own_steps() -> None:
    pages = dict(bodies("rust-front-end"))
    for start, end, metrics in shown("rust-front-end", 15):
        (first,) = PageReader(METRIC_NAMES).read(pages[start]).engines.values()
        (last,) = PageReader(METRIC_NAMES).read(pages[end]).engines.values()
        counted = subtract_counters(first, last).iteration_tokens
        assert counted is not None
        assert value(metrics, "llm_engine_steps_per_second") == pytest.approx(counted.count / (end - start), rel=0.02)


def test_the_last_view_of_an_idle_api_server_is_not_taken_for_the_cache_of_the_engine() -> None:
    last = list(bodies("vllm-0.10.0-two-api-servers"))[-1][1]
    (sample,) = PageReader(METRIC_NAMES).read(last).engines.values()
    assert f'gpu_cache_usage_perc{{engine="0",model_name="tiny"}} {sample.kv_cache_usage}' in last
