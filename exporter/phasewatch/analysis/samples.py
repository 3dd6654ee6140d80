"""What one page of metrics says, typed: an `EngineSample` for each model and engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class EngineKey:
    """Which engine a sample belongs to: a model, and the index of the engine (data-parallel rank) that serves it, None
    where a server has no such index.
    """

    model_name: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram: `upper_bounds` of its buckets in ascending order, `cumulative` the counts up to each.

    Both are empty for a histogram of which only the totals are read.
    """

    sum: float
    count: float
    upper_bounds: tuple[float, ...] = ()
    cumulative: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one page says about one engine; None where the page says nothing.

    Gauges: `requests_running`; `requests_waiting`, of which `requests_deferred` for reasons other than capacity;
    `kv_cache_usage` (0 to 1); `awake` (1, or 0 for an engine put to sleep). `created` is the Unix time at which the
    counters began. `rejections` is the same for all engines of a model. Everything else counts up: tokens, requests,
    operations and bytes as estimated by the server, and seconds, in histograms or in plain counters, whichever the
    server has. `cache_config` holds the labels with which the server describes its KV cache; they mean something to its
    backend alone.
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    requests_deferred: float | None = None
    awake: float | None = None
    kv_cache_usage: float | None = None
    created: float | None = None
    prompt_tokens: float | None = None
    prompt_tokens_computed: float | None = None
    prompt_tokens_transferred: float | None = None
    prompt_tokens_cached: float | None = None
    prefill_seconds: float | None = None
    generation_tokens: float | None = None
    decode_seconds: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    external_prefix_cache_hits: float | None = None
    preemptions: float | None = None
    rejections: float | None = None
    estimated_flops_per_gpu: float | None = None
    estimated_read_bytes_per_gpu: float | None = None
    iteration_tokens: Histogram | None = None
    time_to_first_token: Histogram | None = None
    inter_token_latency: Histogram | None = None
    queue_time: Histogram | None = None
    prefill_time: Histogram | None = None
    request_latency: Histogram | None = None
    request_prompt_tokens: Histogram | None = None
    request_computed_tokens: Histogram | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)


GAUGES: Final = (
    "requests_running",
    "requests_waiting",
    "requests_deferred",
    "awake",
    "kv_cache_usage",
    "created",
)
"""Fields of `EngineSample` that may fall."""

HISTOGRAMS: Final = tuple(field.name for field in fields(EngineSample) if field.type == Histogram | None)
COUNTERS: Final = tuple(
    field.name for field in fields(EngineSample) if field.type == float | None and field.name not in GAUGES
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page: what it says of each engine, and of the server that writes it.

    `process_start` is the Unix time at which the server's process started; only a single process exposes it.
    `openmetrics` is the dialect: True for OpenMetrics, False for the text format.
    """

    process_start: float | None
    openmetrics: bool
    engines: Mapping[EngineKey, EngineSample]
