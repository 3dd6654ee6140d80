"""The vLLM metrics that are read, under every name that a release, a wrapper or a dialect gives them.

The table was checked against the sources of vLLM 0.8.5, 0.10.0, 0.12.0, 0.16.0, 0.22.0, 0.27.1, 0.32.0 and 0.33. The
additions of 0.33 (`kv_offload_*`, `mooncake_*`) are not read. Names are sample names, not family names: the Python
server writes the text format, the Rust front end (0.22 and newer) always OpenMetrics, and only the samples are the same
in both.
"""

from typing import Final

from phasewatch.backends.metric_table import Combine, HttpCounter, MetricKind, MetricTable, UpstreamMetric

PREFIXES: Final = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
"""vLLM itself; vLLM for a client that escapes colons; Ray Serve before and after it sanitised names."""

_METRICS: Final = (
    UpstreamMetric("requests_running", MetricKind.GAUGE, {"num_requests_running": "all"}),
    UpstreamMetric("requests_waiting", MetricKind.GAUGE, {"num_requests_waiting": "all"}),
    UpstreamMetric(
        "requests_deferred",
        MetricKind.GAUGE,
        {"num_requests_waiting_by_reason": "0.22 and newer"},
        where={"reason": "deferred"},
    ),
    UpstreamMetric(
        "awake",
        MetricKind.GAUGE,
        {"engine_sleep_state": "0.12 and newer"},
        where={"sleep_state": "awake"},
        combine=Combine.MAX,
    ),
    UpstreamMetric(
        "kv_cache_usage",
        MetricKind.GAUGE,
        {"kv_cache_usage_perc": "0.9.2 and newer", "gpu_cache_usage_perc": "up to 0.10"},
        combine=Combine.MAX,
        highest=1.0,
    ),
    UpstreamMetric("cache_config", MetricKind.INFO, {"cache_config_info": "all, Python front end"}),
    UpstreamMetric("prompt_tokens", MetricKind.COUNTER, {"prompt_tokens": "all"}),
    UpstreamMetric(
        "prompt_tokens_computed",
        MetricKind.COUNTER,
        {"prompt_tokens_by_source": "0.16 and newer"},
        where={"source": "local_compute"},
    ),
    UpstreamMetric(
        "prompt_tokens_local_hits",
        MetricKind.COUNTER,
        {"prompt_tokens_by_source": "0.16 and newer"},
        where={"source": "local_cache_hit"},
    ),
    UpstreamMetric(
        "prompt_tokens_transferred",
        MetricKind.COUNTER,
        {"prompt_tokens_by_source": "0.16 and newer"},
        where={"source": "external_kv_transfer"},
    ),
    UpstreamMetric("prompt_tokens_cached", MetricKind.COUNTER, {"prompt_tokens_cached": "0.16 and newer"}),
    UpstreamMetric("generation_tokens", MetricKind.COUNTER, {"generation_tokens": "all"}),
    # One counter represents all, since they are created together. Multiprocess pages and the Rust front end lack it.
    UpstreamMetric(
        "created",
        MetricKind.CREATED,
        {"generation_tokens": "V1, Python front end, one API server"},
        combine=Combine.MAX,
    ),
    UpstreamMetric(
        "prefix_cache_queries",
        MetricKind.COUNTER,
        {"prefix_cache_queries": "0.9.2 and newer", "gpu_prefix_cache_queries": "0.8 to 0.10 (V1), blocks in 0.8"},
    ),
    UpstreamMetric(
        "prefix_cache_hits",
        MetricKind.COUNTER,
        {"prefix_cache_hits": "0.9.2 and newer", "gpu_prefix_cache_hits": "0.8 to 0.10 (V1), blocks in 0.8"},
    ),
    UpstreamMetric("external_prefix_cache_hits", MetricKind.COUNTER, {"external_prefix_cache_hits": "0.12 and newer"}),
    UpstreamMetric("preemptions", MetricKind.COUNTER, {"num_preemptions": "all"}),
    UpstreamMetric("rejections", MetricKind.COUNTER, {"admission_rejections": "0.32 and newer"}, of_model=True),
    *(
        UpstreamMetric(
            f"finished_{reason}",
            MetricKind.COUNTER,
            {"request_success": "all"},
            where={"finished_reason": reason},
        )
        for reason in ("stop", "length", "abort", "error")
    ),
    # Every other reason: `repetition` (0.22 and newer), and those of later releases.
    UpstreamMetric("finished_other", MetricKind.COUNTER, {"request_success": "all"}),
    UpstreamMetric("draft_tokens", MetricKind.COUNTER, {"spec_decode_num_draft_tokens": "all, with speculation"}),
    UpstreamMetric(
        "accepted_draft_tokens", MetricKind.COUNTER, {"spec_decode_num_accepted_tokens": "all, with speculation"}
    ),
    # A histogram whose own name ends in _total.
    UpstreamMetric("iteration_tokens", MetricKind.TOTALS, {"iteration_tokens_total": "all"}),
    UpstreamMetric("time_to_first_token", MetricKind.HISTOGRAM, {"time_to_first_token_seconds": "all"}),
    UpstreamMetric(
        "inter_token_latency",
        MetricKind.HISTOGRAM,
        {"inter_token_latency_seconds": "0.11 and newer", "time_per_output_token_seconds": "up to 0.11"},
    ),
    UpstreamMetric("queue_time", MetricKind.HISTOGRAM, {"request_queue_time_seconds": "all"}),
    UpstreamMetric("prefill_time", MetricKind.HISTOGRAM, {"request_prefill_time_seconds": "all"}),
    UpstreamMetric("request_latency", MetricKind.HISTOGRAM, {"e2e_request_latency_seconds": "all"}),
    UpstreamMetric("decode_time", MetricKind.TOTALS, {"request_decode_time_seconds": "all"}),
    UpstreamMetric("request_prompt_tokens", MetricKind.HISTOGRAM, {"request_prompt_tokens": "all"}),
    UpstreamMetric("request_output_tokens", MetricKind.HISTOGRAM, {"request_generation_tokens": "all"}),
    UpstreamMetric(
        "request_computed_tokens", MetricKind.TOTALS, {"request_prefill_kv_computed_tokens": "0.16 and newer"}
    ),
    # Exposed at 0 unless the server runs with --enable-mfu-metrics.
    UpstreamMetric("estimated_flops_per_gpu", MetricKind.COUNTER, {"estimated_flops_per_gpu": "0.22 and newer"}),
    UpstreamMetric(
        "estimated_read_bytes_per_gpu", MetricKind.COUNTER, {"estimated_read_bytes_per_gpu": "0.22 and newer"}
    ),
)

_ENDPOINTS: Final = (
    *("completions", "chat/completions", "chat/completions/batch", "responses", "messages"),
    *("embeddings", "pooling", "score", "rerank", "classify"),
    *("generate", "inference/v1/generate", "generative_scoring", "invocations"),
    *("audio/transcriptions", "audio/translations"),
)
"""Paths that make the engine work. Others, such as /v1/models and /tokenize, are not requests to the model."""

HTTP_REQUESTS: Final = HttpCounter(
    name="http_requests_total",
    path_label="handler",
    method_label="method",
    status_label="status",
    paths=frozenset(f"{version}/{endpoint}" for version in ("", "/v1", "/v2") for endpoint in _ENDPOINTS),
)
"""The counter of prometheus-fastapi-instrumentator, which has no prefix (0.8.3 and newer, V1 engine)."""

METRIC_NAMES: Final = MetricTable(
    _METRICS,
    PREFIXES,
    model_label="model_name",
    engine_label="engine",
    absent="the page has no vllm metrics: is this vLLM's own address, and does it run without --disable-log-stats?",
    http_requests=HTTP_REQUESTS,
)
