"""Differences between vLLM's releases, and metrics that do not count what their names suggest."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from phasewatch.analysis.queue import KvCacheSize
from phasewatch.analysis.samples import EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, subtract_histograms
from phasewatch.base.optional import multiply
from phasewatch.models.costs import KvCache, ModelSource

INFLATED: Final = 1.5
"""Ratio of counted steps to steps derived from latency above which several processes have counted: it is about 1 for
one process, and about 2 for two busy ones."""

_CORRUPTED_TOGETHER: Final = ("queue_time", "prefill_time")
"""Histograms that get an impossible observation from the same request, see `find_corrupt_histograms`."""


def has_one_api_server(page: Page, sample: EngineSample, configured: int | None) -> bool | None:
    """Whether one process writes the page: as configured, or else if the counters have start times, which only a single
    process exposes.

    None if the page does not show it. A start time of a process may be another program's, whose metrics were merged
    into the page. The Rust front end, which writes OpenMetrics, is one process, but others may write OpenMetrics too.
    """
    if configured is not None:
        return configured == 1
    if sample.created is not None:
        return True
    return None if page.openmetrics or page.process_start is not None else False


def count_steps(past: EngineHistory, *, one_api_server: bool | None) -> float | None:
    """Steps of the engine that generated at least one token.

    `iteration_tokens_total_count` counts them, but each API server process counts every step in which one of its own
    requests took part, so N processes count a step up to N times (0.8 to 0.32; under data parallelism N is the number
    of ranks by default). With several processes the steps are derived from inter-token latency instead, scrape by
    scrape: while anything decodes, a step takes one mean latency, so

        steps = observations / max(1, mean number of streams),    streams = latency sum / time,

    but not more than were counted. Steps that generate only first tokens are not included.

    Args:
        past: the window, scrape by scrape.
        one_api_server: whether one process counts. If None, the count is used unless it is `INFLATED` in comparison
            with the latencies, which means that several processes are busy.
    """
    growth = past.growth
    return _choose_steps(growth.iteration_tokens, growth.inter_token_latency, past, one_api_server=one_api_server)


def count_interval_steps(past: EngineHistory, *, one_api_server: bool | None) -> tuple[float | None, ...]:
    """Steps from each scrape to the next, counted like those of `count_steps`."""
    intervals = zip(pairwise(past.times), pairwise(past.samples), strict=True)
    return tuple(
        _choose_steps(
            _subtract_totals(before.iteration_tokens, after.iteration_tokens),
            _subtract_totals(before.inter_token_latency, after.inter_token_latency),
            EngineHistory(times, (before, after)),
            one_api_server=one_api_server,
        )
        for times, (before, after) in intervals
    )


def _choose_steps(
    iterations: Histogram | None, latency: Histogram | None, past: EngineHistory, *, one_api_server: bool | None
) -> float | None:
    counted = iterations.count if iterations else None
    if one_api_server or latency is None:
        return counted if one_api_server else None
    if latency.count == 0 and counted:
        return counted if one_api_server is None else None
    intervals = list(_derive_steps(past))
    if one_api_server is None and counted is not None and counted <= INFLATED * sum(steps for steps, _ in intervals):
        return counted
    # Each process counts every step that it takes part in, so the total is never too low.
    return sum(steps if most is None else min(steps, most) for steps, most in intervals)


def _derive_steps(past: EngineHistory) -> Iterator[tuple[float, float | None]]:
    """Steps derived from latency, and counted steps (None if unknown), from each scrape to the next."""
    for (start, end), (before, after) in zip(pairwise(past.times), pairwise(past.samples), strict=True):
        latency = _subtract_totals(before.inter_token_latency, after.inter_token_latency)
        if latency is not None and latency.count > 0:
            iterations = _subtract_totals(before.iteration_tokens, after.iteration_tokens)
            yield latency.count / max(1.0, latency.sum / (end - start)), iterations.count if iterations else None


def _subtract_totals(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """The growth of sum and count. Buckets are left out: they would take most of the time."""
    if after is None:
        return None
    return Histogram(after.sum - (before.sum if before else 0.0), after.count - (before.count if before else 0.0))


def read_kv_cache_size(
    sample: EngineSample, *, alone: bool, version: str | None, kv_cache: KvCache | None
) -> KvCacheSize | None:
    """Size of an engine's KV cache, from the labels of `cache_config_info`; None if unknown.

    `kv_cache_size_tokens` is the capacity since 0.23. Before, it is blocks x block size if all layers have the same
    cache. From 0.10 to 0.22, layers of several kinds share the blocks (gpt-oss-120b, half of whose layers have a
    sliding window, holds half as many tokens), which the page does not show: the model's files do. With several engines
    on the page, some releases up to 0.22 report the sum of all engines as `num_gpu_blocks` of each and others do not,
    so it is not used then. One block is never given to a request (0.8 to 0.32).

    Args:
        sample: the engine's sample.
        alone: whether it is the only engine on the page.
        version: the server's version; None if unknown.
        kv_cache: the KV cache of the model, from its files; None if unknown.
    """
    config = sample.cache_config
    tokens, blocks, block_size = (
        float(text) if (text := config.get(label, "")).isdigit() else None
        for label in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")
    )
    if tokens is None and alone and _has_uniform_layers(config, version, kv_cache):
        tokens = multiply(blocks, block_size)
    if tokens is None:
        return None
    return KvCacheSize(tokens, block=block_size, reserved=block_size) if block_size else KvCacheSize(tokens)


def _has_uniform_layers(config: Mapping[str, str], version: str | None, kv_cache: KvCache | None) -> bool:
    """Whether all layers of a model keep the same tokens in a KV cache of the same shape."""
    if config.get("mamba_block_size", "None") != "None":
        return False
    if version is not None and version.startswith(("0.8.", "0.9.")):
        return True
    return kv_cache is not None and kv_cache.source is not ModelSource.CONFIG and len(kv_cache.layers) == 1


def read_cache_dtype(sample: EngineSample) -> str | None:
    """Number format of the KV cache, from the labels of `cache_config_info`."""
    return sample.cache_config.get("cache_dtype")


def find_corrupt_histograms(before: EngineSample, after: EngineSample) -> Iterable[str]:
    """Names of histograms with an impossible observation between two samples.

    A request that fails before it is scheduled is observed with minus the process's uptime as its queue time and plus
    the uptime as its prefill time (0.8 to 0.32). The former makes the sum fall, unless other requests make up for it.
    The latter is a prefill that takes longer than any whole request; then the queue time is wrong as well.
    """
    return _CORRUPTED_TOGETHER if _prefill_outlasts_requests(before, after) else ()


def _prefill_outlasts_requests(before: EngineSample, after: EngineSample) -> bool:
    """Whether the prefill times between two samples cannot be those of the requests that finished between them.

    A prefill is part of a request, so at most as many prefills as requests can exceed an upper bound. The two are
    measured by different clocks, so the next lower bound is used for the requests.
    """
    if not (before.prefill_time and after.prefill_time and before.request_latency and after.request_latency):
        return False
    bounds = after.prefill_time.upper_bounds
    pages = (before.prefill_time, before.request_latency, after.request_latency)
    if any(histogram.upper_bounds != bounds for histogram in pages):
        return False
    prefill = subtract_histograms(before.prefill_time, after.prefill_time)
    whole = subtract_histograms(before.request_latency, after.request_latency)
    # A multiprocess page may be read in the middle of an update; then the two include different requests.
    if prefill.count != whole.count:
        return False
    up_to_the_bound_below = (0.0, *whole.cumulative)
    return any(
        prefill.count - prefills > whole.count - requests
        for prefills, requests in zip(prefill.cumulative, up_to_the_bound_below, strict=False)
    )
