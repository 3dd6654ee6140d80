"""Metrics about engines: phases, latencies, queue, KV cache and saturation."""

from collections.abc import Iterator
from typing import Final

from phasewatch.analysis.saturation import SaturationState
from phasewatch.metrics.descriptor import (
    ENGINE_LABELS,
    EngineMetric,
    MetricSample,
    describe_engine_gauge,
    describe_latency,
    list_totals,
)
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource


def _list_inter_token_bounds(engine: EngineSnapshot) -> Iterator[MetricSample]:
    """List all lower edges before all upper ones: OpenMetrics requires samples of one label set to be adjacent."""
    latency = engine.latencies.inter_token
    for order, quantile in latency.quantiles:
        yield {"quantile": str(order), "bound": "lower"}, quantile.lower_bound
    yield from list_totals(latency, {"bound": "lower"})
    for order, quantile in latency.quantiles:
        if quantile.upper_bound is not None:
            yield {"quantile": str(order), "bound": "upper"}, quantile.upper_bound
    yield from list_totals(latency, {"bound": "upper"})


def _list_saturation_states(engine: EngineSnapshot) -> Iterator[MetricSample]:
    for state in SaturationState if engine.state is not None else ():
        yield {"state": state.value}, float(state is engine.state)


def _list_measurement_sources(engine: EngineSnapshot) -> Iterator[MetricSample]:
    for source in MeasurementSource if engine.measurement_source is not None else ():
        yield {"source": source.value}, float(source is engine.measurement_source)


def _list_objectives(engine: EngineSnapshot) -> Iterator[MetricSample]:
    for objective, verdict in engine.objectives.items():
        yield {"objective": objective.value}, float(verdict.met)


PHASE_METRICS: Final = (
    describe_engine_gauge(
        "llm_prefill_tokens_per_second",
        "Speed of prefill as a request sees it: computed prompt tokens / prefill time, over the requests that finished "
        "in the window (vLLM request_prefill_kv_computed_tokens, request_prefill_time_seconds; llama-server "
        "prompt_tokens_total, prompt_seconds_total, /slots; Ollama without users: probes).",
        lambda engine: engine.phases.prefill_tokens_per_second,
    ),
    describe_engine_gauge(
        "llm_prefill_throughput_tokens_per_second",
        "Prompt tokens that the server computed per second over the window, cached tokens excluded "
        "(vLLM prompt_tokens_by_source local_compute; llama-server prompt_tokens_total).",
        lambda engine: engine.phases.prefill_throughput_tokens_per_second,
    ),
    describe_engine_gauge(
        "llm_prefill_streams",
        "Mean number of requests in prefill at once over the window; vLLM counts them when they finish "
        "(vLLM request_prefill_time_seconds / time; llama-server prompt_seconds_total, /slots).",
        lambda engine: engine.phases.prefill_streams,
    ),
    describe_engine_gauge(
        "llm_decode_tokens_per_second",
        "Mean speed of one stream over the window: tokens after the first / time spent between tokens "
        "(vLLM generation_tokens, time_to_first_token_seconds, inter_token_latency_seconds; llama-server "
        "tokens_predicted_total, tokens_predicted_seconds_total, /slots; Ollama without users: probes).",
        lambda engine: engine.phases.decode_tokens_per_second,
    ),
    describe_engine_gauge(
        "llm_decode_throughput_tokens_per_second",
        "Tokens after the first of each stream, of all streams, per second over the window (vLLM generation_tokens, "
        "time_to_first_token_seconds); for llama-server and Ollama the first token of each stream is included "
        "(llama-server tokens_predicted_total, /slots).",
        lambda engine: engine.phases.decode_throughput_tokens_per_second,
    ),
    describe_engine_gauge(
        "llm_decode_streams",
        "Mean number of streams decoding at once over the window (vLLM inter_token_latency_seconds / time; "
        "llama-server tokens_predicted_seconds_total, /slots).",
        lambda engine: engine.phases.decode_streams,
    ),
    describe_engine_gauge(
        "llm_tokens_per_step",
        "Mean tokens per stream and engine step over the window, 1 without speculative decoding "
        "(vLLM generation_tokens, inter_token_latency_seconds; llama-server tokens_predicted_total, "
        "n_busy_slots_per_decode).",
        lambda engine: engine.phases.tokens_per_step,
    ),
    describe_engine_gauge(
        "llm_engine_steps_per_second",
        "Engine steps that put out a token, per second over the window (vLLM iteration_tokens_total; behind several "
        "API servers from inter_token_latency_seconds; llama-server n_decode_total, batches of prompts included).",
        lambda engine: engine.phases.engine_steps_per_second,
    ),
    describe_engine_gauge(
        "llm_step_tokens",
        "Mean tokens per engine step over the window, computed prompt tokens and generated ones together.",
        lambda engine: engine.phases.step_tokens,
    ),
    describe_engine_gauge(
        "llm_token_stall_seconds",
        "While requests run, time since a scrape last saw the engine work: tokens, first outputs, steps or finished "
        "requests (vLLM generation_tokens and others; llama-server its counters and /slots).",
        lambda engine: engine.token_stall_seconds,
    ),
    describe_engine_gauge(
        "llm_prefix_cache_hit_ratio",
        "Share of prompt tokens found in the engine's own prefix cache over the window, 0 to 1 "
        "(vLLM prompt_tokens_by_source; before 0.16 prefix_cache_hits, prefix_cache_queries; llama-server "
        "prompt_tokens_cached_total).",
        lambda engine: engine.phases.prefix_cache_hit_ratio,
    ),
    describe_engine_gauge(
        "llm_context_tokens",
        "Mean tokens held in the KV cache per running request now.",
        lambda engine: engine.load.context_tokens,
    ),
)

SOURCE_METRICS: Final = (
    EngineMetric(
        "llm_measurement_source",
        "1 for where the phase figures of a model come from, 0 for the other: traffic, the requests of users, "
        "or probe, the newest valid probes.",
        "gauge",
        (*ENGINE_LABELS, "source"),
        _list_measurement_sources,
    ),
)
"""Only for servers that can be measured in more than one way."""

LATENCY_METRICS: Final = (
    *describe_latency(
        "time_to_first_token",
        "Time from the arrival of a request to its first token",
        "vLLM time_to_first_token_seconds",
        lambda engine: engine.latencies.time_to_first_token,
    ),
    *describe_latency(
        "inter_token_latency",
        "Time between two outputs of a stream",
        "vLLM inter_token_latency_seconds",
        lambda engine: engine.latencies.inter_token,
    ),
    EngineMetric(
        "llm_inter_token_latency_bound_seconds",
        "Edges of the bucket that holds the quantile over the window; without an upper edge it is at least the lower "
        "one, with a lower edge of 0 at most the upper one.",
        "summary",
        (*ENGINE_LABELS, "quantile", "bound"),
        _list_inter_token_bounds,
    ),
    *describe_latency(
        "queue_time",
        "Time that requests finished in the window had waited for their first scheduling",
        "vLLM request_queue_time_seconds",
        lambda engine: engine.latencies.queue,
    ),
    *describe_latency(
        "prefill_time",
        "Time that requests finished in the window had spent from first scheduling to first token",
        "vLLM request_prefill_time_seconds",
        lambda engine: engine.latencies.prefill,
    ),
)

LOAD_METRICS: Final = (
    describe_engine_gauge(
        "llm_requests_running",
        "Requests admitted now, in prefill or decode (vLLM num_requests_running; llama-server requests_processing).",
        lambda engine: engine.load.requests_running,
    ),
    describe_engine_gauge(
        "llm_requests_waiting",
        "Requests waiting now, preempted and deferred ones included (vLLM num_requests_waiting; llama-server "
        "requests_deferred).",
        lambda engine: engine.load.requests_waiting,
    ),
    describe_engine_gauge(
        "llm_requests_waiting_peak",
        "Most requests seen waiting by any scrape of the window.",
        lambda engine: engine.load.requests_waiting_peak,
    ),
    describe_engine_gauge(
        "llm_requests_waiting_growth_per_second",
        "Least-squares slope of the number of waiting requests over the window.",
        lambda engine: engine.load.requests_waiting_growth_per_second,
    ),
    describe_engine_gauge(
        "llm_kv_cache_usage_ratio",
        "Share of the KV cache in use now, 0 to 1; blocks kept only for reuse count as free "
        "(vLLM kv_cache_usage_perc; llama-server /slots).",
        lambda engine: engine.load.kv_cache_usage_ratio,
    ),
    describe_engine_gauge(
        "llm_kv_cache_usage_ratio_peak",
        "Highest share of the KV cache in use seen by any scrape of the window.",
        lambda engine: engine.load.kv_cache_usage_ratio_peak,
    ),
    describe_engine_gauge(
        "llm_kv_cache_capacity_tokens",
        "Tokens that the KV cache holds (vLLM cache_config_info; llama-server /props).",
        lambda engine: engine.load.kv_cache_capacity_tokens,
    ),
    describe_engine_gauge(
        "llm_kv_cache_used_tokens",
        "Tokens in the KV cache now: usage x capacity, or those of the slots in decode (llama-server /slots).",
        lambda engine: engine.load.kv_cache_used_tokens,
    ),
    describe_engine_gauge(
        "llm_preemptions_per_second",
        "Preemptions per second over the window; vLLM counts one when the request puts out a token again "
        "(vLLM num_preemptions).",
        lambda engine: engine.load.preemptions_per_second,
    ),
    describe_engine_gauge(
        "llm_kv_cache_next_request_fits",
        "1 if a prompt of mean length would be admitted to the KV cache now, 0 if not.",
        lambda engine: engine.load.kv_cache_next_request_fits,
    ),
    describe_engine_gauge(
        "llm_kv_cache_headroom_requests",
        "How many more requests fit into the KV cache until they finish, with what they and the running ones will "
        "generate.",
        lambda engine: engine.load.kv_cache_headroom_requests,
    ),
    EngineMetric(
        "llm_objective_met",
        "1 if figures over the window are within the objective of the target, 0 if not: p99 of inter-token latency, "
        "p95 of the time to first token, mean speed of a stream.",
        "gauge",
        (*ENGINE_LABELS, "objective"),
        _list_objectives,
    ),
    EngineMetric(
        "llm_saturation_state",
        "1 for the state that the engine is in, 0 for the others: why requests wait, if they do.",
        "gauge",
        (*ENGINE_LABELS, "state"),
        _list_saturation_states,
    ),
)
