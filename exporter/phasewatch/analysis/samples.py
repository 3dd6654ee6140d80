"""What one page says, typed: an `EngineSample` for each model and engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from phasewatch.backends.vllm.metric_names import UPSTREAM, Kind


@dataclass(frozen=True, slots=True, order=True)
class EngineKey:
    """Who a sample speaks of: a model, and the index of the engine (data-parallel rank) that serves it, if the server
    has such.
    """

    model_name: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram. `edges` are upper edges in ascending order, `cumulative` the counts up to each.

    Both are empty for a histogram of which only the totals are read.
    """

    sum: float
    count: float
    edges: tuple[float, ...] = ()
    cumulative: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What one page says about one engine; None where the page says nothing.

    Gauges: `requests_running`; `requests_waiting`, of which `requests_deferred` for other reasons than capacity;
    `kv_cache_usage` (0 to 1); `awake` (1, or 0 for an engine put to sleep). `created` is the Unix time at which the
    counters began. `rejections` is the same for all engines of a model. Everything else counts up: tokens, requests,
    operations and bytes by vLLM's own estimate, and seconds in the histograms.
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
    generation_tokens: float | None = None
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


COUNTERS: Final = tuple(upstream.field for upstream in UPSTREAM if upstream.kind is Kind.COUNTER)
HISTOGRAMS: Final = tuple(upstream.field for upstream in UPSTREAM if upstream.kind in {Kind.HISTOGRAM, Kind.TOTALS})


@dataclass(frozen=True, slots=True)
class Page:
    """One page: what it says of each engine, and of the server that writes it.

    `process_start` is the Unix time at which the server's process started; only a single process shows it.
    `openmetrics` tells the dialect, in which the Rust front end answers whatever it is asked for (0.22 to 0.32).
    """

    process_start: float | None
    openmetrics: bool
    engines: Mapping[EngineKey, EngineSample]
