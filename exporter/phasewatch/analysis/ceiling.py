"""How far each phase is from what the hardware can do.

Pure functions over a window and what is known of devices and model:

- Decode reads the weights once per step, whatever the batch, and the keys and values of every token that is held. So a
  stream is never faster than bandwidth / bytes per step, and memory is as busy as steps per second x bytes per step /
  bandwidth. Tokens per second do not tell: a batch gets many of them from one reading.
- Prefill computes: two operations per parameter and token, and the attention to all tokens before.

Nothing is clipped at 1: what lies above is speculation, an estimate for a mixture of experts, or a wrong fact.
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
"""Operations: a multiplication and an addition."""


class Basis(StrEnum):
    """What a decode ceiling takes a step to read: the `basis` label."""

    WEIGHTS = "weights"
    """All weights but the experts that a token does not use, and nothing else: single streams are not faster."""
    READ = "read"
    """What steps read now: the weights that they touch, and the KV cache of everything that is held."""


class Counted(StrEnum):
    """Who counted bytes and operations: the `source` label of what follows from them."""

    DERIVED = "derived"
    """PhaseWatch, from steps, tokens and the shape of the model."""
    ENGINE = "engine"
    """The server itself, step by step (vLLM with `--enable-mfu-metrics`)."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The limits of one engine, and how near it comes to them. The names are those of the metrics.

    A metric with a `source` or `basis` is a mapping from that label, empty where nothing is known; any other is None
    then. `device_info` holds name and count.
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
) -> Ceiling:
    """The limits of an engine that batches, and how near it came to them over the window.

    Args:
        past: the window, scrape by scrape. From a single one only what needs no load is known.
        phases: both phases in it.
        load: the queue and cache in it.
        device: what serves the target.
        model: what a step and a token cost.
        engines: how many engines the page speaks of.
        interval_steps: steps from each scrape to the next, see `compute_kv_cache_reads`.
    """
    facts = _describe_equipment(device, model, engines)
    if past.seconds <= 0:
        return facts
    devices, growth, steps = _count_devices(device, engines), past.growth, phases.engine_steps_per_second
    flops = multiply(_find_flops(device, model.precision), devices)
    capacity = load.kv_cache_capacity_tokens
    reads = compute_kv_cache_reads(past, capacity, model, steps=steps, interval_steps=interval_steps)
    # While anything decodes: streams x tokens that each gets per step. Idle time is not in it. Drafts that were turned
    # down are not either, though they touch experts: how many there were is not read.
    weights = _compute_weight_read_bytes(model, divide(phases.decode_throughput_tokens_per_second, steps) or 1.0)
    step_bytes = add(weights, reads.read_bytes if reads else None)
    limits = _compute_decode_limits(device, model, step_bytes if steps else None, gpu_share=None)
    read = _gather_rates(multiply(steps, step_bytes), growth.estimated_read_bytes_per_gpu, devices, past.seconds)
    context = _estimate_prefill_context(past, phases)
    derived = _compute_operations(past, phases, model, context, reads)
    operations = _gather_rates(derived, growth.estimated_flops_per_gpu, devices, past.seconds)
    prefill_limit = divide(
        _rate_of_one_request(device, _find_flops(device, model.precision)), _compute_prefill_operations(model, context)
    )
    return replace(
        facts,
        weight_read_bytes=weights,
        decode_ceiling_tokens_per_second=limits,
        decode_ceiling_ratio=_compute_shares(phases.decode_tokens_per_second, limits),
        memory_read_bytes_per_second=read,
        memory_bandwidth_utilization_ratio=_divide_each(read, multiply(device.memory_bandwidth, devices)),
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
    """The decode limits of a stream that has a server to itself, as a probe of Ollama has.

    Args:
        device: what serves the target.
        model: what a step and a token cost.
        decode_tokens_per_second: speed of the stream.
        context_tokens: its mean length while it was measured.
        gpu_share: share of the model in the memory of the device, 0 to 1, the rest being in that of the host; None for
            all of it.
    """
    cache = model.kv_cache
    kv = None if cache is None or context_tokens is None else cache.read_bytes(context_tokens)
    limits = _compute_decode_limits(device, model, add(_compute_weight_read_bytes(model, 1.0), kv), gpu_share=gpu_share)
    return replace(
        _describe_equipment(device, model, 1),
        decode_ceiling_tokens_per_second=limits,
        decode_ceiling_ratio=_compute_shares(decode_tokens_per_second, limits),
    )


def compute_decode_ceiling(
    step_bytes: float | None, device: DeviceFacts, gpu_share: float | None = None
) -> float | None:
    """Steps per second that memory allows a single stream; tokens per second without speculation.

    Tensor parallel devices read their slices at the same time: bandwidths add. In a pipeline a token visits one after
    the other, so it goes at the speed of one. Where a part of the model is in the memory of the host, times add:

        seconds = bytes x share / bandwidth + bytes x (1 - share) / bandwidth of the host

    Args:
        step_bytes: what a step reads.
        device: what reads it.
        gpu_share: share of it in the memory of the device, 0 to 1; None for all of it.
    """
    bandwidth = _rate_of_one_request(device, device.memory_bandwidth)
    share = 1.0 if gpu_share is None else gpu_share
    if share >= 1:
        return divide(bandwidth, step_bytes)
    host = _find_host_bandwidth(device)
    if share <= 0:
        return divide(host, step_bytes)
    on_device = divide(multiply(step_bytes, share), bandwidth)
    return divide(1.0, add(on_device, divide(multiply(step_bytes, 1 - share), host)))


def _describe_equipment(device: DeviceFacts, model: ModelCosts, engines: int) -> Ceiling:
    """What needs no load. Of replicas each engine of the page has its share."""
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
        kv_cache_bytes_per_token={} if cache is None else _label_source(cache.source, cache.bytes_per_token()),
        decode_ceiling_tokens_per_second=_compute_decode_limits(device, model, None, gpu_share=None),
    )


def _label_source(source: StrEnum | None, value: float | None) -> dict[str, float]:
    return {} if source is None or value is None else {source: value}


def _count_devices(device: DeviceFacts, engines: int) -> float:
    """How many devices serve one engine together."""
    return device.count / engines if device.layout is DeviceLayout.REPLICA else device.count


def _rate_of_one_request(device: DeviceFacts, rate: float | None) -> float | None:
    """What one request gets of a rate of each device: they work on it together, or one after the other, or one does."""
    return multiply(rate, device.count) if device.layout is DeviceLayout.TENSOR else rate


def _find_host_bandwidth(device: DeviceFacts) -> float | None:
    """Bandwidth of the host's memory; what was measured is that of the host, even where it stands for the device."""
    if device.cpu_memory_bandwidth is None and device.bandwidth_source is DeviceSource.MEASURED:
        return device.memory_bandwidth
    return device.cpu_memory_bandwidth


def _find_flops(device: DeviceFacts, precision: Precision | None) -> float | None:
    """Operations per second of one device at the precision of the model; the operator gives the figure for that one."""
    compute = device.compute
    if device.compute_source is DeviceSource.CONFIG:
        return compute.bits16
    rates = {Precision.BITS16: compute.bits16, Precision.FP8: compute.fp8, Precision.INT8: compute.int8}
    return None if precision is None else rates[precision]


def _compute_weight_read_bytes(model: ModelCosts, tokens: float) -> float | None:
    return None if model.reads is None else model.reads.bytes_per_step(tokens)


def _compute_decode_limits(
    device: DeviceFacts, model: ModelCosts, step_bytes: float | None, *, gpu_share: float | None
) -> dict[str, float]:
    limits = {
        Basis.WEIGHTS: compute_decode_ceiling(model.stream_bytes(), device, gpu_share),
        Basis.READ: compute_decode_ceiling(step_bytes, device, gpu_share),
    }
    return {basis: limit for basis, limit in limits.items() if limit}


def _compute_shares(speed: float | None, limits: Mapping[str, float]) -> dict[str, float]:
    return {} if speed is None else {basis: speed / limit for basis, limit in limits.items()}


def _gather_rates(derived: float | None, per_gpu: float | None, devices: float, seconds: float) -> dict[str, float]:
    """A rate as derived here and as counted by the server, whose counters are present and stand still (vLLM) when it
    does not count.
    """
    rates: dict[str, float] = {} if derived is None else {Counted.DERIVED: derived}
    if per_gpu:
        rates[Counted.ENGINE] = per_gpu * devices / seconds
    return rates


def _divide_each(rates: Mapping[str, float], limit: float | None) -> dict[str, float]:
    return {source: rate / limit for source, rate in rates.items()} if limit else {}


def _estimate_prefill_context(past: EngineHistory, phases: Phases) -> float | None:
    """Tokens before a computed prompt token, on average: half the prompt, or more where its beginning was cached."""
    prompt = compute_mean_prompt_tokens(past)
    first = past.growth.time_to_first_token
    computed = divide(
        multiply(phases.prefill_throughput_tokens_per_second, past.seconds), first.count if first else None
    )
    return None if prompt is None else prompt - min(prompt, computed or prompt) / 2


def _compute_prefill_operations(model: ModelCosts, context: float | None) -> float | None:
    """Operations that one prompt token takes. Only the last of a prompt passes through the output head."""
    active = model.reads.active_parameters() if model.reads else None
    attention = None if context is None else model.attention_operations(context)
    if model.reads is None or active is None or attention is None:
        return None
    return _PER_PARAMETER * (active - model.reads.head_parameters) + attention


def _compute_operations(
    past: EngineHistory, phases: Phases, model: ModelCosts, prefill_context: float | None, reads: KvCacheReads | None
) -> float | None:
    """Operations that the tokens of the window took.

    Every token but the last of a sequence goes through the layers, and every generated one comes from the output head.
    In decode, a step attends to all tokens held. Attention is left out as far as the shape of the model or the contexts
    are not known. Drafts that were verified in vain are left out as well: they cost operations, but how many there were
    is not read.
    """
    computed, decoded = phases.prefill_throughput_tokens_per_second, phases.decode_throughput_tokens_per_second
    generated = divide(past.growth.generation_tokens, past.seconds)
    active = model.reads.active_parameters() if model.reads else None
    if model.reads is None or active is None or computed is None or decoded is None or generated is None:
        return None
    attention = computed * (model.attention_operations(prefill_context or 0.0) or 0.0)
    if reads is not None:
        each = (phases.engine_steps_per_second or 0.0) * (phases.tokens_per_step or 1.0)
        attention += (reads.operations or 0.0) * each
    head = model.reads.head_parameters
    matrices = (active - head) * (computed + decoded) + head * generated
    return _PER_PARAMETER * matrices + attention
