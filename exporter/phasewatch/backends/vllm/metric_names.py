"""Every vLLM metric that PhaseWatch reads, under every name that a release, a wrapper or a dialect gives it.

The table was checked against the sources of vLLM 0.8.5, 0.10.0, 0.12.0, 0.16.0, 0.22.0, 0.27.1 and 0.32.0. Names are
keyed as sample names, never as families: the Python server writes the text format, the Rust front end (0.22 and newer)
OpenMetrics whatever it is asked for, and only the samples are alike in both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from math import inf
from typing import Final

PREFIXES: Final = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
"""vLLM itself; vLLM asked by a client that escapes colons; Ray Serve before and after it sanitised names."""

PROCESS_START: Final = "process_start_time_seconds"
"""Exposed by a single-process Python server only: its presence proves one API server, its change a restart."""


class Kind(StrEnum):
    """What a metric is upstream."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    TOTALS = "totals"
    """A histogram of which only `_sum` and `_count` are read."""
    INFO = "info"
    CREATED = "created"
    """The time at which a counter began, as the Python client writes it beside the counter."""


class Part(StrEnum):
    """Which number of a metric one sample carries."""

    VALUE = "value"
    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"
    LABELS = "labels"


class Combine(StrEnum):
    """How samples that differ only in labels we do not keep (Ray's ReplicaId and WorkerId) become one number."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True)
class Upstream:
    """One fact about an engine.

    Attributes:
        field: attribute of `EngineSample` that it fills.
        kind: its type upstream.
        names: names without prefix and suffix, newest first, each with the releases that expose it by default.
        where: labels a sample must carry to count.
        highest: largest value that makes sense.
        of_model: whether it is counted for all engines of a model together, without an engine label.
        combine: how several samples become one.
    """

    field: str
    kind: Kind
    names: Mapping[str, str]
    where: Mapping[str, str] = dataclass_field(default_factory=dict)
    combine: Combine = Combine.SUM
    of_model: bool = False
    highest: float = inf


UPSTREAM: Final = (
    Upstream("requests_running", Kind.GAUGE, {"num_requests_running": "all"}),
    Upstream("requests_waiting", Kind.GAUGE, {"num_requests_waiting": "all"}),
    Upstream(
        "requests_deferred",
        Kind.GAUGE,
        {"num_requests_waiting_by_reason": "0.22 and newer"},
        where={"reason": "deferred"},
    ),
    Upstream(
        "awake",
        Kind.GAUGE,
        {"engine_sleep_state": "0.12 and newer"},
        where={"sleep_state": "awake"},
        combine=Combine.MAX,
    ),
    Upstream(
        "kv_cache_usage",
        Kind.GAUGE,
        {"kv_cache_usage_perc": "0.9.2 and newer", "gpu_cache_usage_perc": "up to 0.10"},
        combine=Combine.MAX,
        highest=1.0,
    ),
    Upstream("cache_config", Kind.INFO, {"cache_config_info": "all, Python front end"}),
    Upstream("prompt_tokens", Kind.COUNTER, {"prompt_tokens": "all"}),
    Upstream(
        "prompt_tokens_computed",
        Kind.COUNTER,
        {"prompt_tokens_by_source": "0.16 and newer"},
        where={"source": "local_compute"},
    ),
    Upstream(
        "prompt_tokens_transferred",
        Kind.COUNTER,
        {"prompt_tokens_by_source": "0.16 and newer"},
        where={"source": "external_kv_transfer"},
    ),
    Upstream("prompt_tokens_cached", Kind.COUNTER, {"prompt_tokens_cached": "0.16 and newer"}),
    Upstream("generation_tokens", Kind.COUNTER, {"generation_tokens": "all"}),
    # One counter stands for all: they are made together. Absent from multiprocess pages and from the Rust front end.
    Upstream(
        "created", Kind.CREATED, {"generation_tokens": "V1, Python front end, one API server"}, combine=Combine.MAX
    ),
    Upstream(
        "prefix_cache_queries",
        Kind.COUNTER,
        {"prefix_cache_queries": "0.9.2 and newer", "gpu_prefix_cache_queries": "0.8 to 0.10 (V1), blocks in 0.8"},
    ),
    Upstream(
        "prefix_cache_hits",
        Kind.COUNTER,
        {"prefix_cache_hits": "0.9.2 and newer", "gpu_prefix_cache_hits": "0.8 to 0.10 (V1), blocks in 0.8"},
    ),
    Upstream("external_prefix_cache_hits", Kind.COUNTER, {"external_prefix_cache_hits": "0.12 and newer"}),
    Upstream("preemptions", Kind.COUNTER, {"num_preemptions": "all"}),
    Upstream("rejections", Kind.COUNTER, {"admission_rejections": "0.32 and newer"}, of_model=True),
    # A histogram whose own name ends in _total.
    Upstream("iteration_tokens", Kind.TOTALS, {"iteration_tokens_total": "all"}),
    Upstream("time_to_first_token", Kind.HISTOGRAM, {"time_to_first_token_seconds": "all"}),
    Upstream(
        "inter_token_latency",
        Kind.HISTOGRAM,
        {"inter_token_latency_seconds": "0.11 and newer", "time_per_output_token_seconds": "up to 0.11"},
    ),
    Upstream("queue_time", Kind.HISTOGRAM, {"request_queue_time_seconds": "all"}),
    Upstream("prefill_time", Kind.HISTOGRAM, {"request_prefill_time_seconds": "all"}),
    Upstream("request_latency", Kind.HISTOGRAM, {"e2e_request_latency_seconds": "all"}),
    Upstream("request_prompt_tokens", Kind.TOTALS, {"request_prompt_tokens": "all"}),
    Upstream("request_computed_tokens", Kind.TOTALS, {"request_prefill_kv_computed_tokens": "0.16 and newer"}),
    # There, and 0, unless the server was started with --enable-mfu-metrics.
    Upstream("estimated_flops_per_gpu", Kind.COUNTER, {"estimated_flops_per_gpu": "0.22 and newer"}),
    Upstream("estimated_read_bytes_per_gpu", Kind.COUNTER, {"estimated_read_bytes_per_gpu": "0.22 and newer"}),
)


@dataclass(frozen=True, eq=False)
class Slot:
    """Where one upstream sample belongs. Compared by identity: `SLOTS` holds the only instances.

    `rank` is 0 for the newest name; where a page carries two names of one fact, the lower rank counts.
    """

    upstream: Upstream
    part: Part
    rank: int


_SUFFIXES: Final[Mapping[Kind, Mapping[str, Part]]] = {
    Kind.GAUGE: {"": Part.VALUE},
    # Ray exported counters without _total for years.
    Kind.COUNTER: {"_total": Part.VALUE, "": Part.VALUE},
    Kind.HISTOGRAM: {"_bucket": Part.BUCKET, "_sum": Part.SUM, "_count": Part.COUNT},
    Kind.TOTALS: {"_sum": Part.SUM, "_count": Part.COUNT},
    Kind.INFO: {"": Part.LABELS},
    Kind.CREATED: {"_created": Part.VALUE},
}


def _slots() -> Iterator[tuple[str, Slot]]:
    for upstream in UPSTREAM:
        for rank, name in enumerate(upstream.names):
            for suffix, part in _SUFFIXES[upstream.kind].items():
                yield name + suffix, Slot(upstream, part, rank)


SLOTS: Final = tuple(_slots())
"""Sample name without prefix, and slot. One name may fill several: see `Upstream.where`."""


def slot(sample_name: str, labels: Mapping[str, str]) -> Slot | None:
    """The slot of a sample in any of its dialects; None for one that PhaseWatch does not read."""
    for prefix in PREFIXES:
        if sample_name.startswith(prefix):
            return next(
                (
                    place
                    for place in _BY_NAME.get(sample_name.removeprefix(prefix), ())
                    if all(labels.get(label) == value for label, value in place.upstream.where.items())
                ),
                None,
            )
    return None


_BY_NAME: Final[Mapping[str, tuple[Slot, ...]]] = {
    name: tuple(place for other, place in SLOTS if other == name) for name, _ in SLOTS
}
