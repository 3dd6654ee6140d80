"""PromQL that several dashboards share: label matchers, one value per target, model or engine, and legends."""

from typing import Final

from dashboards.generate.model import Query

EXPORTER_MATCHERS: Final = 'job=~"$job", instance=~"$instance"'
TARGET_MATCHERS: Final = f'{EXPORTER_MATCHERS}, target=~"$target"'
MODEL_MATCHERS: Final = f'{TARGET_MATCHERS}, model_name=~"$model_name"'
ENGINE_MATCHERS: Final = f'{MODEL_MATCHERS}, engine=~"$engine"'
NAMES_OF_MODEL_METRICS: Final = '__name__=~"llm_requests_running|llm_model_loaded"'
"""Matches one metric of each engine of a vLLM or llama-server, and one of each Ollama model."""

BY_MODEL: Final = "target, model_name"
BY_ENGINE: Final = "target, model_name, engine"
BY_EXPORTER: Final = "job, instance"

TARGET_LEGEND: Final = "{{target}}"
MODEL_LEGEND: Final = "{{target}} {{model_name}}"
ENGINE_LEGEND: Final = "{{target}} {{model_name}} {{engine}}"
EXPORTER_LEGEND: Final = "{{instance}}"


def _select(name: str, matchers: str, labels: str, extra: dict[str, str]) -> str:
    more = "".join(f', {label}="{value}"' for label, value in extra.items())
    return f"max by ({labels}) ({name}{{{matchers}{more}}})"


def select_targets(name: str, **labels: str) -> str:
    """A metric once for each chosen target, however many exporters scrape it."""
    return _select(name, TARGET_MATCHERS, "target", labels)


def select_models(name: str, **labels: str) -> str:
    """A metric once for each chosen model, however many exporters report it."""
    return _select(name, MODEL_MATCHERS, BY_MODEL, labels)


def select_engines(name: str, **labels: str) -> str:
    """A metric once for each chosen engine; the models of an Ollama have no engine, so there it is once for each model."""
    return _select(name, ENGINE_MATCHERS, BY_ENGINE, labels)


def _select_utilization(name: str) -> str:
    """A utilization of each engine as PhaseWatch derives it, or else as vLLM itself reports it."""
    return f"({select_engines(name, source='derived')}\n  or {select_engines(name, source='engine')})"


MBU: Final = _select_utilization("llm_memory_bandwidth_utilization_ratio")
MFU: Final = _select_utilization("llm_compute_utilization_ratio")
PREFILL_CEILING_RATIO: Final = select_engines("llm_prefill_ceiling_ratio")
DECODE_CEILING_RATIO: Final = select_engines("llm_decode_ceiling_ratio", basis="read")
OBJECTIVES_MET: Final = f"min by ({BY_ENGINE}) (llm_objective_met{{{ENGINE_MATCHERS}}})"
"""1 for each engine within all objectives that its traffic decides, 0 for one beyond any of them."""

INTER_TOKEN_P99: Final = select_engines("llm_inter_token_latency_seconds", quantile="0.99")

_QUANTILES: Final = {"p99": "0.99", "p95": "0.95", "p50": "0.5"}


def build_quantile_queries(name: str) -> tuple[Query, ...]:
    """The quantiles of a metric for each engine, named p99, p95 and p50."""
    return tuple(
        Query(select_engines(name, quantile=quantile), f"{title} {ENGINE_LEGEND}", title)
        for title, quantile in _QUANTILES.items()
    )
