"""Servers that differ from plain ones: what /metrics shows for pages made from public reports."""

from collections.abc import Iterator
from functools import cache

import pytest

from phasewatch.analysis.saturation import SaturationState
from tests.support.pages import Metrics, replayed, value, values
from tests.support.paths import CASES, RECORDINGS


@cache
def replay_case(name: str) -> list[tuple[float, Metrics]]:
    return list(replayed(name, folder=CASES))


def find_state(metrics: Metrics) -> str:
    (state,) = [state for state in SaturationState if value(metrics, "llm_saturation_state", state=state) == 1]
    return state.value


def list_since(name: str, time: float) -> Iterator[Metrics]:
    found = [metrics for t, metrics in replay_case(name) if t >= time]
    assert found
    yield from found


def test_a_server_that_never_generates_a_token_is_neither_stalled_nor_stuck() -> None:
    for metrics in list_since("embeddings", 0):
        assert values(metrics, "llm_token_stall_seconds") == []
        assert find_state(metrics) == "healthy"
    assert value(metrics, "llm_prefill_throughput_tokens_per_second") == pytest.approx(20_480)


def test_a_real_pooling_server_is_never_deferred_stuck_or_stalled() -> None:
    for _, metrics in replayed("pooling", folder=RECORDINGS):
        assert values(metrics, "llm_token_stall_seconds") == []
        assert find_state(metrics) not in {"deferred", "stuck"}


def test_gauges_of_an_engine_that_does_nothing_are_no_verdict_on_its_capacity() -> None:
    for metrics in list_since("frozen-after-abort", 60):
        assert find_state(metrics) == "stuck"
    assert value(metrics, "llm_token_stall_seconds") == pytest.approx(95)


def test_a_queue_that_nothing_explains_gets_no_limits_name() -> None:
    for metrics in list_since("admission-stopped", 60):
        assert find_state(metrics) == "deferred"
    assert value(metrics, "llm_token_stall_seconds") == 0


def test_a_counter_that_appears_when_it_first_counts_loses_nothing_and_blanks_nothing() -> None:
    by_time = dict(replay_case("ray-first-preemptions"))
    assert value(by_time[35.0], "llm_preemptions_per_second") == pytest.approx(40 / 35)
    assert value(by_time[35.0], "llm_decode_tokens_per_second") == pytest.approx(10)
    assert find_state(by_time[35.0]) == "preempting"
    assert find_state(by_time[30.0]) == "kv_cache_full"


@pytest.mark.parametrize("name", ["two-writers", "merged-start-time"])
def test_the_start_time_of_another_program_does_not_make_one_writer_of_two(name: str) -> None:
    for metrics in list_since(name, 5):
        assert value(metrics, "llm_engine_steps_per_second") == pytest.approx(20)
        assert value(metrics, "llm_step_tokens") == pytest.approx(23)


def test_blocks_that_layers_of_several_kinds_share_give_no_capacity() -> None:
    for metrics in list_since("sliding-window", 0):
        for name in ("llm_kv_cache_capacity_tokens", "llm_kv_cache_used_tokens", "llm_kv_cache_headroom_requests"):
            assert values(metrics, name) == []
        assert value(metrics, "llm_kv_cache_usage_ratio") == 0.5


@pytest.mark.parametrize("name", ["external-hits", "external-hits-no-prefix-cache"])
def test_tokens_loaded_from_elsewhere_are_not_computed_even_if_the_own_cache_has_no_hit(name: str) -> None:
    for metrics in list_since(name, 5):
        assert value(metrics, "llm_prefill_throughput_tokens_per_second") == pytest.approx(100)
        assert values(metrics, "llm_prefill_tokens_per_second") == []
        assert value(metrics, "llm_step_tokens") == pytest.approx(3.5)
        assert value(metrics, "llm_prompt_tokens_per_second", source="external_cache") == pytest.approx(3900)
        assert sum(values(metrics, "llm_prompt_tokens_per_second")) == pytest.approx(4000)


@pytest.mark.parametrize("name", ["preemption", "kv-saturation"])
def test_from_ten_seconds_before_the_first_counted_preemption_no_headroom_is_promised(name: str) -> None:
    """Until the last one is counted. When the load falls afterwards, there is room again."""
    seen = list(replayed(name, folder=RECORDINGS))
    rates = [(time, value(metrics, "llm_preemptions_per_second") or 0.0) for time, metrics in seen]
    first = next(time for time, rate in rates if rate > 0)
    last = max(time for time, metrics in seen if (value(metrics, "llm_requests_waiting") or 0) > 0)
    found = [value(metrics, "llm_kv_cache_headroom_requests") for time, metrics in seen if first - 10 <= time <= last]
    assert len(found) > 40
    assert set(found) <= {0.0, 1.0}
