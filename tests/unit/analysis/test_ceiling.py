"""Limits and utilisation: the formulas on small numbers, when a number must be absent, and a real vLLM's own counts."""

import json
import lzma
import math
from collections.abc import Iterator
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
from phasewatch.analysis.samples import Histogram, Page
from phasewatch.analysis.window import (
    EngineHistory,
    PageWindow,
    append_page,
    extract_history,
    subtract_counters,
)
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceLayout, DeviceSource, Precision
from phasewatch.models.costs import AttentionCosts, Experts, KvCache, KvLayers, ModelCosts, ModelSource, WeightReads
from tests.support.pages import bodies
from tests.support.paths import RECORDINGS
from tests.support.steady_load import Steady, measured
from tests.support.truth import truth

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


def found(busy: Steady = BUSY, device: DeviceFacts = DEVICE, model: ModelCosts = MODEL, *, engines: int = 1) -> Ceiling:
    return measured(busy.history(), device, model, engines=engines)


# The formulas


def test_each_formula_gives_what_was_put_in() -> None:
    steps, weights, kv = 2, 80, 4 * 50
    # Layers: 20 prompt and 8 decoded tokens a second; head: those 8 and 0.2 first ones. Attention: to half a prompt,
    # and by each step to all that is held.
    operations = 2 * (30 * (20 + 8) + 10 * (8 + 0.2)) + 0.2 * (20 * 50 + steps * 4 * 50)
    prefill = 4000 / (2 * 30 + 0.2 * 50)
    reading = found()
    assert reading.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)
    assert replace(reading, compute_utilization_ratio={}) == Ceiling(
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
def test_one_reading_of_the_weights_serves_the_whole_batch(streams: int, steps: float) -> None:
    reading = found(Steady(streams=streams, steps_per_second=steps))
    assert reading.memory_read_bytes_per_second["derived"] == pytest.approx(steps * 80)


def test_a_server_that_is_idle_half_the_time_reads_half_as_much() -> None:
    past = BUSY.history()
    rested = EngineHistory((*past.times, 20.0), (*past.samples, past.samples[-1]), frozenset())
    half, whole = measured(rested, DEVICE, MODEL), measured(past, DEVICE, MODEL)
    assert half.memory_read_bytes_per_second["derived"] == whole.memory_read_bytes_per_second["derived"] / 2
    assert half.decode_ceiling_tokens_per_second == whole.decode_ceiling_tokens_per_second


def test_the_batch_is_that_of_the_steps_and_idle_time_is_not_in_it() -> None:
    routed = replace(MODEL, reads=WeightReads(80.0, 40.0, 10.0, (Experts(8, 2, 10.0, 5.0),)))
    past = BUSY.history()
    rested = EngineHistory((*past.times, 100.0), (*past.samples, past.samples[-1]), frozenset())
    half, whole = measured(rested, DEVICE, routed), measured(past, DEVICE, routed)
    assert half.weight_read_bytes == pytest.approx(whole.weight_read_bytes)


def test_the_cache_is_weighed_with_the_steps_that_read_it() -> None:
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
    reading = measured(EngineHistory((0.0, 10.0, 20.0), samples, frozenset()), DEVICE, MODEL)
    held = (30 * 100 + 10 * 400) / 40
    assert reading.memory_read_bytes_per_second["derived"] == pytest.approx(2 * (80 + held))
    assert reading.decode_ceiling_tokens_per_second["read"] == pytest.approx(1000 / (80 + held))


def test_a_scrape_without_usage_leaves_the_others_to_tell() -> None:
    past = BUSY.history()
    blind = replace(past.samples[-1], kv_cache_usage=None)
    longer = EngineHistory((*past.times, 20.0), (*past.samples, blind), frozenset())
    assert measured(longer, DEVICE, MODEL).decode_ceiling_tokens_per_second["read"] == 1000 / (80 + 200)
    only = EngineHistory(past.times, (past.samples[0], blind), frozenset())
    assert "read" not in measured(only, DEVICE, MODEL).decode_ceiling_tokens_per_second


def test_layers_with_a_window_read_no_more_than_it_of_each_stream() -> None:
    cache = KvCache((KvLayers(0.5), KvLayers(1.5, span=20)), 2.0, ModelSource.CONFIG_JSON)
    reading = found(model=replace(MODEL, kv_cache=cache))
    assert reading.kv_cache_bytes_per_token == {"config_json": 4}
    assert reading.memory_read_bytes_per_second["derived"] == 2 * (80 + 4 * (50 + 3 * 20))


def test_a_larger_batch_touches_more_experts() -> None:
    routed = replace(MODEL, weight_bytes=180.0, reads=WeightReads(80.0, 40.0, 10.0, (Experts(8, 2, 10.0, 5.0),)))
    one = found(Steady(streams=1, steps_per_second=2, context=50), model=routed)
    four = found(BUSY, model=routed)
    touched = 80 + 8 * (1 - 0.75**4) * 10
    assert one.weight_read_bytes == 80 + 2 * 10
    # 6 of 8 experts are left alone by a token, so the other 120 bytes of the weights are all that limits a stream.
    assert one.decode_ceiling_tokens_per_second["weights"] == pytest.approx(1000 / 120)
    assert four.decode_ceiling_tokens_per_second["weights"] == pytest.approx(1000 / 120)
    assert four.weight_read_bytes == pytest.approx(touched)
    assert four.memory_read_bytes_per_second["derived"] == pytest.approx(2 * (touched + 200))
    # A token is computed by its own experts only, whoever else is in the batch.
    assert one.compute_utilization_ratio["derived"] == pytest.approx((2 * 2 * (40 + 2 * 5) + 0.2 * 2 * 50) / 4000)


def test_with_speculation_a_step_takes_in_more_tokens_and_its_bytes_stay_the_same() -> None:
    plain = found(Steady(streams=1, steps_per_second=8, context=50))
    drafted = found(Steady(streams=1, steps_per_second=8, context=50, tokens_per_step=3))
    assert drafted.memory_read_bytes_per_second == plain.memory_read_bytes_per_second
    assert drafted.decode_ceiling_tokens_per_second == plain.decode_ceiling_tokens_per_second
    # Each of the three tokens goes through all parameters, and attends to all that is held.
    assert drafted.compute_utilization_ratio["derived"] == pytest.approx(24 * (2 * 40 + 0.2 * 50) / 4000)
    assert drafted.decode_ceiling_ratio == {"weights": 2.4, "read": pytest.approx(24 / (1000 / 130))}


# Devices


@pytest.mark.parametrize(("gigabytes", "tokens"), [(90, 6), (600, 38), (864, 54), (1008, 63), (2039, 127), (3350, 209)])
def test_16_gigabytes_of_weights_have_the_ceilings_of_the_first_table_of_the_docs(
    gigabytes: float, tokens: int
) -> None:
    limit = compute_decode_ceiling(16e9, DeviceFacts(memory_bandwidth=gigabytes * 1e9))
    assert limit is not None
    assert round(limit) == tokens


@pytest.mark.parametrize(
    ("layout", "engines", "together", "one_stream"),
    [
        (DeviceLayout.TENSOR, 1, 4, 4),
        (DeviceLayout.TENSOR, 2, 4, 4),
        (DeviceLayout.PIPELINE, 1, 4, 1),
        (DeviceLayout.REPLICA, 4, 1, 1),
        (DeviceLayout.REPLICA, 2, 2, 1),
    ],
)
def test_bandwidths_add_only_for_devices_that_work_on_the_same_step(
    layout: DeviceLayout, engines: int, together: float, one_stream: float
) -> None:
    reading = found(device=replace(DEVICE, count=4, layout=layout), engines=engines)
    assert reading.device_info == ("Abacus", 4)
    assert reading.device_memory_bandwidth_bytes_per_second == {"table": 1000 * together}
    assert reading.device_flops_per_second == {"table": 4000 * together}
    assert reading.decode_ceiling_tokens_per_second["weights"] == 10 * one_stream
    assert reading.decode_ceiling_tokens_per_second["read"] == pytest.approx(1000 / 280 * one_stream)
    assert reading.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(2 * 280 / (1000 * together))
    assert reading.prefill_ceiling_tokens_per_second == pytest.approx(4000 / 70 * one_stream)
    told = found(replace(BUSY, read_bytes=50, flops=20), replace(DEVICE, count=4, layout=layout), engines=engines)
    assert told.memory_read_bytes_per_second["engine"] == 50 * together
    assert told.memory_bandwidth_utilization_ratio["engine"] == pytest.approx(0.05)
    assert told.compute_utilization_ratio["engine"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("share", "host", "steps"),
    [
        (None, None, 10.0),
        (1.0, None, 10.0),
        (0.75, 100.0, 1 / (75 / 1000 + 25 / 100)),
        (0.0, 100.0, 1.0),
        (0.5, None, None),
        (0.0, None, None),
    ],
)
def test_times_add_where_a_part_of_the_model_is_in_the_memory_of_the_host(
    share: float | None, host: float | None, steps: float | None
) -> None:
    assert compute_decode_ceiling(100.0, replace(DEVICE, cpu_memory_bandwidth=host), share) == pytest.approx(steps)


def test_a_model_wholly_in_the_memory_of_the_host_needs_no_device() -> None:
    assert compute_decode_ceiling(100.0, DeviceFacts(cpu_memory_bandwidth=200.0), 0.0) == 2


def test_what_was_measured_is_the_memory_of_the_host() -> None:
    cpu = replace(DEVICE, bandwidth_source=DeviceSource.MEASURED)
    assert compute_decode_ceiling(100.0, cpu, 0.0) == 10
    assert compute_decode_ceiling(100.0, replace(cpu, cpu_memory_bandwidth=500.0), 0.0) == 5


def test_a_probe_knows_its_limits_without_a_window() -> None:
    device = replace(DEVICE, cpu_memory_bandwidth=100.0)
    reading = compute_single_stream_ceiling(
        device, MODEL, decode_tokens_per_second=1.5, context_tokens=120.0, gpu_share=0.5
    )
    limits = {"weights": 1 / (50 / 1000 + 50 / 100), "read": 1 / (100 / 1000 + 100 / 100)}
    assert reading.decode_ceiling_tokens_per_second == pytest.approx(limits)
    assert reading.decode_ceiling_ratio == pytest.approx({basis: 1.5 / limit for basis, limit in limits.items()})
    assert replace(reading, decode_ceiling_tokens_per_second={}, decode_ceiling_ratio={}) == Ceiling(
        device_info=("Abacus", 1),
        device_memory_bandwidth_bytes_per_second={"table": 1000},
        device_flops_per_second={"table": 4000},
        weight_bytes={"safetensors": 100},
        weight_read_bytes=80,
        kv_cache_bytes_per_token={"config_json": 1},
    )


@pytest.mark.parametrize(
    "unknown",
    [{"context_tokens": None}, {"model": replace(MODEL, kv_cache=None)}, {"model": replace(MODEL, reads=None)}],
)
def test_a_probe_without_its_context_or_what_it_reads_has_the_ceiling_of_the_weights_only(
    unknown: dict[str, Any],
) -> None:
    told: dict[str, Any] = {"model": MODEL, "context_tokens": 120.0, **unknown}
    reading = compute_single_stream_ceiling(DEVICE, decode_tokens_per_second=1.5, gpu_share=None, **told)
    assert reading.decode_ceiling_ratio == {"weights": 0.15}


# Compute


def test_the_operators_rate_is_at_the_precision_of_the_model_whichever_that_is() -> None:
    told = replace(DEVICE, compute=ComputeRates(500.0, 500.0, 500.0), compute_source=DeviceSource.CONFIG)
    assert found(device=told, model=replace(MODEL, precision=None)).device_flops_per_second == {"config": 500}


@pytest.mark.parametrize(
    ("precision", "flops"),
    [
        (Precision.BITS16, {"table": 4000}),
        (Precision.FP8, {"table": 8000}),
        (Precision.INT8, {"table": 6000}),
        (None, {}),
    ],
)
def test_operations_per_second_are_those_at_the_precision_of_the_model(
    precision: Precision | None, flops: dict[str, float]
) -> None:
    reading = found(model=replace(MODEL, precision=precision))
    assert reading.device_flops_per_second == flops
    assert bool(reading.compute_utilization_ratio) == bool(flops)
    assert (reading.prefill_ceiling_ratio is not None) == bool(flops)


def test_prompt_tokens_after_a_cached_beginning_attend_to_it_as_well() -> None:
    reading = found(replace(BUSY, cached=80))
    assert reading.prefill_ceiling_tokens_per_second == pytest.approx(4000 / (2 * 30 + 0.2 * 90))
    operations = 2 * (30 * (4 + 8) + 10 * 8.2) + 0.2 * (4 * 90 + 2 * 200)
    assert reading.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)


def test_layers_with_a_window_attend_to_no_more_than_it() -> None:
    windowed = replace(MODEL, attention=(AttentionCosts(0.2), AttentionCosts(0.3, span=20)))
    reading = found(model=windowed)
    # Half a prompt is 50 tokens, and so is what each of 4 streams holds.
    attended = 0.2 * 50 + 0.3 * 20
    assert reading.prefill_ceiling_tokens_per_second == pytest.approx(4000 / (2 * 30 + attended))
    operations = 2 * (30 * (20 + 8) + 10 * 8.2) + 20 * attended + 2 * 4 * attended
    assert reading.compute_utilization_ratio["derived"] == pytest.approx(operations / 4000)
    beyond = found(model=replace(MODEL, attention=(AttentionCosts(0.2, span=10**6),)))
    assert beyond == found()


def test_attention_is_counted_where_the_data_type_of_the_cache_is_unknown() -> None:
    unknown = found(model=replace(MODEL, kv_cache=KvCache((KvLayers(0.5),), None, ModelSource.CONFIG_JSON)))
    assert unknown.compute_utilization_ratio == found().compute_utilization_ratio
    assert unknown.kv_cache_bytes_per_token == {}
    assert unknown.memory_read_bytes_per_second == {}
    assert unknown.decode_ceiling_tokens_per_second == {"weights": 10}


def test_a_model_of_unknown_shape_computes_without_attention_and_has_no_prefill_ceiling() -> None:
    reading = found(model=replace(MODEL, attention=None))
    assert reading.compute_utilization_ratio["derived"] == pytest.approx(2 * (30 * 28 + 10 * 8.2) / 4000)
    assert reading.prefill_ceiling_tokens_per_second is None


def test_without_parameters_nothing_is_said_of_compute() -> None:
    reading = found(model=replace(MODEL, reads=WeightReads(80.0, None)))
    assert reading.compute_utilization_ratio == {}
    assert reading.prefill_ceiling_tokens_per_second is None
    assert reading.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(0.56)


# What is not known


def test_a_single_scrape_gives_the_facts_and_the_ceiling_of_the_weights() -> None:
    past = BUSY.history()
    reading = measured(EngineHistory(past.times[:1], past.samples[:1], frozenset()), DEVICE, MODEL)
    assert reading == Ceiling(
        device_info=("Abacus", 1),
        device_memory_bandwidth_bytes_per_second={"table": 1000},
        device_flops_per_second={"table": 4000},
        weight_bytes={"safetensors": 100},
        weight_read_bytes=80,
        kv_cache_bytes_per_token={"config_json": 1},
        decode_ceiling_tokens_per_second={"weights": 10},
    )


def test_an_idle_engine_reads_and_computes_nothing_and_has_no_ratio_of_a_ceiling() -> None:
    reading = found(Steady(streams=0))
    assert reading.memory_read_bytes_per_second == {"derived": 0}
    assert reading.memory_bandwidth_utilization_ratio == {"derived": 0}
    assert reading.compute_utilization_ratio == {"derived": 0}
    assert reading.weight_read_bytes == 80
    assert reading.decode_ceiling_tokens_per_second == {"weights": 10}
    assert reading.decode_ceiling_ratio == {}
    assert reading.prefill_ceiling_ratio is None


def test_an_engine_without_gauges_before_its_first_request_reads_nothing() -> None:
    past = Steady(streams=0).history()
    silent = tuple(replace(sample, kv_cache_usage=None, requests_running=None) for sample in past.samples)
    reading = measured(EngineHistory(past.times, silent, frozenset()), DEVICE, MODEL)
    assert reading.memory_read_bytes_per_second == {"derived": 0}
    assert reading.memory_bandwidth_utilization_ratio == {"derived": 0}
    # Without a cache or a capacity it would be known while idle, and not under load.
    blind = tuple(replace(sample, cache_config={}) for sample in silent)
    assert measured(EngineHistory(past.times, blind, frozenset()), DEVICE, MODEL).memory_read_bytes_per_second == {}
    no_cache = replace(MODEL, kv_cache=None)
    assert measured(EngineHistory(past.times, silent, frozenset()), DEVICE, no_cache).memory_read_bytes_per_second == {}


def test_a_sparse_model_that_is_not_understood_has_no_ceiling_of_its_weights() -> None:
    assert found(model=replace(MODEL, reads=None, sparse=True)).decode_ceiling_tokens_per_second == {}


def test_without_a_capacity_nothing_is_derived_and_vllm_is_still_believed() -> None:
    past = replace(BUSY, read_bytes=300, flops=600).history()
    samples = tuple(replace(sample, cache_config={}) for sample in past.samples)
    reading = measured(EngineHistory(past.times, samples, frozenset()), DEVICE, MODEL)
    assert reading.memory_read_bytes_per_second == {"engine": 300}
    assert reading.memory_bandwidth_utilization_ratio == {"engine": 0.3}
    assert reading.compute_utilization_ratio["engine"] == 0.15
    assert reading.decode_ceiling_tokens_per_second == {"weights": 10}
    # The attention of decode is left out: what is held is not known.
    assert reading.compute_utilization_ratio["derived"] == pytest.approx(
        (2 * (30 * 28 + 10 * 8.2) + 0.2 * 20 * 50) / 4000
    )


@pytest.mark.parametrize("model", [replace(MODEL, reads=None), replace(MODEL, kv_cache=None)])
def test_bytes_are_not_derived_from_half_of_what_is_read(model: ModelCosts) -> None:
    for busy in (BUSY, Steady(streams=0)):
        reading = found(busy, model=model)
        assert reading.memory_read_bytes_per_second == {}
        assert reading.decode_ceiling_tokens_per_second == {"weights": 10}


def test_counters_of_vllm_that_stand_still_say_nothing() -> None:
    assert found(replace(BUSY, read_bytes=0, flops=0)) == found(BUSY)


def test_of_an_unknown_device_and_model_nothing_is_said() -> None:
    assert found(device=DeviceFacts(), model=ModelCosts()) == Ceiling()


def test_rates_are_known_of_an_unknown_device_and_their_share_of_it_is_not() -> None:
    reading = found(device=DeviceFacts())
    assert reading.memory_read_bytes_per_second == {"derived": 560}
    assert reading.memory_bandwidth_utilization_ratio == {}
    assert reading.compute_utilization_ratio == {}
    assert reading.decode_ceiling_tokens_per_second == {}


@given(
    st.sampled_from([0.0, 1e-300, 1e300, math.inf]),
    st.sampled_from([0.0, 1e-300, 1e300, math.inf]),
    st.sampled_from([None, 0.0, 0.3, 1.0, 7.0]),
)
def test_absurd_facts_raise_nothing(bandwidth: float, weights: float, share: float | None) -> None:
    device = replace(DEVICE, memory_bandwidth=bandwidth, cpu_memory_bandwidth=bandwidth, count=10**6)
    model = replace(MODEL, weight_bytes=weights, reads=WeightReads(weights, weights))
    assert found(device=device, model=model).weight_read_bytes == weights
    compute_single_stream_ceiling(device, model, decode_tokens_per_second=1.0, context_tokens=1.0, gpu_share=share)


def test_weights_or_a_bandwidth_of_0_have_no_ceiling() -> None:
    assert compute_decode_ceiling(0.0, DEVICE) is None
    broken = found(device=replace(DEVICE, memory_bandwidth=0.0))
    assert broken.memory_bandwidth_utilization_ratio == {}
    assert broken.decode_ceiling_ratio == {}


def test_behind_several_api_servers_steps_follow_from_latency() -> None:
    (start, end) = BUSY.history().samples
    # Each of two processes counted every step with tokens, and one that put out first tokens alone; then all fell idle.
    counted = replace(end, iteration_tokens=Histogram(0.0, 40.0))
    later = replace(counted, iteration_tokens=Histogram(0.0, 80.0), kv_cache_usage=0.9)
    past = EngineHistory((0.0, 10.0, 20.0), (start, counted, later), frozenset())
    reading = measured(past, DEVICE, MODEL, one_api_server=False)
    assert reading.memory_read_bytes_per_second["derived"] == 280


def test_steps_that_cannot_be_trusted_are_not_counted() -> None:
    past = replace(BUSY.history(), corrupt=frozenset({"iteration_tokens"}))
    reading = measured(past, DEVICE, MODEL)
    assert reading.memory_read_bytes_per_second == {}
    assert reading.decode_ceiling_tokens_per_second == {"weights": 10}


def test_labels_are_those_of_the_contract() -> None:
    assert [*Basis] == ["weights", "read"]
    assert [*RateSource] == ["derived", "engine"]


# The worked example of docs/ceiling.md


def test_the_worked_example_of_the_docs() -> None:
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
    reading = found(load, device, model)
    assert reading.kv_cache_bytes_per_token == {"config_json": 131072}
    assert reading.decode_ceiling_tokens_per_second == {
        "weights": pytest.approx(53.8, abs=0.05),
        "read": pytest.approx(36.6, abs=0.05),
    }
    assert reading.decode_ceiling_ratio == {
        "weights": pytest.approx(0.37, abs=0.005),
        "read": pytest.approx(0.55, abs=0.005),
    }
    assert reading.memory_read_bytes_per_second["derived"] == pytest.approx(472e9, abs=0.5e9)
    assert reading.memory_bandwidth_utilization_ratio["derived"] == pytest.approx(0.55, abs=0.005)
    assert reading.compute_utilization_ratio["derived"] * 362 == pytest.approx(82.7, abs=0.05)
    assert reading.prefill_ceiling_tokens_per_second == pytest.approx(25_000, rel=0.001)


# A real vLLM that counts bytes and operations itself


PARAMETERS, HEAD, LAYERS = 110_922_048, 8192 * 576, 30
RECORDED = ModelCosts(
    weight_bytes=2 * PARAMETERS,
    weight_source=ModelSource.CONFIG_JSON,
    reads=WeightReads(dense_bytes=2 * PARAMETERS, dense_parameters=PARAMETERS, head_parameters=HEAD),
    kv_cache=KvCache((KvLayers(2 * LAYERS * 3 * 64),), 2, ModelSource.CONFIG_JSON),
    attention=(AttentionCosts(4 * LAYERS * 9 * 64),),
    precision=Precision.BITS16,
)
PAGES = [(time, PageReader(METRIC_NAMES).read(body)) for time, body in bodies("mfu-metrics")]


def spans() -> dict[str, tuple[float, float]]:
    """When each number of streams was sent and served, by the notes of the client: c1, c2, c4, c8, c16."""
    times: dict[str, list[float]] = {}
    with lzma.open(RECORDINGS / "mfu-metrics.requests.jsonl.xz", "rt") as file:
        for request in map(json.loads, file):
            times.setdefault(request["tag"], []).extend((request["sent"], request["done"]))
    return {tag: (min(found), max(found)) for tag, found in times.items()}


def compared(pages: list[tuple[float, Page]]) -> tuple[float, float]:
    """Bytes and operations as derived / as vLLM counted them."""
    window = PageWindow()
    for time, page in pages:
        window = append_page(window, page, time, 1000)
    (key,) = window.engines
    reading = measured(extract_history(window, key), DEVICE, RECORDED)
    read, operations = reading.memory_read_bytes_per_second, reading.compute_utilization_ratio
    return read["derived"] / read["engine"], operations["derived"] / operations["engine"]


def between(start: float, end: float) -> list[tuple[float, Page]]:
    return [(time, page) for time, page in PAGES if start <= time <= end]


RATIOS = {
    "c1": (0.996, 1.001),
    "c2": (1.004, 0.998),
    "c4": (1.003, 0.996),
    "c8": (1.013, 0.997),
    "c16": (1.014, 0.996),
}
"""The figures of docs/ceiling.md: bytes and operations as derived / as vLLM counted them."""


@pytest.mark.parametrize("tag", RATIOS)
def test_bytes_and_operations_are_those_that_vllm_counted(tag: str) -> None:
    read, operations = compared(between(*spans()[tag]))
    assert read == pytest.approx(RATIOS[tag][0], abs=0.0006)
    assert operations == pytest.approx(RATIOS[tag][1], abs=0.0006)


def windows(length: float) -> Iterator[list[tuple[float, Page]]]:
    first, last = spans()["c1"][0], spans()["c16"][1]
    for end, _ in PAGES:
        if first + length <= end <= last:
            yield between(end - length, end)


def test_a_short_window_with_many_prompts_misses_their_activations() -> None:
    assert min(read for read, _ in map(compared, windows(5))) == pytest.approx(0.76, abs=0.005)


def test_every_window_of_ten_seconds_agrees_with_vllm_prefills_included() -> None:
    found = [compared(pages) for pages in windows(10)]
    assert len(found) > 80
    for read, operations in found:
        assert read == pytest.approx(1, abs=0.05)
        assert operations == pytest.approx(1, abs=0.015)


@pytest.mark.parametrize(
    ("tag", "true", "activations"),
    [("c1", 0.986, 0.004), ("c2", 0.990, 0.008), ("c4", 0.982, 0.016), ("c8", 0.968, 0.029), ("c16", 0.945, 0.051)],
)
def test_activations_explain_what_true_contexts_leave_of_the_bytes_that_vllm_counted(
    tag: str, true: float, activations: float
) -> None:
    """The figures of docs/ceiling.md: blocks of 128 tokens hide what the activations add."""
    start, end = spans()[tag]
    pages = between(start - 1.1, end + 1.1)
    (first,), (last,) = pages[0][1].engines.values(), pages[-1][1].engines.values()
    counts = subtract_counters(first, last)
    assert counts.iteration_tokens
    assert counts.estimated_read_bytes_per_gpu
    requests = [request for request in truth("mfu-metrics").requests if start <= request.sent <= end]
    held = sum(sum(range(request.prompt + 1, request.prompt + request.generated)) for request in requests)
    weights = counts.iteration_tokens.count * 2 * PARAMETERS
    assert (weights + held * 23040) / counts.estimated_read_bytes_per_gpu == pytest.approx(true, abs=0.001)
    # In and out of attention, and into each product of a layer, 16 bits a number.
    numbers = 4 * 576 + 2 * 1536 + 1536
    tokens = sum(request.prompt + request.generated - 1 for request in requests)
    added = 2 * LAYERS * numbers * tokens / counts.estimated_read_bytes_per_gpu
    assert added == pytest.approx(activations, abs=0.001)
    # What is left are steps that put out nothing, which vLLM counts in no histogram.
    assert 0.985 < true + added < 1
