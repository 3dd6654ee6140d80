"""The content of one page of metrics, typed: an `EngineSample` for each model and engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class EngineKey:
    """The engine of a sample: the model, and the index of the engine (data-parallel rank) that serves it. `engine` is
    None for servers without such an index.
    """

    model_name: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram: `upper_bounds` of its buckets in ascending order, and `cumulative` counts up to each.

    Both are empty if only the totals are read.
    """

    sum: float
    count: float
    upper_bounds: tuple[float, ...] = ()
    cumulative: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSample:
    """The figures of one engine on one page; None for those that the page does not have.

    Gauges: `requests_running`, of which `requests_prefilling` are in prefill; `requests_waiting`, of which
    `requests_deferred` for reasons other than capacity; `kv_cache_usage` (0 to 1); `kv_cache_tokens`, which the running
    requests hold; `streams_per_step`, a mean since the server started; `awake` (1, or 0 for an engine put to sleep).
    `created` identifies the start of the counters, by its Unix time or otherwise. `rejections` is the same for all
    engines of a model. `finished_*` count requests by the reason for which they finished. All other fields are counters
    too: tokens, requests, steps, seconds, and the server's own estimates of operations and bytes, in histograms or in
    plain counters, whichever the server has. Where a server shows each request, `prefill_progress` counts the computed
    tokens of unfinished prompts too, and `stream_seconds` is `decode_seconds` with that of unfinished streams, which
    passes whether they get tokens or not. `requests_begun` counts the requests that
    any scrape has seen, at work or ended. Three more counters follow from comparing one scrape with the next:
    `tracked_tokens` and `tracked_seconds` of streams that were seen decoding by both, and `sampled_seconds` of all
    streams, by the trapezoidal rule. `cache_config` holds the labels with which the server describes its KV cache; only
    its backend interprets them.
    """

    requests_running: float | None = None
    requests_prefilling: float | None = None
    requests_waiting: float | None = None
    requests_deferred: float | None = None
    awake: float | None = None
    kv_cache_usage: float | None = None
    kv_cache_tokens: float | None = None
    streams_per_step: float | None = None
    created: float | None = None
    prompt_tokens: float | None = None
    prompt_tokens_computed: float | None = None
    prompt_tokens_local_hits: float | None = None
    prompt_tokens_transferred: float | None = None
    prompt_tokens_cached: float | None = None
    prefill_progress: float | None = None
    requests_begun: float | None = None
    prefill_seconds: float | None = None
    generation_tokens: float | None = None
    decode_seconds: float | None = None
    stream_seconds: float | None = None
    tracked_tokens: float | None = None
    tracked_seconds: float | None = None
    sampled_seconds: float | None = None
    engine_steps: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    external_prefix_cache_hits: float | None = None
    preemptions: float | None = None
    rejections: float | None = None
    finished_stop: float | None = None
    finished_length: float | None = None
    finished_abort: float | None = None
    finished_error: float | None = None
    finished_other: float | None = None
    draft_tokens: float | None = None
    accepted_draft_tokens: float | None = None
    estimated_flops_per_gpu: float | None = None
    estimated_read_bytes_per_gpu: float | None = None
    iteration_tokens: Histogram | None = None
    time_to_first_token: Histogram | None = None
    inter_token_latency: Histogram | None = None
    queue_time: Histogram | None = None
    prefill_time: Histogram | None = None
    decode_time: Histogram | None = None
    request_latency: Histogram | None = None
    request_prompt_tokens: Histogram | None = None
    request_output_tokens: Histogram | None = None
    request_computed_tokens: Histogram | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)


GAUGES: Final = (
    "requests_running",
    "requests_prefilling",
    "requests_waiting",
    "requests_deferred",
    "awake",
    "kv_cache_usage",
    "kv_cache_tokens",
    "streams_per_step",
    "created",
)
"""Fields of `EngineSample` that may decrease."""

HISTOGRAMS: Final = tuple(field.name for field in fields(EngineSample) if field.type == Histogram | None)
COUNTERS: Final = tuple(
    field.name for field in fields(EngineSample) if field.type == float | None and field.name not in GAUGES
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its engines, and what it says about the server itself.

    `process_start` is the Unix time at which the process that wrote the page started, or another program whose metrics
    were merged into it; None if the page has no such time, or several.
    `openmetrics` is the dialect: True for OpenMetrics, False for the text format. `http_requests` counts the requests
    for tokens that were answered, by class of HTTP status (2xx, 4xx, 5xx); empty if the page does not have them, or
    not before the first one. `notes` say in words what was left out because its value cannot be right, each once.
    """

    process_start: float | None
    openmetrics: bool
    engines: Mapping[EngineKey, EngineSample]
    http_requests: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
