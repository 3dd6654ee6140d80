"""Limits and utilisation: the formulas on small numbers, and when a figure must be absent."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.analysis.ceiling import (
    Basis,
    Ceiling,
    RateSource,
    compute_decode_ceiling,
    compute_single_stream_ceiling,
)
from phasewatch.analysis.samples import Histogram
from phasewatch.analysis.window import EngineHistory
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceLayout, DeviceSource, Precision
from phasewatch.models.costs import AttentionCosts, Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from tests.support.steady_load import Steady, measured

# 1,000 bytes per second against 100 bytes of weights, of which 80 are read, and 1 byte per token.
DEVICE = DeviceFacts(
    name="Abacus",
    memory_bandwidth=1000.0,
    bandwidth_source=DeviceSource.TABLE,
    compute=ComputeRates(bits16=4000.0, fp8=8000.0, int8=6000.0),
    compute_source=DeviceSource.TABLE,
)
MODEL = ModelCosts(
    weight_bytes=100.0,
    weight_source=ModelSource.SAFETENSORS,
    reads=WeightReads(dense_bytes=80.0, dense_parameters=40.0, head_parameters=10.0),
    kv_cache=KvCache((KvLayers(0.5),), 2.0, ModelSource.CONFIG_JSON),
    attention=(AttentionCosts(0.2),),
    precision=Precision.BITS16,
)
# Four streams of 50 tokens each, and two prompts of 100.
BUSY = Steady(streams=4, steps_per_second=2, context=50, prompts=2, prompt=100)


def measure_busy(
    busy: Steady = BUSY, device: DeviceFacts = DEVICE, model: ModelCosts = MODEL, *, engines: int = 1
) -> Ceiling:
    return measured(busy.history(), device, model, engines=engines)


# The formulas


def test_the_formulas_give_the_expected_figures_for_small_numbers() -> None:
    steps, weights, kv = 2, 80, 4 * 50
    # Layers: 20 prompt and 8 decoded tokens a second; head: those 8 and 0.2 first ones. Attention: to half a prompt,
    # and by each step to all that is held.
    operations = 2 * (30 * (20 + 8) + 10 * (8 + 0.2)) + 0.2 * (20 * 50 + steps * 4 * 50)
    prefill = 4000 / (2 * 30 + 0.2 * 50)
    ceiling = measure_busy()
    assert ceiling.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)
    assert replace(ceiling, compute_utilization_ratio={}) == Ceiling(
        device_info=("Abacus", 1),
        device_memory_bandwidth_bytes_per_second={"table": 1000},
        device_flops_per_second={"table": 4000},
        weight_bytes={"safetensors": 100},
        weight_read_bytes=weights,
        kv_cache_bytes_per_token={"config_json": 1},
        decode_ceiling_tokens_per_second={"weights": 1000 / 100, "read": 1000 / (weights + kv)},
        decode_ceiling_ratio={"weights": 2 / (1000 / 100), "read": 2 / (1000 / (weights + kv))},
        memory_read_bytes_per_second={"derived": steps * (weights + kv)},
        memory_bandwidth_utilization_ratio={"derived": steps * (weights + kv) / 1000},
        prefill_ceiling_tokens_per_second=prefill,
        prefill_ceiling_ratio=100 / prefill,
    )


@given(st.integers(1, 64), st.floats(0.1, 50))
def test_weights_are_read_once_per_step_whatever_the_batch(streams: int, steps: float) -> None:
    ceiling = measure_busy(Steady(streams=streams, steps_per_second=steps))
    assert ceiling.memory_read_bytes_per_second["derived"] == pytest.approx(steps * 80)


def test_a_server_that_is_idle_half_the_time_reads_half_as_much() -> None:
    past = BUSY.history()
    rested = EngineHistory((*past.times, 20.0), (*past.samples, past.samples[-1]), frozenset())
    half, whole = measured(rested, DEVICE, MODEL), measured(past, DEVICE, MODEL)
    assert half.memory_read_bytes_per_second["derived"] == whole.memory_read_bytes_per_second["derived"] / 2
    assert half.decode_ceiling_tokens_per_second == whole.decode_ceiling_tokens_per_second


def test_idle_time_does_not_change_the_batch_size() -> None:
    routed = replace(MODEL, reads=WeightReads(80.0, 40.0, 10.0, (Experts(8, 2, 10.0, 5.0),)))
    past = BUSY.history()
    rested = EngineHistory((*past.times, 100.0), (*past.samples, past.samples[-1]), frozenset())
    half, whole = measured(rested, DEVICE, routed), measured(past, DEVICE, routed)
    assert half.weight_read_bytes == pytest.approx(whole.weight_read_bytes)


def test_kv_cache_usage_is_weighted_by_steps() -> None:
    (empty, _) = BUSY.history().samples
    # 30 steps while the usage of 1,000 tokens goes from 0 to 0.2, and 10 until it is 0.6.
    samples = tuple(
        replace(
            empty,
            iteration_tokens=Histogram(0.0, steps),
            cache_config={"kv_cache_size_tokens": "1000"},
            kv_cache_usage=usage,
        )
        for steps, usage in ((0.0, 0.0), (30.0, 0.2), (40.0, 0.6))
    )
    ceiling = measured(EngineHistory((0.0, 10.0, 20.0), samples, frozenset()), DEVICE, MODEL)
    held = (30 * 100 + 10 * 400) / 40
    assert ceiling.memory_read_bytes_per_second["derived"] == pytest.approx(2 * (80 + held))
    assert ceiling.decode_ceiling_tokens_per_second["read"] == pytest.approx(1000 / (80 + held))


def test_a_scrape_without_usage_is_left_out_of_the_mean() -> None:
    past = BUSY.history()
    blind = replace(past.samples[-1], kv_cache_usage=None)
    longer = EngineHistory((*past.times, 20.0), (*past.samples, blind), frozenset())
    assert measured(longer, DEVICE, MODEL).decode_ceiling_tokens_per_second["read"] == 1000 / (80 + 200)
    only = EngineHistory(past.times, (past.samples[0], blind), frozenset())
    assert "read" not in measured(only, DEVICE, MODEL).decode_ceiling_tokens_per_second


def test_sliding_window_layers_read_at_most_their_window_of_each_stream() -> None:
    cache = KvCache((KvLayers(0.5), KvLayers(1.5, span=20)), 2.0, ModelSource.CONFIG_JSON)
    ceiling = measure_busy(model=replace(MODEL, kv_cache=cache))
    assert ceiling.kv_cache_bytes_per_token == {"config_json": 4}
    assert ceiling.memory_read_bytes_per_second["derived"] == 2 * (80 + 4 * (50 + 3 * 20))


def test_a_larger_batch_uses_more_experts() -> None:
    routed = replace(MODEL, weight_bytes=180.0, reads=WeightReads(80.0, 40.0, 10.0, (Experts(8, 2, 10.0, 5.0),)))
    single = measure_busy(Steady(streams=1, steps_per_second=2, context=50), model=routed)
    four = measure_busy(BUSY, model=routed)
    touched = 80 + 8 * (1 - 0.75**4) * 10
    assert single.weight_read_bytes == 80 + 2 * 10
    # 6 of 8 experts are left alone by a token, so the other 120 bytes of the weights are all that limits a stream.
    assert single.decode_ceiling_tokens_per_second["weights"] == pytest.approx(1000 / 120)
    assert four.decode_ceiling_tokens_per_second["weights"] == pytest.approx(1000 / 120)
    assert four.weight_read_bytes == pytest.approx(touched)
    assert four.memory_read_bytes_per_second["derived"] == pytest.approx(2 * (touched + 200))
    # A token is computed by its own experts only, whoever else is in the batch.
    assert single.compute_utilization_ratio["derived"] == pytest.approx((2 * 2 * (40 + 2 * 5) + 0.2 * 2 * 50) / 4000)


def test_speculation_adds_tokens_to_a_step_but_no_bytes() -> None:
    plain = measure_busy(Steady(streams=1, steps_per_second=8, context=50))
    drafted = measure_busy(Steady(streams=1, steps_per_second=8, context=50, tokens_per_step=3))
    assert drafted.memory_read_bytes_per_second == plain.memory_read_bytes_per_second
    assert drafted.decode_ceiling_tokens_per_second == plain.decode_ceiling_tokens_per_second
    # Each of the three tokens goes through all parameters, and attends to all that is held.
    assert drafted.compute_utilization_ratio["derived"] == pytest.approx(24 * (2 * 40 + 0.2 * 50) / 4000)
    assert drafted.decode_ceiling_ratio == {"weights": 2.4, "read": pytest.approx(24 / (1000 / 130))}


# Devices


def test_ceilings_of_16_gigabytes_of_weights_match_the_first_table_of_the_docs() -> None:
    for gigabytes, tokens in ((90, 6), (600, 38), (864, 54), (1008, 63), (2039, 127), (3350, 209)):
        limit = compute_decode_ceiling(16e9, DeviceFacts(memory_bandwidth=gigabytes * 1e9))
        assert limit is not None, gigabytes
        assert round(limit) == tokens, gigabytes


def test_bandwidths_add_only_for_devices_that_work_on_the_same_step() -> None:
    rows: list[tuple[DeviceLayout, int, float, float]] = [
        (DeviceLayout.TENSOR, 1, 4, 4),
        (DeviceLayout.TENSOR, 2, 4, 4),
        (DeviceLayout.PIPELINE, 1, 4, 1),
        (DeviceLayout.REPLICA, 4, 1, 1),
        (DeviceLayout.REPLICA, 2, 2, 1),
    ]
    for layout, engines, together, one_stream in rows:
        ceiling = measure_busy(device=replace(DEVICE, count=4, layout=layout), engines=engines)
        assert ceiling.device_info == ("Abacus", 4), (layout, engines)
        assert ceiling.device_memory_bandwidth_bytes_per_second == {"table": 1000 * together}, (layout, engines)
        assert ceiling.device_flops_per_second == {"table": 4000 * together}, (layout, engines)
        assert ceiling.decode_ceiling_tokens_per_second["weights"] == 10 * one_stream, (layout, engines)
        assert ceiling.decode_ceiling_tokens_per_second["read"] == pytest.approx(1000 / 280 * one_stream), (
            layout,
            engines,
        )
        assert ceiling.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(2 * 280 / (1000 * together)), (
            layout,
            engines,
        )
        assert ceiling.prefill_ceiling_tokens_per_second == pytest.approx(4000 / 70 * one_stream), (layout, engines)
        counted = measure_busy(
            replace(BUSY, read_bytes=50, flops=20), replace(DEVICE, count=4, layout=layout), engines=engines
        )
        assert counted.memory_read_bytes_per_second["engine"] == 50 * together, (layout, engines)
        assert counted.memory_bandwidth_utilization_ratio["engine"] == pytest.approx(0.05), (layout, engines)
        assert counted.compute_utilization_ratio["engine"] == pytest.approx(0.005), (layout, engines)


def test_read_times_add_if_part_of_the_model_is_in_host_memory() -> None:
    for share, host, steps in (
        (None, None, 10.0),
        (1.0, None, 10.0),
        (0.75, 100.0, 1 / (75 / 1000 + 25 / 100)),
        (0.0, 100.0, 1.0),
        (0.5, None, None),
        (0.0, None, None),
    ):
        assert compute_decode_ceiling(100.0, replace(DEVICE, cpu_memory_bandwidth=host), share) == pytest.approx(
            steps
        ), (share, host)


def test_a_model_in_host_memory_needs_no_device() -> None:
    assert compute_decode_ceiling(100.0, DeviceFacts(cpu_memory_bandwidth=200.0), 0.0) == 2


def test_a_measured_bandwidth_is_that_of_host_memory() -> None:
    cpu = replace(DEVICE, bandwidth_source=DeviceSource.MEASURED)
    assert compute_decode_ceiling(100.0, cpu, 0.0) == 10
    assert compute_decode_ceiling(100.0, replace(cpu, cpu_memory_bandwidth=500.0), 0.0) == 5


def test_a_single_stream_has_ceilings_without_a_window() -> None:
    device = replace(DEVICE, cpu_memory_bandwidth=100.0)
    ceiling = compute_single_stream_ceiling(
        device, MODEL, decode_tokens_per_second=1.5, context_tokens=120.0, gpu_share=0.5
    )
    limits = {"weights": 1 / (50 / 1000 + 50 / 100), "read": 1 / (100 / 1000 + 100 / 100)}
    assert ceiling.decode_ceiling_tokens_per_second == pytest.approx(limits)
    assert ceiling.decode_ceiling_ratio == pytest.approx({basis: 1.5 / limit for basis, limit in limits.items()})
    assert replace(ceiling, decode_ceiling_tokens_per_second={}, decode_ceiling_ratio={}) == Ceiling(
        device_info=("Abacus", 1),
        device_memory_bandwidth_bytes_per_second={"table": 1000},
        device_flops_per_second={"table": 4000},
        weight_bytes={"safetensors": 100},
        weight_read_bytes=80,
        kv_cache_bytes_per_token={"config_json": 1},
    )


def test_a_single_stream_of_unknown_reads_has_only_the_ceiling_of_its_weights() -> None:
    rows: list[dict[str, Any]] = [
        {"context_tokens": None},
        {"model": replace(MODEL, kv_cache=None)},
        {"model": replace(MODEL, reads=None)},
    ]
    for unknown in rows:
        facts: dict[str, Any] = {"model": MODEL, "context_tokens": 120.0, **unknown}
        ceiling = compute_single_stream_ceiling(DEVICE, decode_tokens_per_second=1.5, gpu_share=None, **facts)
        assert ceiling.decode_ceiling_ratio == {"weights": 0.15}, unknown


# Compute


def test_a_configured_compute_rate_applies_at_any_precision() -> None:
    configured = replace(DEVICE, compute=ComputeRates(500.0, 500.0, 500.0), compute_source=DeviceSource.CONFIG)
    assert measure_busy(device=configured, model=replace(MODEL, precision=None)).device_flops_per_second == {
        "config": 500
    }


def test_the_compute_rate_is_that_at_the_precision_of_the_model() -> None:
    rows: list[tuple[Precision | None, dict[str, float]]] = [
        (Precision.BITS16, {"table": 4000}),
        (Precision.FP8, {"table": 8000}),
        (Precision.INT8, {"table": 6000}),
        (None, {}),
    ]
    for precision, flops in rows:
        ceiling = measure_busy(model=replace(MODEL, precision=precision))
        assert ceiling.device_flops_per_second == flops, precision
        assert bool(ceiling.compute_utilization_ratio) == bool(flops), precision
        assert (ceiling.prefill_ceiling_ratio is not None) == bool(flops), precision


def test_computed_prompt_tokens_also_attend_to_a_cached_prefix() -> None:
    ceiling = measure_busy(replace(BUSY, cached=80))
    assert ceiling.prefill_ceiling_tokens_per_second == pytest.approx(4000 / (2 * 30 + 0.2 * 90))
    operations = 2 * (30 * (4 + 8) + 10 * 8.2) + 0.2 * (4 * 90 + 2 * 200)
    assert ceiling.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)


def test_sliding_window_layers_attend_to_at_most_their_window() -> None:
    windowed = replace(MODEL, attention=(AttentionCosts(0.2), AttentionCosts(0.3, span=20)))
    ceiling = measure_busy(model=windowed)
    # Half a prompt is 50 tokens, and so is what each of 4 streams holds.
    attended = 0.2 * 50 + 0.3 * 20
    assert ceiling.prefill_ceiling_tokens_per_second == pytest.approx(4000 / (2 * 30 + attended))
    operations = 2 * (30 * (20 + 8) + 10 * 8.2) + 20 * attended + 2 * 4 * attended
    assert ceiling.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)
    beyond = measure_busy(model=replace(MODEL, attention=(AttentionCosts(0.2, span=10**6),)))
    assert beyond == measure_busy()


def test_attention_is_counted_if_the_data_type_of_the_cache_is_unknown() -> None:
    unknown = measure_busy(model=replace(MODEL, kv_cache=KvCache((KvLayers(0.5),), None, ModelSource.CONFIG_JSON)))
    assert unknown.compute_utilization_ratio == measure_busy().compute_utilization_ratio
    assert unknown.kv_cache_bytes_per_token == {}
    assert unknown.memory_read_bytes_per_second == {}
    assert unknown.decode_ceiling_tokens_per_second == {"weights": 10}


def test_without_a_shape_attention_is_left_out_and_prefill_has_no_ceiling() -> None:
    ceiling = measure_busy(model=replace(MODEL, attention=None))
    assert ceiling.compute_utilization_ratio["derived"] == pytest.approx(2 * (30 * 28 + 10 * 8.2) / 4000)
    assert ceiling.prefill_ceiling_tokens_per_second is None


def test_compute_figures_need_the_number_of_parameters() -> None:
    ceiling = measure_busy(model=replace(MODEL, reads=WeightReads(80.0, None)))
    assert ceiling.compute_utilization_ratio == {}
    assert ceiling.prefill_ceiling_tokens_per_second is None
    assert ceiling.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(0.56)


# Unknown figures


def test_a_single_scrape_gives_the_facts_and_the_ceiling_of_the_weights() -> None:
    past = BUSY.history()
    ceiling = measured(EngineHistory(past.times[:1], past.samples[:1], frozenset()), DEVICE, MODEL)
    assert ceiling == Ceiling(
        device_info=("Abacus", 1),
        device_memory_bandwidth_bytes_per_second={"table": 1000},
        device_flops_per_second={"table": 4000},
        weight_bytes={"safetensors": 100},
        weight_read_bytes=80,
        kv_cache_bytes_per_token={"config_json": 1},
        decode_ceiling_tokens_per_second={"weights": 10},
    )


def test_an_idle_engine_reads_and_computes_nothing_and_has_no_ceiling_ratio() -> None:
    ceiling = measure_busy(Steady(streams=0))
    assert ceiling.memory_read_bytes_per_second == {"derived": 0}
    assert ceiling.memory_bandwidth_utilization_ratio == {"derived": 0}
    assert ceiling.compute_utilization_ratio == {"derived": 0}
    assert ceiling.weight_read_bytes == 80
    assert ceiling.decode_ceiling_tokens_per_second == {"weights": 10}
    assert ceiling.decode_ceiling_ratio == {}
    assert ceiling.prefill_ceiling_ratio is None


def test_an_engine_without_gauges_before_its_first_request_reads_nothing() -> None:
    past = Steady(streams=0).history()
    silent = tuple(replace(sample, kv_cache_usage=None, requests_running=None) for sample in past.samples)
    ceiling = measured(EngineHistory(past.times, silent, frozenset()), DEVICE, MODEL)
    assert ceiling.memory_read_bytes_per_second == {"derived": 0}
    assert ceiling.memory_bandwidth_utilization_ratio == {"derived": 0}
    # Without a cache or a capacity it would be known while idle, and not under load.
    blind = tuple(replace(sample, cache_config={}) for sample in silent)
    assert measured(EngineHistory(past.times, blind, frozenset()), DEVICE, MODEL).memory_read_bytes_per_second == {}
    no_cache = replace(MODEL, kv_cache=None)
    assert measured(EngineHistory(past.times, silent, frozenset()), DEVICE, no_cache).memory_read_bytes_per_second == {}


def test_a_sparse_model_of_unknown_experts_has_no_decode_ceiling() -> None:
    assert measure_busy(model=replace(MODEL, reads=None, sparse=True)).decode_ceiling_tokens_per_second == {}


def test_without_a_cache_capacity_bytes_come_from_the_server_alone() -> None:
    past = replace(BUSY, read_bytes=300, flops=600).history()
    samples = tuple(replace(sample, cache_config={}) for sample in past.samples)
    ceiling = measured(EngineHistory(past.times, samples, frozenset()), DEVICE, MODEL)
    assert ceiling.memory_read_bytes_per_second == {"engine": 300}
    assert ceiling.memory_bandwidth_utilization_ratio == {"engine": 0.3}
    assert ceiling.compute_utilization_ratio["engine"] == 0.15
    assert ceiling.decode_ceiling_tokens_per_second == {"weights": 10}
    # The attention of decode is left out: what is held is not known.
    assert ceiling.compute_utilization_ratio["derived"] == pytest.approx(
        (2 * (30 * 28 + 10 * 8.2) + 0.2 * 20 * 50) / 4000
    )


def test_read_bytes_need_the_costs_of_both_weights_and_cache() -> None:
    for model in (replace(MODEL, reads=None), replace(MODEL, kv_cache=None)):
        for busy in (BUSY, Steady(streams=0)):
            ceiling = measure_busy(busy, model=model)
            assert ceiling.memory_read_bytes_per_second == {}, model
            assert ceiling.decode_ceiling_tokens_per_second == {"weights": 10}, model


def test_counters_of_the_server_that_do_not_move_are_ignored() -> None:
    assert measure_busy(replace(BUSY, read_bytes=0, flops=0)) == measure_busy(BUSY)


def test_an_unknown_device_and_model_have_no_figures() -> None:
    assert measure_busy(device=DeviceFacts(), model=ModelCosts()) == Ceiling()


def test_an_unknown_device_has_rates_but_no_utilization() -> None:
    ceiling = measure_busy(device=DeviceFacts())
    assert ceiling.memory_read_bytes_per_second == {"derived": 560}
    assert ceiling.memory_bandwidth_utilization_ratio == {}
    assert ceiling.compute_utilization_ratio == {}
    assert ceiling.decode_ceiling_tokens_per_second == {}


@given(
    st.sampled_from([0.0, 1e-300, 1e300, math.inf]),
    st.sampled_from([0.0, 1e-300, 1e300, math.inf]),
    st.sampled_from([None, 0.0, 0.3, 1.0, 7.0]),
)
def test_absurd_facts_raise_nothing(bandwidth: float, weights: float, share: float | None) -> None:
    device = replace(DEVICE, memory_bandwidth=bandwidth, cpu_memory_bandwidth=bandwidth, count=10**6)
    model = replace(MODEL, weight_bytes=weights, reads=WeightReads(weights, weights))
    assert measure_busy(device=device, model=model).weight_read_bytes == weights
    compute_single_stream_ceiling(device, model, decode_tokens_per_second=1.0, context_tokens=1.0, gpu_share=share)


def test_weights_or_a_bandwidth_of_0_have_no_ceiling() -> None:
    assert compute_decode_ceiling(0.0, DEVICE) is None
    broken = measure_busy(device=replace(DEVICE, memory_bandwidth=0.0))
    assert broken.memory_bandwidth_utilization_ratio == {}
    assert broken.decode_ceiling_ratio == {}


def test_behind_several_api_servers_steps_follow_from_latency() -> None:
    (start, end) = BUSY.history().samples
    # Each of two processes counted every step with tokens, and one that put out first tokens alone; then all fell idle.
    counted = replace(end, iteration_tokens=Histogram(0.0, 40.0))
    later = replace(counted, iteration_tokens=Histogram(0.0, 80.0), kv_cache_usage=0.9)
    past = EngineHistory((0.0, 10.0, 20.0), (start, counted, later), frozenset())
    ceiling = measured(past, DEVICE, MODEL, one_api_server=False)
    assert ceiling.memory_read_bytes_per_second["derived"] == 280


def test_a_corrupt_histogram_of_steps_is_not_used() -> None:
    past = replace(BUSY.history(), corrupt=frozenset({"iteration_tokens"}))
    ceiling = measured(past, DEVICE, MODEL)
    assert ceiling.memory_read_bytes_per_second == {}
    assert ceiling.decode_ceiling_tokens_per_second == {"weights": 10}


def test_label_values_are_those_of_the_documented_metrics() -> None:
    assert [*Basis] == ["weights", "read"]
    assert [*RateSource] == ["derived", "engine"]


# The worked example of docs/ceiling.md


def test_the_worked_example_of_the_docs_is_right() -> None:
    device = DeviceFacts(
        "L40S", 1, DeviceLayout.TENSOR, 864e9, DeviceSource.TABLE, ComputeRates(bits16=362e12), DeviceSource.TABLE
    )
    model = ModelCosts(
        weight_bytes=16.06e9,
        weight_source=ModelSource.SAFETENSORS,
        reads=WeightReads(15.01e9, 7.505e9, 128256 * 4096),
        kv_cache=KvCache((KvLayers(2 * 32 * 8 * 128),), 2, ModelSource.CONFIG_JSON),
        attention=(AttentionCosts(4 * 32 * 128 * 32),),
        precision=Precision.BITS16,
    )
    load = Steady(streams=32, steps_per_second=20, context=2048, prompts=25, prompt=2000)
    ceiling = measure_busy(load, device, model)
    assert ceiling.kv_cache_bytes_per_token == {"config_json": 131072}
    assert ceiling.decode_ceiling_tokens_per_second == {
        "weights": pytest.approx(53.8, abs=0.05),
        "read": pytest.approx(36.6, abs=0.05),
    }
    assert ceiling.decode_ceiling_ratio == {
        "weights": pytest.approx(0.37, abs=0.005),
        "read": pytest.approx(0.55, abs=0.005),
    }
    assert ceiling.memory_read_bytes_per_second["derived"] == pytest.approx(472e9, abs=0.5e9)
    assert ceiling.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(0.55, abs=0.005)
    assert ceiling.compute_utilization_ratio["derived"] * 362 == pytest.approx(82.7, abs=0.05)
    assert ceiling.prefill_ceiling_tokens_per_second == pytest.approx(25_000, rel=0.001)
