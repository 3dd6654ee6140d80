"""Metrics about Ollama's models: residency in memory, and counters of their probes."""

from collections.abc import Callable, Iterator
from typing import Final

from phasewatch.metrics.descriptor import TARGET_LABELS, MetricSample, ModelMetric, list_optional
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord

_MODEL_LABELS: Final = (*TARGET_LABELS, "model_name")


def _describe_model_gauge(name: str, text: str, read: Callable[[ModelSnapshot], float | None]) -> ModelMetric:
    return ModelMetric(name, text, "gauge", _MODEL_LABELS, lambda model: list_optional(read(model)))


def _describe_probe_metric(
    name: str, text: str, read: Callable[[ProbeRecord], float | None], kind: str = "gauge"
) -> ModelMetric:
    return ModelMetric(
        name,
        text,
        kind,
        _MODEL_LABELS,
        lambda model: list_optional(read(model.probe)) if model.probe is not None else (),
    )


def _describe_reason_counter(
    name: str, text: str, read: Callable[[ProbeRecord], Iterator[MetricSample]]
) -> ModelMetric:
    return ModelMetric(
        name,
        text,
        "counter",
        (*_MODEL_LABELS, "reason"),
        lambda model: read(model.probe) if model.probe is not None else (),
    )


def _list_failures(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.failures.items():
        yield {"reason": reason.value}, float(count)


def _list_discards(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.discarded.items():
        yield {"reason": reason.value}, float(count)


def _list_skips(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.skipped.items():
        yield {"reason": reason.value}, float(count)


MODEL_METRICS: Final = (
    _describe_model_gauge(
        "llm_model_loaded",
        "1 if the model is in memory, 0 if it is on disk alone (Ollama /api/ps, /api/tags).",
        lambda model: model.loaded,
    ),
    _describe_model_gauge(
        "llm_model_bytes",
        "Bytes that the loaded model takes, with its KV cache and buffers, wherever they are (Ollama /api/ps size).",
        lambda model: model.bytes,
    ),
    _describe_model_gauge(
        "llm_model_vram_bytes",
        "Of the bytes of the loaded model, those on the devices (Ollama /api/ps size_vram).",
        lambda model: model.vram_bytes,
    ),
    _describe_model_gauge(
        "llm_model_gpu_ratio",
        "Share of the loaded model that is on the devices, 0 to 1: size_vram / size (Ollama /api/ps).",
        lambda model: model.gpu_ratio,
    ),
    _describe_model_gauge(
        "llm_model_context_length_tokens",
        "Tokens of context that the model was loaded with (Ollama /api/ps context_length).",
        lambda model: model.context_length_tokens,
    ),
    _describe_model_gauge(
        "llm_model_expiry_timestamp_seconds",
        "Unix time at which the model will be unloaded if nobody asks for it again; some 292 years ahead for a model "
        "that is kept for ever (Ollama /api/ps expires_at).",
        lambda model: model.expiry,
    ),
    _describe_model_gauge(
        "llm_probe_prefill_fixed_seconds",
        "Time that a prompt costs whatever its length, told apart from the cost of its tokens by the newest short and "
        "long probe.",
        lambda model: model.prefill_fixed_seconds,
    ),
    _describe_probe_metric(
        "llm_model_load_duration_seconds",
        "Time that the newest load took which a probe has seen: one that the operator allowed, or that it caused.",
        lambda record: record.load_seconds,
    ),
    _describe_probe_metric(
        "llm_probe_success",
        "1 if the newest probe was answered, 0 if it failed.",
        lambda record: None if record.success is None else float(record.success),
    ),
    _describe_probe_metric(
        "llm_probe_duration_seconds",
        "Time that the newest probe took by the exporter's clock, failed ones included.",
        lambda record: record.duration,
    ),
    _describe_probe_metric(
        "llm_probe_queue_seconds",
        "Time that the newest probe that was answered had to wait for its turn: total - load - prompt - output, less "
        "what is left over on an idle server.",
        lambda record: record.queue_seconds,
    ),
    _describe_probe_metric(
        "llm_probe_last_success_timestamp_seconds",
        "Unix time of the newest probe whose answer counts.",
        lambda record: record.last_success,
    ),
    _describe_probe_metric("llm_probes_total", "Probes sent.", lambda record: float(record.probes), "counter"),
    _describe_reason_counter("llm_probe_failures_total", "Probes that failed, by reason.", _list_failures),
    _describe_reason_counter(
        "llm_probes_discarded_total", "Probes whose answer counts for nothing, by reason.", _list_discards
    ),
    _describe_reason_counter("llm_probes_skipped_total", "Probes that were due and not sent, by reason.", _list_skips),
    _describe_probe_metric(
        "llm_probe_caused_reloads_total",
        "Probes that made the server load the model; the model is not probed any more then.",
        lambda record: float(record.caused_reloads),
        "counter",
    ),
)
