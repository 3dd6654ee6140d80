"""Metrics about hardware ceilings: facts of devices and models, limits, and utilization."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from phasewatch.analysis.ceiling import Ceiling
from phasewatch.metrics.descriptor import ENGINE_LABELS, EngineMetric, MetricSample, describe_engine_gauge
from phasewatch.snapshot.engine import EngineSnapshot


def _describe_labelled_gauge(
    name: str, label: str, text: str, read: Callable[[Ceiling], Mapping[str, float]]
) -> EngineMetric:
    """Describe an engine gauge with one sample for each value of an additional label."""

    def list_samples(engine: EngineSnapshot) -> Iterator[MetricSample]:
        for label_value, value in read(engine.ceiling).items():
            yield {label: str(label_value)}, value

    return EngineMetric(name, text, "gauge", (*ENGINE_LABELS, label), list_samples)


def _list_device_info(engine: EngineSnapshot) -> Iterator[MetricSample]:
    if engine.ceiling.device_info is not None:
        name, count = engine.ceiling.device_info
        yield {"device": name, "count": str(count)}, 1.0


CEILING_METRICS: Final = (
    EngineMetric(
        "llm_device_info",
        "1, with the device that serves the model and how many of it the target has.",
        "gauge",
        (*ENGINE_LABELS, "device", "count"),
        _list_device_info,
    ),
    _describe_labelled_gauge(
        "llm_device_memory_bandwidth_bytes_per_second",
        "source",
        "Memory bandwidth of all devices that serve the engine together; source says where it is from.",
        lambda ceiling: ceiling.device_memory_bandwidth_bytes_per_second,
    ),
    _describe_labelled_gauge(
        "llm_device_flops_per_second",
        "source",
        "Dense operations per second of all devices that serve the engine together, at the precision that "
        "the model is computed in; source says where it is from.",
        lambda ceiling: ceiling.device_flops_per_second,
    ),
    _describe_labelled_gauge(
        "llm_weight_bytes",
        "source",
        "Bytes of all weights of the model; source says where it is from.",
        lambda ceiling: ceiling.weight_bytes,
    ),
    describe_engine_gauge(
        "llm_weight_read_bytes",
        "Bytes of weights that an engine step reads, all devices together, at the mean batch of the window, of one "
        "stream while idle; for a mixture of experts an estimate.",
        lambda engine: engine.ceiling.weight_read_bytes,
    ),
    _describe_labelled_gauge(
        "llm_kv_cache_bytes_per_token",
        "source",
        "Bytes of keys and values that a token takes in the KV cache, all devices together; source says where it is "
        "from.",
        lambda ceiling: ceiling.kv_cache_bytes_per_token,
    ),
    _describe_labelled_gauge(
        "llm_decode_ceiling_tokens_per_second",
        "basis",
        "Most tokens per second that memory allows one stream without speculation: bandwidth / bytes per step. Basis "
        "weights: all weights but the experts that a token does not use. Basis read: the weights and KV cache that a "
        "mean step of the window read.",
        lambda ceiling: ceiling.decode_ceiling_tokens_per_second,
    ),
    _describe_labelled_gauge(
        "llm_decode_ceiling_ratio",
        "basis",
        "llm_decode_tokens_per_second / llm_decode_ceiling_tokens_per_second over the window. Above 1 is a finding: "
        "speculation, a mixture of experts, or wrong facts.",
        lambda ceiling: ceiling.decode_ceiling_ratio,
    ),
    _describe_labelled_gauge(
        "llm_memory_read_bytes_per_second",
        "source",
        "Bytes of weights and KV cache read per second over the window, all devices together. Source derived: engine "
        "steps x bytes per step. Source engine: vLLM estimated_read_bytes_per_gpu, activations included.",
        lambda ceiling: ceiling.memory_read_bytes_per_second,
    ),
    _describe_labelled_gauge(
        "llm_memory_bandwidth_utilization_ratio",
        "source",
        "Model bandwidth utilization (MBU) over the window: llm_memory_read_bytes_per_second / memory bandwidth.",
        lambda ceiling: ceiling.memory_bandwidth_utilization_ratio,
    ),
    _describe_labelled_gauge(
        "llm_compute_utilization_ratio",
        "source",
        "Model FLOPs utilization (MFU) over the window: operations that the tokens took / operations that the devices "
        "can do. Source derived: from tokens and parameters. Source engine: vLLM estimated_flops_per_gpu.",
        lambda ceiling: ceiling.compute_utilization_ratio,
    ),
    describe_engine_gauge(
        "llm_prefill_ceiling_tokens_per_second",
        "Most prompt tokens per second that compute allows, for prompts of the mean length in the window.",
        lambda engine: engine.ceiling.prefill_ceiling_tokens_per_second,
    ),
    describe_engine_gauge(
        "llm_prefill_ceiling_ratio",
        "llm_prefill_tokens_per_second / llm_prefill_ceiling_tokens_per_second over the window.",
        lambda engine: engine.ceiling.prefill_ceiling_ratio,
    ),
)
