"""The rows of our metric table about Ollama's models: who is in memory, and what was counted of their probes."""

from collections.abc import Callable, Iterator
from typing import Final

from phasewatch.metrics.descriptor import TARGET_LABELS, MetricSample, ModelMetric, list_optional
from phasewatch.snapshot.models import ModelSnapshot
from phasewatch.snapshot.probes import ProbeRecord

_MODEL_LABELS: Final = (*TARGET_LABELS, "model_name")


def _of_model(name: str, text: str, read: Callable[[ModelSnapshot], float | None]) -> ModelMetric:
    return ModelMetric(name, text, "gauge", _MODEL_LABELS, lambda model: list_optional(read(model)))


def _of_probes(name: str, text: str, read: Callable[[ProbeRecord], float | None], kind: str = "gauge") -> ModelMetric:
    return ModelMetric(
        name,
        text,
        kind,
        _MODEL_LABELS,
        lambda model: list_optional(read(model.probe)) if model.probe is not None else (),
    )


def _by_reason(name: str, text: str, read: Callable[[ProbeRecord], Iterator[MetricSample]]) -> ModelMetric:
    return ModelMetric(
        name,
        text,
        "counter",
        (*_MODEL_LABELS, "reason"),
        lambda model: read(model.probe) if model.probe is not None else (),
    )


def _failures(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.failures.items():
        yield {"reason": reason.value}, float(count)


def _discarded(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.discarded.items():
        yield {"reason": reason.value}, float(count)


def _skipped(record: ProbeRecord) -> Iterator[MetricSample]:
    for reason, count in record.skipped.items():
        yield {"reason": reason.value}, float(count)


MODEL_METRICS: Final = (
    _of_model(
        "llm_model_loaded",
        "1 if the model is in memory, 0 if it is on disk alone (Ollama /api/ps, /api/tags).",
        lambda model: model.loaded,
    ),
    _of_model(
        "llm_model_bytes",
        "Bytes that the loaded model takes, with its KV cache and buffers, wherever they are (Ollama /api/ps size).",
        lambda model: model.bytes,
    ),
    _of_model(
        "llm_model_vram_bytes",
        "Of the bytes of the loaded model, those on the devices (Ollama /api/ps size_vram).",
        lambda model: model.vram_bytes,
    ),
    _of_model(
        "llm_model_gpu_ratio",
        "Share of the loaded model that is on the devices, 0 to 1: size_vram / size (Ollama /api/ps).",
        lambda model: model.gpu_ratio,
    ),
    _of_model(
        "llm_model_context_length_tokens",
        "Tokens of context that the model was loaded with (Ollama /api/ps context_length).",
        lambda model: model.context_length_tokens,
    ),
    _of_model(
        "llm_model_expiry_timestamp_seconds",
        "Unix time at which the model will be unloaded if nobody asks for it again; some 292 years ahead for a model "
        "that is kept for ever (Ollama /api/ps expires_at).",
        lambda model: model.expiry,
    ),
    _of_model(
        "llm_probe_prefill_fixed_seconds",
        "Time that a prompt costs whatever its length, told apart from the cost of its tokens by the newest short and "
        "long probe.",
        lambda model: model.prefill_fixed_seconds,
    ),
    _of_probes(
        "llm_model_load_duration_seconds",
        "Time that the newest load took which a probe has seen: one that the operator allowed, or that it caused.",
        lambda record: record.load_seconds,
    ),
    _of_probes(
        "llm_probe_success",
        "1 if the newest probe was answered, 0 if it failed.",
        lambda record: None if record.success is None else float(record.success),
    ),
    _of_probes(
        "llm_probe_duration_seconds",
        "Time that the newest probe took by the exporter's clock, failed ones included.",
        lambda record: record.duration,
    ),
    _of_probes(
        "llm_probe_queue_seconds",
        "Time that the newest probe that was answered had to wait for its turn: total - load - prompt - output, less "
        "what is left over on an idle server.",
        lambda record: record.queue_seconds,
    ),
    _of_probes(
        "llm_probe_last_success_timestamp_seconds",
        "Unix time of the newest probe whose answer counts.",
        lambda record: record.last_success,
    ),
    _of_probes("llm_probes_total", "Probes sent.", lambda record: float(record.probes), "counter"),
    _by_reason("llm_probe_failures_total", "Probes that failed, by reason.", _failures),
    _by_reason("llm_probes_discarded_total", "Probes whose answer counts for nothing, by reason.", _discarded),
    _by_reason("llm_probes_skipped_total", "Probes that were due and not sent, by reason.", _skipped),
    _of_probes(
        "llm_probe_caused_reloads_total",
        "Probes that made the server load the model; the model is not probed any more then.",
        lambda record: float(record.caused_reloads),
        "counter",
    ),
)
