"""Requests of real servers, held against what their clients saw: how many finished, how long they were and took."""

import math
from bisect import bisect_left

import pytest

from tests.support.pages import Metrics, bodies, replayed, value, values
from tests.support.truth import Request, truth

# Not here: `restart`, whose counts begin again (below). No client of these recordings gave up: vLLM would not have
# counted its request.
WHOLE = (
    *("single-stream", "batch-ramp", "data-parallel", "two-api-servers", "speculative", "kv-saturation", "preemption"),
    *("seq-limit", "prefill-limited", "prefill-interference", "prefix-cache", "paused", "shedding", "mfu-metrics"),
    *("disaggregated-prefill", "disaggregated-decode", "rust-front-end", "vllm-0.16.0", "vllm-0.12.0", "vllm-0.10.0"),
    *("vllm-0.10.0-two-api-servers", "vllm-0.9.1", "vllm-0.8.5"),
)
SLACK = 0.5
"""Seconds by which a client may see the end of a request before or after the page counts it."""


def done(name: str, start: float, end: float) -> list[Request]:
    """The requests whose last token came in (start, end]."""
    return [request for request in truth(name).requests if request.events and start < request.events[-1] <= end]


def sum_totals(metrics: Metrics, metric: str) -> tuple[float, float]:
    """Sum and count of a summary over all engines."""
    return sum(values(metrics, f"{metric}_sum")), sum(values(metrics, f"{metric}_count"))


@pytest.mark.parametrize("name", WHOLE)
def test_the_totals_of_requests_are_those_of_the_clients(name: str) -> None:
    first: dict[str, tuple[float, float]] | None = None
    ends = []
    lengths = {
        "llm_request_prompt_tokens": lambda request: request.prompt + request.cached,
        "llm_request_output_tokens": lambda request: request.generated,
        "llm_request_latency_seconds": lambda request: request.events[-1] - request.sent,
    }
    for time, metrics in replayed(name):
        totals = {metric: sum_totals(metrics, metric) for metric in lengths}
        first = first or totals
        least, most = done(name, 0.0, time - SLACK), done(name, 0.0, time + SLACK)
        for metric, measure in lengths.items():
            total, count = (now - before for now, before in zip(totals[metric], first[metric], strict=True))
            assert len(least) <= count <= len(most), (time, metric)
            if len(least) == len(most):
                # A client's clock sees its own scheduling and the network as well; tokens are exact.
                tolerance = 0.05 if metric == "llm_request_latency_seconds" else 0.0
                assert total == pytest.approx(sum(map(measure, most)), rel=tolerance), (time, metric)
                ends.append(count)
    assert ends[-1] > 0
    assert ends[-1] >= 0.7 * len(truth(name).requests)  # the last page may come before the last requests end


def test_after_a_restart_the_totals_are_those_of_the_new_server() -> None:
    *_, (end, metrics) = replayed("restart")
    restart = 20.0
    assert sum_totals(metrics, "llm_request_output_tokens")[1] == len(done("restart", restart + 10, end)) == 15


@pytest.mark.parametrize("name", WHOLE)
def test_requests_finished_per_second_are_those_of_the_clients(name: str) -> None:
    times: list[float] = []
    compared = 0
    for time, metrics in replayed(name, window=15):
        rates = values(metrics, "llm_requests_finished_per_second")
        start = min(times, key=lambda earlier: abs(earlier - (time - 15)), default=time)
        if rates and LAZY.get(name, 0.0) <= start < time:
            finished = round(sum(rates) * (time - start))
            assert len(done(name, start + SLACK, time - SLACK)) <= finished, time
            assert finished <= len(done(name, start - SLACK, time + SLACK)), time
            assert not values(metrics, "llm_requests_finished_per_second", reason="abort")
            compared += 1
        times.append(time)
    assert compared > 10


LAZY = {"rust-front-end": 28.0, "vllm-0.8.5": 12.0}
"""Seconds at which the page has counted a request: these front ends show a reason only once it has occurred."""


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in {"data-parallel", "vllm-0.8.5"}])
def test_true_quantiles_of_finished_requests_are_in_the_bucket_that_is_shown(name: str) -> None:
    first = next(time for time, _ in bodies(name))
    inside = 0
    for time, metrics in replayed(name, window=1e6):
        requests = done(name, first, time)
        if len(requests) < 3 or len(requests) != len(done(name, first, time - SLACK)):
            continue
        truths = {
            "llm_request_prompt_tokens": [request.prompt + request.cached for request in requests],
            "llm_request_output_tokens": [request.generated for request in requests],
        }
        for metric, lengths in truths.items():
            for order in (0.5, 0.9, 0.99):
                shown = value(metrics, metric, quantile=str(order))
                true = sorted(lengths)[max(0, math.ceil(order * len(lengths)) - 1)]
                if shown is not None:
                    assert share_a_bucket(shown, true), (time, metric, order)
                    inside += 1
    assert inside > 10


ONE_TWO_FIVE = tuple(factor * 10.0**power for power in range(6) for factor in (1, 2, 5))


def share_a_bucket(shown: float, true: float) -> bool:
    """Whether a true length is in the bucket that a shown one comes from, whose upper edge may be shown itself."""
    edge = bisect_left(ONE_TWO_FIVE, true)
    lower = ONE_TWO_FIVE[edge - 1] if edge else 0.0
    return lower <= shown <= ONE_TWO_FIVE[edge]


def test_refused_requests_are_http_5xx_and_errors() -> None:
    first = next(time for time, _ in bodies("shedding"))
    *_, (end, metrics) = replayed("shedding", window=1e6)
    answers = {
        status: round(rate * (end - first))
        for status in ("2xx", "4xx", "5xx")
        for rate in values(metrics, "llm_http_requests_per_second", status=status)
    }
    # 101 of 1375 clients were served. 14 of the others had been answered 200 before they were refused in the stream.
    assert answers == {"2xx": 115, "4xx": 0, "5xx": 1260}
    assert value(metrics, "llm_request_error_ratio") == pytest.approx(1274 / 1375)


@pytest.mark.parametrize("name", ["batch-ramp", "preemption", "speculative", "vllm-0.12.0", "two-api-servers"])
def test_a_server_on_which_all_went_well_has_no_errors(name: str) -> None:
    ratios = [ratio for _, metrics in replayed(name) for ratio in values(metrics, "llm_request_error_ratio")]
    assert len(ratios) > 10
    assert not any(ratios)


@pytest.mark.parametrize("name", ["disaggregated-prefill", "disaggregated-decode", "prefix-cache", "vllm-0.12.0"])
def test_prompt_tokens_by_source_add_up_to_those_of_the_page(name: str) -> None:
    pages = {time: count_prompt_tokens(body) for time, body in bodies(name)}
    compared = 0
    for time, metrics in replayed(name, window=1e6):
        rates = values(metrics, "llm_prompt_tokens_per_second")
        first = min(pages)
        if rates and time > first + 20:
            assert len(rates) == 3
            # The exporter's times are those at which a page was complete.
            assert sum(rates) * (time - first) == pytest.approx(pages[time] - pages[first], rel=0.02)
            compared += 1
    assert compared > 20


def count_prompt_tokens(body: str) -> float:
    return sum(
        float(line.rpartition(" ")[2]) for line in body.splitlines() if line.startswith("vllm:prompt_tokens_total")
    )


def test_transferred_tokens_are_never_in_the_prefill_figures_of_a_decode_pool() -> None:
    *_, (_, metrics) = replayed("disaggregated-decode", window=1e6)
    rate = {
        source: value(metrics, "llm_prompt_tokens_per_second", source=source)
        for source in ("computed", "local_cache", "external_cache")
    }
    # 13 prompts of 512 tokens, of which three blocks of 128 came from the prefill pool.
    assert rate["local_cache"] == 0
    assert rate["external_cache"] == pytest.approx(3 * (rate["computed"] or 0.0))
    for _, shown in replayed("disaggregated-decode", window=10):
        computed = value(shown, "llm_prompt_tokens_per_second", source="computed")
        assert value(shown, "llm_prefill_throughput_tokens_per_second") == computed
        if values(shown, "llm_time_to_first_token_seconds_count") != [0.0]:
            assert not values(shown, "llm_prefill_tokens_per_second")


def test_drafts_are_accepted_as_the_server_counts_them() -> None:
    *_, (_, last) = bodies("speculative")
    drafted, accepted = (
        float(
            next(line for line in last.splitlines() if line.startswith(f"vllm:spec_decode_num_{part}_total")).split()[1]
        )
        for part in ("draft_tokens", "accepted_tokens")
    )
    *_, (_, metrics) = replayed("speculative", window=1e6)
    assert value(metrics, "llm_draft_acceptance_ratio") == pytest.approx(accepted / drafted)
    assert not any(values(m, "llm_draft_acceptance_ratio") for _, m in replayed("rust-front-end"))


def test_a_decode_pool_has_the_decode_time_that_its_clients_saw() -> None:
    *_, (end, metrics) = replayed("disaggregated-decode", window=1e6)
    spans = [request.events[-1] - request.events[0] for request in done("disaggregated-decode", 0.0, end)]
    assert value(metrics, "llm_decode_time_mean_seconds") == pytest.approx(sum(spans) / len(spans), rel=0.01)
