"""Hardware limits of each phase, and how close an engine comes to them.

Pure functions of a window, the devices and the costs of the model:

- Decode is limited by memory. A step reads the weights once, whatever the batch size, and the keys and values of every
  token in the KV cache. So a stream is never faster than bandwidth / bytes per step, and memory utilisation is
  steps per second x bytes per step / bandwidth. Tokens per second would not do: a batch gets many from one read.
- Prefill is limited by compute: two operations per parameter and token, plus attention to all previous tokens.

Nothing is clipped at 1: a higher ratio comes from speculation, from an estimate for a mixture of experts, or from a
wrong fact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from phasewatch.analysis.kv_cache_reads import KvCacheReads, compute_kv_cache_reads
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.queue import Load, compute_mean_prompt_tokens
from phasewatch.analysis.window import EngineHistory
from phasewatch.base.optional import add, divide, multiply
from phasewatch.hardware.facts import DeviceFacts, DeviceLayout, DeviceSource, Precision
from phasewatch.models.costs import ModelCosts

_PER_PARAMETER: Final = 2
"""Operations per parameter and token: a multiplication and an addition."""


class Basis(StrEnum):
    """Bytes that a step is assumed to read for a decode ceiling: the `basis` label."""

    WEIGHTS = "weights"
    """The weights without the experts that a token does not use, and no KV cache: the limit of any single stream."""
    READ = "read"
    """What steps read at present: the weights that the batch uses, and the KV cache of all tokens in it."""


class RateSource(StrEnum):
    """Where a rate of bytes or operations comes from: the `source` label of rates and utilisations."""

    DERIVED = "derived"
    """Derived here from steps, tokens and the shape of the model."""
    ENGINE = "engine"
    """Estimated by the server itself, step by step (vLLM 0.22 and newer with `--enable-mfu-metrics`)."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The limits of one engine, and how close it comes to them. The names are those of the metrics.

    A metric with a `source` or `basis` label is a mapping from the label's value, empty if unknown; any other metric is
    None if unknown. `device_info` is name and count.
    """

    device_info: tuple[str, int] | None = None
    device_memory_bandwidth_bytes_per_second: Mapping[str, float] = field(default_factory=dict)
    device_flops_per_second: Mapping[str, float] = field(default_factory=dict)
    weight_bytes: Mapping[str, float] = field(default_factory=dict)
    weight_read_bytes: float | None = None
    kv_cache_bytes_per_token: Mapping[str, float] = field(default_factory=dict)
    decode_ceiling_tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    decode_ceiling_ratio: Mapping[str, float] = field(default_factory=dict)
    memory_read_bytes_per_second: Mapping[str, float] = field(default_factory=dict)
    memory_bandwidth_utilization_ratio: Mapping[str, float] = field(default_factory=dict)
    compute_utilization_ratio: Mapping[str, float] = field(default_factory=dict)
    prefill_ceiling_tokens_per_second: float | None = None
    prefill_ceiling_ratio: float | None = None


def compute_ceiling(
    past: EngineHistory,
    phases: Phases,
    load: Load,
    device: DeviceFacts,
    model: ModelCosts,
    *,
    engines: int,
    interval_steps: Sequence[float | None],
    gpu_share: float | None = None,
) -> Ceiling:
    """The limits of an engine that batches requests, and how close it came to them over the window.

    Args:
        past: the window, scrape by scrape. A single scrape gives only what does not depend on load.
        phases: both phases over the window.
        load: queue and KV cache over the window.
        device: the devices that serve the target.
        model: costs of a step and of a token.
        engines: number of engines on the page.
        interval_steps: engine steps from each scrape to the next, see `compute_kv_cache_reads`.
        gpu_share: share of the model in device memory, 0 to 1; the rest is in host memory. None for all of it.
    """
    equipment = _describe_equipment(device, model, engines, gpu_share)
    if past.seconds <= 0:
        return equipment
    devices, growth, steps = _count_devices(device, engines), past.growth, phases.engine_steps_per_second
    flops = multiply(_find_flops(device, model.precision), devices)
    capacity = load.kv_cache_capacity_tokens
    reads = compute_kv_cache_reads(past, capacity, model, steps=steps, interval_steps=interval_steps)
    # Tokens per step while anything decodes: streams x tokens per stream and step, without idle time. Rejected draft
    # tokens are missing although they use experts too: their number is not read from the page.
    weights = _compute_weight_read_bytes(model, divide(phases.decode_throughput_tokens_per_second, steps) or 1.0)
    step_bytes = add(weights, reads.read_bytes if reads else None)
    limits = _compute_decode_limits(device, model, step_bytes if steps else None, gpu_share=gpu_share)
    read = _gather_rates(multiply(steps, step_bytes), growth.estimated_read_bytes_per_gpu, devices, past.seconds)
    context = _estimate_prefill_context(past, phases)
    derived = _compute_operations(past, phases, model, context, reads)
    operations = _gather_rates(derived, growth.estimated_flops_per_gpu, devices, past.seconds)
    prefill_limit = divide(
        _compute_request_rate(device, _find_flops(device, model.precision)), _compute_prefill_operations(model, context)
    )
    return replace(
        equipment,
        weight_read_bytes=weights,
        decode_ceiling_tokens_per_second=limits,
        decode_ceiling_ratio=_compute_shares(phases.decode_tokens_per_second, limits),
        memory_read_bytes_per_second=read,
        memory_bandwidth_utilization_ratio=_divide_each(read, _combine_bandwidths(device, devices, gpu_share)),
        compute_utilization_ratio=_divide_each(operations, flops),
        prefill_ceiling_tokens_per_second=prefill_limit,
        prefill_ceiling_ratio=divide(phases.prefill_tokens_per_second, prefill_limit),
    )


def compute_single_stream_ceiling(
    device: DeviceFacts,
    model: ModelCosts,
    *,
    decode_tokens_per_second: float | None,
    context_tokens: float | None,
    gpu_share: float | None,
) -> Ceiling:
    """The decode limits of a single stream on an otherwise idle server, such as a probe.

    Args:
        device: the devices that serve the target.
        model: costs of a step and of a token.
        decode_tokens_per_second: speed of the stream.
        context_tokens: mean context length of the stream while it was measured.
        gpu_share: share of the model in device memory, 0 to 1; the rest is in host memory. None for all of it.
    """
    cache = model.kv_cache
    kv = None if cache is None or context_tokens is None else cache.read_bytes(context_tokens)
    limits = _compute_decode_limits(device, model, add(_compute_weight_read_bytes(model, 1.0), kv), gpu_share=gpu_share)
    return replace(
        _describe_equipment(device, model, 1, gpu_share),
        decode_ceiling_tokens_per_second=limits,
        decode_ceiling_ratio=_compute_shares(decode_tokens_per_second, limits),
    )


def compute_decode_ceiling(
    step_bytes: float | None, device: DeviceFacts, gpu_share: float | None = None
) -> float | None:
    """Steps per second that memory bandwidth allows a single stream; without speculation also tokens per second.

    Tensor-parallel devices read their slices at the same time, so bandwidths add. In a pipeline a token passes through
    the devices one after the other, so a stream runs at the speed of one. If part of the model is in host memory, times
    add:

        seconds = bytes x share / device bandwidth + bytes x (1 - share) / host bandwidth

    Args:
        step_bytes: bytes that a step reads.
        device: the devices that read them.
        gpu_share: share of these bytes in device memory, 0 to 1; None for all of them.
    """
    bandwidth = _compute_request_rate(device, device.memory_bandwidth)
    share = 1.0 if gpu_share is None else gpu_share
    if share >= 1:
        return divide(bandwidth, step_bytes)
    host = _find_host_bandwidth(device)
    if share <= 0:
        return divide(host, step_bytes)
    on_device = divide(multiply(step_bytes, share), bandwidth)
    return divide(1.0, add(on_device, divide(multiply(step_bytes, 1 - share), host)))


def _combine_bandwidths(device: DeviceFacts, devices: float, gpu_share: float | None) -> float | None:
    """Bytes per second at which a step can be read by the devices, and by the host where a part of the model is in its
    memory: the times of both parts add.
    """
    bandwidth, host = multiply(device.memory_bandwidth, devices), _find_host_bandwidth(device)
    if gpu_share is None or gpu_share >= 1:
        return bandwidth
    if gpu_share <= 0:
        return host
    return divide(1.0, add(divide(gpu_share, bandwidth), divide(1 - gpu_share, host)))


def _describe_equipment(device: DeviceFacts, model: ModelCosts, engines: int, gpu_share: float | None) -> Ceiling:
    """The facts and limits that do not depend on load. Replicas are divided evenly among the engines of the page."""
    devices = _count_devices(device, engines)
    cache = model.kv_cache
    bandwidth = multiply(device.memory_bandwidth, devices)
    flops = multiply(_find_flops(device, model.precision), devices)
    return Ceiling(
        device_info=None if device.name is None else (device.name, device.count),
        device_memory_bandwidth_bytes_per_second=_label_source(device.bandwidth_source, bandwidth),
        device_flops_per_second=_label_source(device.compute_source, flops),
        weight_bytes=_label_source(model.weight_source, model.weight_bytes),
        weight_read_bytes=_compute_weight_read_bytes(model, 1.0),
        kv_cache_bytes_per_token={} if cache is None else _label_source(cache.source, cache.compute_bytes_per_token()),
        decode_ceiling_tokens_per_second=_compute_decode_limits(device, model, None, gpu_share=gpu_share),
    )


def _label_source(source: StrEnum | None, value: float | None) -> dict[str, float]:
    return {} if source is None or value is None else {source: value}


def _count_devices(device: DeviceFacts, engines: int) -> float:
    """Number of devices that serve one engine together."""
    return device.count / engines if device.layout is DeviceLayout.REPLICA else device.count


def _compute_request_rate(device: DeviceFacts, rate: float | None) -> float | None:
    """The part of a per-device rate that one request gets: tensor-parallel devices add up, others do not."""
    return multiply(rate, device.count) if device.layout is DeviceLayout.TENSOR else rate


def _find_host_bandwidth(device: DeviceFacts) -> float | None:
    """Bandwidth of host memory. A measured bandwidth is always the host's, even if the device itself is the CPU."""
    if device.cpu_memory_bandwidth is None and device.bandwidth_source is DeviceSource.MEASURED:
        return device.memory_bandwidth
    return device.cpu_memory_bandwidth


def _find_flops(device: DeviceFacts, precision: Precision | None) -> float | None:
    """Operations per second of one device at the precision of the model. A configured figure is for that precision."""
    compute = device.compute
    if device.compute_source is DeviceSource.CONFIG:
        return compute.bits16
    rates = {Precision.BITS16: compute.bits16, Precision.FP8: compute.fp8, Precision.INT8: compute.int8}
    return None if precision is None else rates[precision]


def _compute_weight_read_bytes(model: ModelCosts, tokens: float) -> float | None:
    return None if model.reads is None else model.reads.compute_bytes_per_step(tokens)


def _compute_decode_limits(
    device: DeviceFacts, model: ModelCosts, step_bytes: float | None, *, gpu_share: float | None
) -> dict[str, float]:
    limits = {
        Basis.WEIGHTS: compute_decode_ceiling(model.compute_stream_bytes(), device, gpu_share),
        Basis.READ: compute_decode_ceiling(step_bytes, device, gpu_share),
    }
    return {basis: limit for basis, limit in limits.items() if limit}


def _compute_shares(speed: float | None, limits: Mapping[str, float]) -> dict[str, float]:
    return {} if speed is None else {basis: speed / limit for basis, limit in limits.items()}


def _gather_rates(derived: float | None, per_gpu: float | None, devices: float, seconds: float) -> dict[str, float]:
    """A rate by its source. Counters that do not move are no source: a server may expose them at 0 while it does not
    count (vLLM 0.22 and newer without `--enable-mfu-metrics`).
    """
    rates: dict[str, float] = {} if derived is None else {RateSource.DERIVED: derived}
    if per_gpu:
        rates[RateSource.ENGINE] = per_gpu * devices / seconds
    return rates


def _divide_each(rates: Mapping[str, float], limit: float | None) -> dict[str, float]:
    return {source: rate / limit for source, rate in rates.items()} if limit else {}


def _estimate_prefill_context(past: EngineHistory, phases: Phases) -> float | None:
    """Mean number of tokens before a computed prompt token: half the prompt, more if its beginning was cached."""
    prompt = compute_mean_prompt_tokens(past)
    first = past.growth.time_to_first_token
    computed = divide(
        multiply(phases.prefill_throughput_tokens_per_second, past.seconds), first.count if first else None
    )
    return None if prompt is None else prompt - min(prompt, computed or prompt) / 2


def _compute_prefill_operations(model: ModelCosts, context: float | None) -> float | None:
    """Operations per prompt token, without the output head, which only the last token of a prompt passes through."""
    active = model.reads.compute_active_parameters() if model.reads else None
    attention = None if context is None else model.compute_attention_operations(context)
    if model.reads is None or active is None or attention is None:
        return None
    return _PER_PARAMETER * (active - model.reads.head_parameters) + attention


def _compute_operations(
    past: EngineHistory, phases: Phases, model: ModelCosts, prefill_context: float | None, reads: KvCacheReads | None
) -> float | None:
    """Operations per second over the window.

    Every token of a sequence but the last passes through the layers, and every generated token comes from the output
    head. In decode, a step attends to all tokens in the KV cache. Attention is left out where the shape of the model or
    the contexts are unknown. Rejected draft tokens are left out as well: they cost operations, but their number is not
    read from the page.
    """
    computed, decoded = phases.prefill_throughput_tokens_per_second, phases.decode_throughput_tokens_per_second
    generated = divide(past.growth.generation_tokens, past.seconds)
    active = model.reads.compute_active_parameters() if model.reads else None
    if model.reads is None or active is None or computed is None or decoded is None or generated is None:
        return None
    attention = computed * (model.compute_attention_operations(prefill_context or 0.0) or 0.0)
    if reads is not None:
        tokens_per_stream = (phases.engine_steps_per_second or 0.0) * (phases.tokens_per_step or 1.0)
        attention += (reads.operations or 0.0) * tokens_per_stream
    head = model.reads.head_parameters
    matrices = (active - head) * (computed + decoded) + head * generated
    return _PER_PARAMETER * matrices + attention
