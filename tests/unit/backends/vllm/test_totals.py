"""From vLLM's counters to totals and speeds: the formulas on small numbers, and when a number must be absent."""

from dataclasses import replace
from typing import Any

import pytest

from phasewatch.analysis.phases import Phases, compute_phases
from phasewatch.analysis.queue import KvCacheSize
from phasewatch.analysis.samples import EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, subtract_counters
from phasewatch.backends.page_state import PageContext
from phasewatch.backends.vllm.prompt_tokens import PromptTokens, count_prompt_tokens
from phasewatch.backends.vllm.quirks import (
    has_one_api_server,
    read_kv_cache_size,
)
from phasewatch.backends.vllm.totals import measure_totals
from phasewatch.config.settings import ServerSettings
from phasewatch.models.costs import KvCache, KvLayers, ModelSource

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


def measure(
    end: EngineSample = END,
    start: EngineSample = START,
    *,
    one_api_server: bool | None = True,
    version: str | None = "0.32.0",
) -> Phases:
    return measure_phases(EngineHistory((0.0, 10.0), (start, end)), one_api_server=one_api_server, version=version)


def measure_phases(past: EngineHistory, *, one_api_server: bool | None, version: str | None = None) -> Phases:
    """Both phases of a history whose page shows whether one API server writes it; None: it does not show it."""
    page = Page(None, one_api_server is None, {})
    newest = replace(past.newest, created=1.0 if one_api_server else None)
    return compute_phases(measure_totals(past, PageContext(page, newest, ServerSettings(), version, None)))


def test_the_formulas_give_the_expected_figures_for_small_numbers() -> None:
    assert measure() == Phases(
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


def test_a_single_scrape_has_no_phases() -> None:
    assert measure_phases(EngineHistory((0.0,), (END,)), one_api_server=True) == Phases()


def test_an_idle_server_has_rates_of_0_and_no_speeds() -> None:
    assert measure(END, END) == Phases(
        prefill_throughput_tokens_per_second=0,
        prefill_streams=0,
        decode_throughput_tokens_per_second=0,
        decode_streams=0,
        engine_steps_per_second=0,
    )


def test_the_speed_of_a_speculating_stream_counts_tokens_not_outputs() -> None:
    phases = measure(replace(END, inter_token_latency=Histogram(5.0, 40)))
    assert phases.decode_tokens_per_second == 20
    assert phases.tokens_per_step == 2.5


def test_a_page_read_between_two_updates_has_no_negative_speed() -> None:
    phases = measure(replace(END, generation_tokens=1.0))
    assert phases.decode_throughput_tokens_per_second is None
    assert phases.decode_tokens_per_second is None


def test_prefill_speed_is_unknown_if_finished_prefills_are_taken_over() -> None:
    assert measure(replace(END, prompt_tokens_transferred=500.0)).prefill_tokens_per_second is None


OLD = {"prompt_tokens_computed": None, "prompt_tokens_transferred": None, "request_computed_tokens": None}
EXTERNAL = {"external_prefix_cache_hits": 1900.0}


def test_cached_tokens_are_never_counted_as_computed() -> None:
    rows: list[tuple[dict[str, Any], dict[str, str], str | None, float | None]] = [
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
    ]
    for facts, config, version, computed in rows:
        end = replace(END, cache_config=config, **facts)
        start = replace(START, prompt_tokens_cached=0.0, external_prefix_cache_hits=0.0)
        prompts = count_prompt_tokens(subtract_counters(start, end), end, version)
        assert prompts.computed == computed, (facts, config, version)


def test_tokens_from_elsewhere_are_subtracted_with_or_without_hits_of_the_engines_own_cache() -> None:
    rows: list[tuple[dict[str, Any], dict[str, str], str | None, PromptTokens]] = [
        ({"prefix_cache_hits": 0.0, "external_prefix_cache_hits": 1900.0}, {}, None, PromptTokens(100, 0, 1900)),
        ({"prefix_cache_hits": 0.0, "external_prefix_cache_hits": 1900.0}, {}, "0.12.0", PromptTokens(100, 0, 1900)),
        ({"prefix_cache_hits": 1.0, "external_prefix_cache_hits": 1900.0}, {}, "0.12.0", PromptTokens(99, 1, 1900)),
        (
            {"prefix_cache_hits": None, "external_prefix_cache_hits": 500.0},
            {"enable_prefix_caching": "False"},
            None,
            PromptTokens(1500, 0, 500),
        ),
        ({"prompt_tokens_cached": 700.0, "external_prefix_cache_hits": 300.0}, {}, None, PromptTokens(1300, 400, 300)),
        ({"prompt_tokens_cached": 700.0, "external_prefix_cache_hits": 800.0}, {}, None, PromptTokens()),
        ({"prefix_cache_hits": 0.0, "external_prefix_cache_hits": 2001.0}, {}, None, PromptTokens()),
    ]
    for facts, config, version, expected in rows:
        end = replace(END, cache_config=config, **{**OLD, **facts})
        start = replace(START, prompt_tokens_cached=0.0, external_prefix_cache_hits=0.0)
        prompts = count_prompt_tokens(subtract_counters(start, end), end, version)
        assert prompts == expected, facts
        assert prompts.total in {None, end.prompt_tokens}, facts


def test_prefill_speed_is_unknown_once_tokens_came_from_elsewhere_even_before_the_window() -> None:
    for facts in ({"prompt_tokens_transferred": 500.0}, {**OLD, "prefix_cache_hits": 0.0, **EXTERNAL}):
        start, end = (replace(sample, **facts) for sample in (START, END))
        assert measure(end, start).prefill_tokens_per_second is None, facts


def test_the_hit_ratio_is_that_of_the_prompts_where_the_page_has_their_sources() -> None:
    start = replace(START, prompt_tokens_local_hits=0.0)
    end = replace(END, prompt_tokens_local_hits=500.0, prompt_tokens_transferred=300.0)
    assert measure(end, start).prefix_cache_hit_ratio == 500 / 2000


def test_a_source_that_is_missing_beside_others_was_0() -> None:
    """Front ends that create a series when it first counts do not show sources that never did."""
    sources = ("prompt_tokens_computed", "prompt_tokens_local_hits", "prompt_tokens_transferred")
    for name, expected in zip(
        sources, (PromptTokens(9, 0, 0), PromptTokens(0, 9, 0), PromptTokens(0, 0, 9)), strict=True
    ):
        sample = EngineSample(prompt_tokens=9.0, **{name: 9.0})  # type: ignore[arg-type]  # fields of the sample
        assert count_prompt_tokens(sample, sample, None) == expected, name


def test_a_hit_ratio_above_1_is_absent() -> None:
    # The counters were read in the middle of an update, or count blocks and tokens (0.8).
    assert measure(replace(END, prefix_cache_hits=2001.0)).prefix_cache_hit_ratio is None
    assert measure(replace(END, prefix_cache_hits=2000.0)).prefix_cache_hit_ratio == 1.0


def test_before_0_16_prefill_speed_is_known_only_without_cache_hits() -> None:
    rows: list[tuple[dict[str, Any], float | None]] = [
        ({"prefix_cache_hits": 0.0}, 2000 / 1.2),
        ({"prefix_cache_hits": 1.0}, None),
        ({"prefix_cache_hits": None, "cache_config": {"enable_prefix_caching": "False"}}, 2000 / 1.2),
    ]
    for facts, speed in rows:
        assert measure(replace(END, **{**OLD, **facts})).prefill_tokens_per_second == speed, facts


def test_one_api_server_follows_from_the_configuration_or_else_from_the_page() -> None:
    rows: list[tuple[Page, float | None, int | None, bool | None]] = [
        (Page(1.0, False, {}), None, None, None),
        (Page(1.0, False, {}), 1.0, None, True),
        (Page(None, False, {}), 1.0, None, True),
        (Page(None, False, {}), None, None, False),
        (Page(None, True, {}), None, None, None),
        (Page(1.0, False, {}), 1.0, 2, False),
        (Page(None, True, {}), None, 2, False),
        (Page(None, False, {}), None, 1, True),
    ]
    for page, created, configured, expected in rows:
        assert has_one_api_server(page, EngineSample(created=created), configured) is expected, (
            page,
            created,
            configured,
        )


def test_behind_several_api_servers_steps_follow_from_latency_scrape_by_scrape() -> None:
    def at(count: float, seconds: float, counted: float) -> EngineSample:
        return EngineSample(inter_token_latency=Histogram(seconds, count), iteration_tokens=Histogram(0, counted))

    # 4 streams for 10 s at 0.05 s a step, a single stream for 5 of the next 10 s at 0.02 s, then nothing.
    samples = (at(0, 0, 0), at(800, 40, 400), at(1050, 45, 900), at(1050, 45, 900))
    past = EngineHistory((0.0, 10.0, 20.0, 30.0), samples, frozenset())
    phases = measure_phases(past, one_api_server=False).engine_steps_per_second
    assert phases == pytest.approx((200 + 250) / 30)


def test_behind_several_api_servers_steps_do_not_exceed_the_counted_ones() -> None:
    samples = (
        EngineSample(inter_token_latency=Histogram(0, 0), iteration_tokens=Histogram(0, 0)),
        EngineSample(inter_token_latency=Histogram(30, 600), iteration_tokens=Histogram(0, 180)),
    )
    past = EngineHistory((0.0, 10.0), samples, frozenset())
    phases = measure_phases(past, one_api_server=False)
    assert phases.engine_steps_per_second == 18


def test_an_inflated_count_is_not_used_if_the_number_of_api_servers_is_unknown() -> None:
    for counted, steps in ((190, 19.0), (400, 20.0)):
        samples = (
            EngineSample(inter_token_latency=Histogram(0, 0), iteration_tokens=Histogram(0, 0)),
            EngineSample(inter_token_latency=Histogram(30, 600), iteration_tokens=Histogram(0, counted)),
        )
        past = EngineHistory((0.0, 10.0), samples, frozenset())
        phases = measure_phases(past, one_api_server=None)
        assert phases.engine_steps_per_second == steps, counted


def test_behind_several_api_servers_steps_without_any_decode_are_unknown() -> None:
    end = replace(END, inter_token_latency=Histogram(0, 0))
    assert measure(end, one_api_server=False).engine_steps_per_second is None
    assert measure(START, one_api_server=False).engine_steps_per_second == 0
    assert measure(end, one_api_server=None).engine_steps_per_second == 5.2


FULL, WINDOW = KvLayers(36_864.0), KvLayers(36_864.0, span=128)


def read_capacity(
    config: dict[str, str], *layers: KvLayers, alone: bool = True, version: str | None = "0.20.0"
) -> float | None:
    """The capacity of a model with such layers according to its files, by the labels of the cache configuration."""
    cache = KvCache(layers, 2.0, ModelSource.CONFIG_JSON) if layers else None
    size = read_kv_cache_size(EngineSample(cache_config=config), alone=alone, version=version, kv_cache=cache)
    return size.capacity if size else None


def test_the_capacity_follows_from_the_cache_configuration_or_is_unknown() -> None:
    rows: list[tuple[dict[str, str], bool, float | None]] = [
        ({"kv_cache_size_tokens": "512", "num_gpu_blocks": "9", "block_size": "16"}, False, 512),
        ({"num_gpu_blocks": "100", "block_size": "16"}, True, 1600),
        ({"kv_cache_size_tokens": "None", "num_gpu_blocks": "100", "block_size": "16"}, True, 1600),
        ({"num_gpu_blocks": "100", "block_size": "16"}, False, None),
        ({"num_gpu_blocks": "None", "block_size": "16"}, True, None),
        ({"num_gpu_blocks": "100", "block_size": "16", "mamba_block_size": "64"}, True, None),
        ({}, True, None),
    ]
    for config, alone, capacity in rows:
        assert read_capacity(config, FULL, alone=alone) == capacity, (config, alone)


def test_blocks_of_a_model_whose_layers_differ_or_are_unknown_give_no_capacity() -> None:
    blocks = {"num_gpu_blocks": "9798", "block_size": "16", "sliding_window": "None"}
    assert read_capacity(blocks, FULL, WINDOW) is None
    assert read_capacity(blocks) is None
    assert read_capacity(blocks, version=None) is None
    assert read_capacity(blocks, WINDOW) == 156_768
    assert read_capacity({**blocks, "kv_cache_size_tokens": "78384"}, FULL, WINDOW) == 78_384


def test_requests_get_whole_blocks_and_one_block_is_never_given_out() -> None:
    sample = EngineSample(cache_config={"kv_cache_size_tokens": "512", "block_size": "16"})
    assert read_kv_cache_size(sample, alone=True, version=None, kv_cache=None) == KvCacheSize(512, 16, 16)
    sample = EngineSample(cache_config={"kv_cache_size_tokens": "512", "block_size": "None"})
    assert read_kv_cache_size(sample, alone=True, version=None, kv_cache=None) == KvCacheSize(512)


def test_before_layers_shared_blocks_every_model_had_the_capacity_of_its_blocks() -> None:
    blocks = {"num_gpu_blocks": "100", "block_size": "16"}
    for version in ("0.8.5", "0.9.2"):
        assert read_capacity(blocks, version=version) == read_capacity(blocks, FULL, WINDOW, version=version) == 1600


def test_figures_that_an_operator_gives_say_nothing_about_the_layers() -> None:
    cache = KvCache((FULL,), 2.0, ModelSource.CONFIG)
    sample = EngineSample(cache_config={"num_gpu_blocks": "100", "block_size": "16"})
    assert read_kv_cache_size(sample, alone=True, version="0.20.0", kv_cache=cache) is None
