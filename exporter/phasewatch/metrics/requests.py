"""Metrics about requests: how they end, how long they are and take, and where their prompt tokens come from."""

from collections.abc import Iterator
from typing import Final

from phasewatch.metrics.descriptor import (
    ENGINE_LABELS,
    TARGET_LABELS,
    EngineMetric,
    MetricSample,
    TargetMetric,
    describe_distribution,
    describe_engine_gauge,
    describe_latency,
    describe_target_gauge,
)
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.target import TargetSnapshot


def _list_finished(engine: EngineSnapshot) -> Iterator[MetricSample]:
    for reason, rate in engine.requests.finished_per_second.items():
        yield {"reason": reason.value}, rate


def _list_prompt_tokens(engine: EngineSnapshot) -> Iterator[MetricSample]:
    for source, rate in engine.requests.prompt_tokens_per_second.items():
        yield {"source": source.value}, rate


def _list_http_requests(target: TargetSnapshot) -> Iterator[MetricSample]:
    for status, rate in target.requests.http_per_second.items():
        yield {"status": status}, rate


REQUEST_METRICS: Final = (
    EngineMetric(
        "llm_requests_finished_per_second",
        "Requests that finished per second over the window, by reason; vLLM counts no aborted request "
        "(vLLM request_success).",
        "gauge",
        (*ENGINE_LABELS, "reason"),
        _list_finished,
    ),
    *describe_latency(
        "request_latency",
        "Time from the arrival of a request to its last token, of requests that finished",
        "vLLM e2e_request_latency_seconds",
        lambda engine: engine.requests.latency,
    ),
    describe_engine_gauge(
        "llm_decode_time_mean_seconds",
        "Time from the first to the last token of a request, mean over those that finished in the window "
        "(vLLM request_decode_time_seconds).",
        lambda engine: engine.requests.decode_time_mean_seconds,
    ),
    *describe_distribution(
        ("llm_request_prompt_tokens", "llm_request_prompt_mean_tokens"),
        "Prompt tokens of a request, of requests that finished",
        "vLLM request_prompt_tokens",
        lambda engine: engine.requests.prompt_tokens,
    ),
    *describe_distribution(
        ("llm_request_output_tokens", "llm_request_output_mean_tokens"),
        "Generated tokens of a request, of requests that finished",
        "vLLM request_generation_tokens",
        lambda engine: engine.requests.output_tokens,
    ),
    EngineMetric(
        "llm_prompt_tokens_per_second",
        "Prompt tokens per second over the window by where their keys and values came from: computed, the engine's own "
        "prefix cache, or another cache or server; together all prompt tokens (vLLM prompt_tokens_by_source; "
        "llama-server prompt_tokens_total, prompt_tokens_cached_total).",
        "gauge",
        (*ENGINE_LABELS, "source"),
        _list_prompt_tokens,
    ),
    describe_engine_gauge(
        "llm_draft_acceptance_ratio",
        "Share of the tokens drafted by speculative decoding that were accepted, over the window, 0 to 1 "
        "(vLLM and llama-server spec_decode_num_accepted_tokens, spec_decode_num_draft_tokens).",
        lambda engine: engine.requests.draft_acceptance_ratio,
    ),
)

SERVER_REQUEST_METRICS: Final = (
    TargetMetric(
        "llm_http_requests_per_second",
        "HTTP requests to endpoints that make the model work, answered per second over the window, by class of status "
        "(vLLM http_requests_total).",
        "gauge",
        (*TARGET_LABELS, "status"),
        _list_http_requests,
    ),
    describe_target_gauge(
        "llm_request_error_ratio",
        "Share of the requests that ended in the window with an error, a refusal or HTTP 5xx, 0 to 1 "
        "(vLLM request_success, admission_rejections, http_requests_total).",
        lambda target: target.requests.error_ratio,
    ),
)
