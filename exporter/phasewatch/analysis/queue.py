"""Queue and KV cache of an engine, and token stalls, which no histogram shows while they last."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory
from phasewatch.base.optional import divide, multiply


@dataclass(frozen=True, slots=True)
class Load:
    """Queue and KV cache of one engine; None where unknown. The names are those of the metrics."""

    requests_running: float | None = None
    requests_waiting: float | None = None
    requests_waiting_peak: float | None = None
    requests_waiting_growth_per_second: float | None = None
    kv_cache_usage_ratio: float | None = None
    kv_cache_usage_ratio_peak: float | None = None
    kv_cache_capacity_tokens: float | None = None
    kv_cache_used_tokens: float | None = None
    context_tokens: float | None = None
    preemptions_per_second: float | None = None
    kv_cache_headroom_requests: float | None = None
    kv_cache_next_request_fits: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """When an engine last generated a token, to the precision of the scrapes.

    Attributes:
        tokens: tokens generated so far.
        running: whether requests run.
        since: monotonic time of the first scrape with this number of tokens, or of the first one with running requests.
        watched: whether there was a scrape before that one; otherwise `since` is not meaningful.
    """

    tokens: float
    running: bool
    since: float
    watched: bool


def measure_load(past: EngineHistory, capacity: float | None) -> Load:
    """Queue and KV cache of an engine, now and over its window.

    Args:
        past: the window, scrape by scrape.
        capacity: capacity of the KV cache in tokens; None if unknown.
    """
    now = past.newest
    used = multiply(capacity, now.kv_cache_usage)
    headroom = _compute_headroom(capacity, used, compute_mean_prompt_tokens(past))
    waiting = [
        (time, sample.requests_waiting)
        for time, sample in zip(past.times, past.samples, strict=True)
        if sample.requests_waiting is not None
    ]
    return Load(
        requests_running=now.requests_running,
        requests_waiting=now.requests_waiting,
        requests_waiting_peak=max((value for _, value in waiting), default=None),
        requests_waiting_growth_per_second=fit_slope(waiting),
        kv_cache_usage_ratio=now.kv_cache_usage,
        kv_cache_usage_ratio_peak=_find_peak(sample.kv_cache_usage for sample in past.samples),
        kv_cache_capacity_tokens=capacity,
        kv_cache_used_tokens=used,
        context_tokens=divide(used, now.requests_running),
        preemptions_per_second=divide(past.growth.preemptions, past.seconds),
        kv_cache_headroom_requests=headroom,
        kv_cache_next_request_fits=None if headroom is None else float(headroom >= 1),
    )


def compute_mean_prompt_tokens(past: EngineHistory) -> float | None:
    """Mean prompt length of the requests that got their first token in the window, or else since the server started."""
    for sample in (past.growth, past.newest):
        first = sample.time_to_first_token
        mean = divide(sample.prompt_tokens, first.count if first else None)
        if mean:
            return mean
    return None


def _compute_headroom(capacity: float | None, used: float | None, prompt: float | None) -> float | None:
    """Number of further requests of mean prompt length that fit into the cache.

    Assumes that a request is admitted once its whole prompt fits (vLLM 0.22).
    """
    if capacity is None or used is None or prompt is None:
        return None
    return math.floor((capacity - used) / prompt)


def _find_peak(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def fit_slope(points: list[tuple[float, float]]) -> float | None:
    """Least-squares slope of a value over time, per second; None for fewer than two points."""
    if len(points) < 2:  # noqa: PLR2004  # a line needs two
        return None
    mean_time = sum(time for time, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    spread = sum((time - mean_time) ** 2 for time, _ in points)
    return divide(sum((time - mean_time) * (value - mean_value) for time, value in points), spread)


def advance_progress(before: Progress | None, sample: EngineSample, time: float) -> Progress | None:
    """The progress after one more scrape; None for a page that does not count tokens."""
    tokens = sample.generation_tokens
    if tokens is None:
        return None
    running = bool(sample.requests_running)
    if before is None:
        return Progress(tokens, running, time, watched=False)
    if tokens == before.tokens and before.running:
        return Progress(tokens, running, before.since, watched=True)
    return Progress(tokens, running, time, watched=True)


def measure_token_stall(progress: Progress | None, now: float) -> float | None:
    """Seconds for which requests have been running without a new token; None while nothing runs.

    The last token may have come at any time since the previous scrape, so the true stall is up to one interval longer.
    Counting starts when requests start to run: time in which the engine was idle is not a stall.
    """
    if progress is None or not progress.running or not progress.watched:
        return None
    return now - progress.since
