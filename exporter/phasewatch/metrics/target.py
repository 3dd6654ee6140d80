"""Metrics about targets: whether they answer, and what they report about themselves."""

from collections.abc import Iterator
from typing import Final

from phasewatch.metrics.descriptor import TARGET_LABELS, MetricSample, TargetMetric, describe_target_gauge
from phasewatch.snapshot.target import TargetSnapshot


def _list_target_info(target: TargetSnapshot) -> Iterator[MetricSample]:
    if target.facts.version is not None:
        yield {"version": target.facts.version}, 1.0


def _list_model_info(target: TargetSnapshot) -> Iterator[MetricSample]:
    for name in sorted({engine.key.model_name for engine in target.engines} & target.facts.models.keys()):
        served = target.facts.models[name]
        length = "" if served.max_model_len is None else str(served.max_model_len)
        yield {"model_name": name, "root": served.root or "", "max_model_len": length}, 1.0
    for model in target.models:
        if model.digest is not None and model.details is not None:
            yield (
                {
                    "model_name": model.name,
                    "digest": model.digest,
                    "quantization": model.details.quantization,
                    "parameter_size": model.details.parameter_size,
                    "family": model.details.family,
                },
                1.0,
            )


def _list_errors(target: TargetSnapshot) -> Iterator[MetricSample]:
    for reason, count in target.errors.items():
        yield {"reason": reason.value}, float(count)


TARGET_METRICS: Final = (
    describe_target_gauge(
        "llm_target_up",
        "1 if the newest scrape of the server gave its metrics, 0 if it failed.",
        lambda target: None if target.up is None else float(target.up),
    ),
    TargetMetric(
        "llm_target_info",
        "1, with the version that the server tells (vLLM /version, llama-server /props, Ollama /api/version).",
        "gauge",
        (*TARGET_LABELS, "version"),
        _list_target_info,
    ),
    TargetMetric(
        "llm_model_info",
        "1, with what the server tells of a model it serves (vLLM /v1/models; llama-server /props; Ollama /api/ps, "
        "/api/tags).",
        "gauge",
        (
            *TARGET_LABELS,
            "model_name",
            "root",
            "max_model_len",
            "digest",
            "quantization",
            "parameter_size",
            "family",
        ),
        _list_model_info,
    ),
    describe_target_gauge(
        "llm_target_scrape_duration_seconds",
        "Time the newest scrape of the server took, failed ones included.",
        lambda target: target.scrape_seconds,
    ),
    describe_target_gauge(
        "llm_target_last_success_timestamp_seconds",
        "Unix time of the newest scrape that gave metrics.",
        lambda target: target.last_success,
    ),
    TargetMetric(
        "llm_target_scrape_errors_total",
        "Scrapes that failed, by reason.",
        "counter",
        (*TARGET_LABELS, "reason"),
        _list_errors,
    ),
)
