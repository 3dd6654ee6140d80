"""Where a vLLM release counts otherwise than its metrics' names suggest."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from phasewatch.analysis.samples import EngineSample, Histogram, Page
from phasewatch.analysis.window import EngineHistory, subtract_histograms

INFLATED: Final = 1.5
"""Counted steps / steps that follow from latency, above which several processes have counted: one gives about 1, two
that are busy about 2."""

_WRONG_TOGETHER: Final = ("queue_time", "prefill_time")


def has_one_api_server(page: Page, sample: EngineSample, configured: int | None) -> bool | None:
    """Whether one process writes the page: as configured, or else by what only a single process exposes.

    None for OpenMetrics without that: the Rust front end is one process, but others may speak the dialect as well.
    """
    if configured is not None:
        return configured == 1
    if page.process_start is not None or sample.created is not None:
        return True
    return None if page.openmetrics else False


def count_steps(past: EngineHistory, *, one_api_server: bool | None) -> float | None:
    """Steps of the engine that put out at least one token.

    `iteration_tokens_total_count` counts them, but each API server process counts every step in which one of its own
    requests took part, so N processes count up to N times (0.8 to 0.32; N is the number of ranks under data parallelism
    by default). With several processes the steps follow from inter-token latency instead, scrape by scrape: while
    anything decodes, one step is one mean latency long, so

        steps = observations / max(1, mean number of streams),    streams = latency sum / time,

    and no more than were counted. Steps that put out nothing but first tokens are not in that figure.

    Args:
        past: the window, scrape by scrape.
        one_api_server: whether one process counts. If None, the count is taken unless it is `INFLATED` against the
            latencies, as it is where several processes are busy.
    """
    growth = past.growth
    return _choose_steps(growth.iteration_tokens, growth.inter_token_latency, past, one_api_server=one_api_server)


def count_interval_steps(past: EngineHistory, *, one_api_server: bool | None) -> tuple[float | None, ...]:
    """Steps as `count_steps` has them, from each scrape to the next."""
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
    # No process misses a step that it took part in, so all of them together never count too few.
    return sum(steps if most is None else min(steps, most) for steps, most in intervals)


def _derive_steps(past: EngineHistory) -> Iterator[tuple[float, float | None]]:
    """Steps that follow from latency, and steps that were counted, from each scrape to the next."""
    for (start, end), (before, after) in zip(pairwise(past.times), pairwise(past.samples), strict=True):
        latency = _subtract_totals(before.inter_token_latency, after.inter_token_latency)
        if latency is not None and latency.count > 0:
            iterations = _subtract_totals(before.iteration_tokens, after.iteration_tokens)
            yield latency.count / max(1.0, latency.sum / (end - start)), iterations.count if iterations else None


def _subtract_totals(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """A difference without buckets, which would take most of the time."""
    if before is None or after is None:
        return None
    return Histogram(after.sum - before.sum, after.count - before.count)


def count_computed_prompt_tokens(growth: EngineSample, now: EngineSample, version: str | None) -> float | None:
    """Prompt tokens that the engine really computed, cached and transferred ones excluded.

    `prompt_tokens_by_source{source="local_compute"}` says so since 0.16. Before, cached tokens have to be taken off;
    0.8 counted them in blocks, so without the version a page that shows hits cannot be read.

    Args:
        growth: of the counters.
        now: the newest sample, for the cache configuration.
        version: the server's version, if known.
    """
    if growth.prompt_tokens_computed is not None:
        return growth.prompt_tokens_computed
    if growth.prompt_tokens is None:
        return None
    if growth.prompt_tokens_cached is not None:
        return _drop_negative(growth.prompt_tokens - growth.prompt_tokens_cached)
    if never_caches(now) or growth.prefix_cache_hits == 0:
        return growth.prompt_tokens
    hits = _count_hit_tokens(growth, now, version)
    return None if hits is None else _drop_negative(growth.prompt_tokens - hits)


def never_caches(now: EngineSample) -> bool:
    """Whether prefix caching is off. The V0 engine (0.8) says None for that, and counts no look-ups."""
    setting = now.cache_config.get("enable_prefix_caching")
    return setting == "False" or (setting == "None" and now.prefix_cache_queries is None)


def _count_hit_tokens(growth: EngineSample, now: EngineSample, version: str | None) -> float | None:
    if growth.prefix_cache_hits is None or version is None:
        return None
    if not version.startswith("0.8."):
        return growth.prefix_cache_hits + (growth.external_prefix_cache_hits or 0.0)
    block_size = now.cache_config.get("block_size", "")
    return growth.prefix_cache_hits * int(block_size) if block_size.isdigit() else None


def _drop_negative(tokens: float) -> float | None:
    """Hits are counted at admission and prompts at their first token, so over a short window the difference may be
    below 0; then it is unknown.
    """
    return tokens if tokens >= 0 else None


def read_kv_cache_capacity(sample: EngineSample, *, alone: bool) -> float | None:
    """Tokens that the KV cache of one engine holds, from the labels of `cache_config_info`.

    `kv_cache_size_tokens` says it since 0.23. Before, blocks x block size is right for a model whose layers all keep
    the same cache; with several engines on the page `num_gpu_blocks` is their sum on each of them in some releases and
    not in others (up to 0.22), so it is not used there.

    Args:
        sample: of the engine.
        alone: whether the page speaks of this engine only.
    """
    config = sample.cache_config
    tokens = config.get("kv_cache_size_tokens", "")
    if tokens.isdigit():
        return float(tokens)
    blocks, block_size = config.get("num_gpu_blocks", ""), config.get("block_size", "")
    hybrid = config.get("mamba_block_size", "None") != "None"
    if alone and not hybrid and blocks.isdigit() and block_size.isdigit():
        return float(blocks) * float(block_size)
    return None


def find_corrupt_histograms(before: EngineSample, after: EngineSample) -> Iterable[str]:
    """Histograms that took in an impossible observation between two samples.

    A request that fails before it is ever scheduled records minus the process's uptime as its queue time and plus the
    uptime as its prefill time (0.8 to 0.32). The first shows as a falling sum, unless others make up for it. The second
    shows as a prefill that is longer than any whole request; then the queue time is wrong as well.
    """
    return _WRONG_TOGETHER if _prefill_outlasts_requests(before, after) else ()


def _prefill_outlasts_requests(before: EngineSample, after: EngineSample) -> bool:
    """Whether prefill times between two samples cannot be those of the requests that finished between them.

    Each prefill is a part of a whole request, so no more prefills than requests can lie above a bucket's bound. The two
    are on different clocks, so the bound below is taken for the requests.
    """
    if not (before.prefill_time and after.prefill_time and before.request_latency and after.request_latency):
        return False
    bounds = after.prefill_time.upper_bounds
    pages = (before.prefill_time, before.request_latency, after.request_latency)
    if any(histogram.upper_bounds != bounds for histogram in pages):
        return False
    prefill = subtract_histograms(before.prefill_time, after.prefill_time)
    whole = subtract_histograms(before.request_latency, after.request_latency)
    # A page of several processes can be read halfway through an update; then the two speak of different requests.
    if prefill.count != whole.count:
        return False
    up_to_the_bound_below = (0.0, *whole.cumulative)
    return any(
        prefill.count - prefills > whole.count - requests
        for prefills, requests in zip(prefill.cumulative, up_to_the_bound_below, strict=False)
    )
