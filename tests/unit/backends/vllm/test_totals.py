"""From vLLM's counters to totals and speeds: the formulas on small numbers, and when a number must be absent."""

from dataclasses import replace
from typing import Any

import pytest

from phasewatch.analysis.phases import Phases, compute_phases
from phasewatch.analysis.samples import EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, subtract_counters
from phasewatch.backends.page_state import PageContext
from phasewatch.backends.vllm.quirks import (
    count_computed_prompt_tokens,
    has_one_api_server,
    read_kv_cache_capacity,
)
from phasewatch.backends.vllm.totals import measure_totals

START = EngineSample(
    prompt_tokens=0,
    prompt_tokens_computed=0,
    prompt_tokens_transferred=0,
    generation_tokens=0,
    prefix_cache_queries=0,
    prefix_cache_hits=0,
    iteration_tokens=Histogram(0, 0),
    time_to_first_token=Histogram(0, 0),
    inter_token_latency=Histogram(0, 0),
    prefill_time=Histogram(0, 0),
    request_computed_tokens=Histogram(0, 0),
    request_prompt_tokens=Histogram(0, 0),
)
# Two requests of 1,000 prompt tokens, 400 of them cached, put out 51 tokens each at 20 tokens per second.
END = replace(
    START,
    prompt_tokens=2000.0,
    prompt_tokens_computed=1200.0,
    generation_tokens=102.0,
    prefix_cache_queries=2000.0,
    prefix_cache_hits=800.0,
    iteration_tokens=Histogram(1302, 52),
    time_to_first_token=Histogram(1.5, 2),
    inter_token_latency=Histogram(5.0, 100),
    prefill_time=Histogram(1.2, 2),
    request_computed_tokens=Histogram(1200, 2),
    request_prompt_tokens=Histogram(2000, 2),
)


def measured(
    end: EngineSample = END,
    start: EngineSample = START,
    *,
    one_api_server: bool | None = True,
    version: str | None = "0.32.0",
) -> Phases:
    return phases_of(EngineHistory((0.0, 10.0), (start, end)), one_api_server=one_api_server, version=version)


def phases_of(past: EngineHistory, *, one_api_server: bool | None, version: str | None = None) -> Phases:
    """Both phases of a history whose page tells, or does not, whether one API server writes it."""
    page = Page(1.0 if one_api_server else None, one_api_server is None, {})
    return compute_phases(measure_totals(past, PageContext(page, past.newest, None, version)))


def test_each_formula_gives_what_was_put_in() -> None:
    assert measured() == Phases(
        prefill_tokens_per_second=1000,
        prefill_throughput_tokens_per_second=120,
        prefill_streams=0.12,
        decode_tokens_per_second=20,
        decode_throughput_tokens_per_second=10,
        decode_streams=0.5,
        tokens_per_step=1,
        engine_steps_per_second=5.2,
        step_tokens=(1200 + 102) / 52,
        prefix_cache_hit_ratio=0.4,
    )


def test_nothing_is_known_from_a_single_scrape() -> None:
    assert phases_of(EngineHistory((0.0,), (END,)), one_api_server=True) == Phases()


def test_an_idle_server_has_rates_of_0_and_no_speeds() -> None:
    assert measured(END, END) == Phases(
        prefill_throughput_tokens_per_second=0,
        prefill_streams=0,
        decode_throughput_tokens_per_second=0,
        decode_streams=0,
        engine_steps_per_second=0,
    )


def test_with_speculation_the_speed_of_a_stream_counts_tokens_not_outputs() -> None:
    found = measured(replace(END, inter_token_latency=Histogram(5.0, 40)))
    assert found.decode_tokens_per_second == 20
    assert found.tokens_per_step == 2.5


def test_a_page_read_between_two_updates_gives_no_negative_speed() -> None:
    found = measured(replace(END, generation_tokens=1.0))
    assert found.decode_throughput_tokens_per_second is None
    assert found.decode_tokens_per_second is None


def test_prefill_speed_is_unknown_where_finished_prefills_are_taken_over() -> None:
    assert measured(replace(END, prompt_tokens_transferred=500.0)).prefill_tokens_per_second is None


OLD = {"prompt_tokens_computed": None, "request_computed_tokens": None}


@pytest.mark.parametrize(
    ("facts", "config", "version", "computed"),
    [
        ({}, {}, None, 1200),
        ({**OLD, "prompt_tokens_cached": 700.0}, {}, None, 1300),
        (OLD, {}, "0.12.0", 1200),
        ({**OLD, "external_prefix_cache_hits": 100.0}, {}, "0.12.0", 1100),
        ({**OLD, "prefix_cache_hits": 50.0}, {"block_size": "16"}, "0.8.5", 1200),
        ({**OLD, "prefix_cache_hits": 50.0}, {"block_size": "None"}, "0.8.5", None),
        (OLD, {}, None, None),
        ({**OLD, "prefix_cache_hits": 0.0}, {}, None, 2000),
        ({**OLD, "prefix_cache_hits": None}, {"enable_prefix_caching": "False"}, None, 2000),
        ({**OLD, "prefix_cache_hits": None}, {"enable_prefix_caching": "True"}, "0.9.0", None),
        (
            {**OLD, "prefix_cache_hits": None, "prefix_cache_queries": None},
            {"enable_prefix_caching": "None"},
            "0.8.5",
            2000,
        ),
        ({**OLD, "prefix_cache_hits": None}, {"enable_prefix_caching": "None"}, "0.8.5", None),
        ({**OLD, "prefix_cache_hits": 3000.0}, {}, "0.12.0", None),
        ({**OLD, "prompt_tokens": None}, {}, "0.12.0", None),
    ],
)
def test_cached_tokens_are_never_taken_for_computed_ones(
    facts: dict[str, Any], config: dict[str, str], version: str | None, computed: float | None
) -> None:
    end = replace(END, cache_config=config, **facts)
    start = replace(START, prompt_tokens_cached=0.0, external_prefix_cache_hits=0.0)
    assert count_computed_prompt_tokens(subtract_counters(start, end), end, version) == computed


@pytest.mark.parametrize(
    ("facts", "speed"),
    [
        ({"prefix_cache_hits": 0.0}, 2000 / 1.2),
        ({"prefix_cache_hits": 1.0}, None),
        ({"prefix_cache_hits": None, "cache_config": {"enable_prefix_caching": "False"}}, 2000 / 1.2),
    ],
)
def test_before_0_16_prefill_speed_is_known_only_where_nothing_was_ever_cached(
    facts: dict[str, Any], speed: float | None
) -> None:
    assert measured(replace(END, **{**OLD, **facts})).prefill_tokens_per_second == speed


@pytest.mark.parametrize(
    ("page", "created", "configured", "one"),
    [
        (Page(1.0, False, {}), None, None, True),
        (Page(None, False, {}), 1.0, None, True),
        (Page(None, False, {}), None, None, False),
        (Page(None, True, {}), None, None, None),
        (Page(1.0, False, {}), 1.0, 2, False),
        (Page(None, True, {}), None, 2, False),
        (Page(None, False, {}), None, 1, True),
    ],
)
def test_one_api_server_is_told_by_the_configuration_or_else_by_the_page(
    page: Page, created: float | None, configured: int | None, one: bool | None
) -> None:
    assert has_one_api_server(page, EngineSample(created=created), configured) is one


def test_behind_several_api_servers_steps_follow_from_latency_scrape_by_scrape() -> None:
    def at(count: float, seconds: float, counted: float) -> EngineSample:
        return EngineSample(inter_token_latency=Histogram(seconds, count), iteration_tokens=Histogram(0, counted))

    # 4 streams for 10 s at 0.05 s a step, a single stream for 5 of the next 10 s at 0.02 s, then nothing.
    samples = (at(0, 0, 0), at(800, 40, 400), at(1050, 45, 900), at(1050, 45, 900))
    past = EngineHistory((0.0, 10.0, 20.0, 30.0), samples, frozenset())
    found = phases_of(past, one_api_server=False).engine_steps_per_second
    assert found == pytest.approx((200 + 250) / 30)


def test_behind_several_api_servers_there_are_no_more_steps_than_were_counted() -> None:
    samples = (
        EngineSample(inter_token_latency=Histogram(0, 0), iteration_tokens=Histogram(0, 0)),
        EngineSample(inter_token_latency=Histogram(30, 600), iteration_tokens=Histogram(0, 180)),
    )
    past = EngineHistory((0.0, 10.0), samples, frozenset())
    found = phases_of(past, one_api_server=False)
    assert found.engine_steps_per_second == 18


@pytest.mark.parametrize(("counted", "steps"), [(190, 19.0), (400, 20.0)])
def test_where_it_is_not_sure_that_one_server_counts_an_inflated_count_is_not_taken(
    counted: float, steps: float
) -> None:
    samples = (
        EngineSample(inter_token_latency=Histogram(0, 0), iteration_tokens=Histogram(0, 0)),
        EngineSample(inter_token_latency=Histogram(30, 600), iteration_tokens=Histogram(0, counted)),
    )
    past = EngineHistory((0.0, 10.0), samples, frozenset())
    found = phases_of(past, one_api_server=None)
    assert found.engine_steps_per_second == steps


def test_behind_several_api_servers_steps_without_any_decode_are_unknown() -> None:
    end = replace(END, inter_token_latency=Histogram(0, 0))
    assert measured(end, one_api_server=False).engine_steps_per_second is None
    assert measured(START, one_api_server=False).engine_steps_per_second == 0
    assert measured(end, one_api_server=None).engine_steps_per_second == 5.2


@pytest.mark.parametrize(
    ("config", "alone", "capacity"),
    [
        ({"kv_cache_size_tokens": "512", "num_gpu_blocks": "9", "block_size": "16"}, False, 512),
        ({"num_gpu_blocks": "100", "block_size": "16"}, True, 1600),
        ({"kv_cache_size_tokens": "None", "num_gpu_blocks": "100", "block_size": "16"}, True, 1600),
        ({"num_gpu_blocks": "100", "block_size": "16"}, False, None),
        ({"num_gpu_blocks": "None", "block_size": "16"}, True, None),
        ({"num_gpu_blocks": "100", "block_size": "16", "mamba_block_size": "64"}, True, None),
        ({}, True, None),
    ],
)
def test_the_capacity_is_what_the_server_says_or_unknown(
    config: dict[str, str], alone: bool, capacity: float | None
) -> None:
    assert read_kv_cache_capacity(EngineSample(cache_config=config), alone=alone) == capacity
