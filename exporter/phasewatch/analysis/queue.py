"""What an engine holds and what waits for it: queue, KV cache, and the stall that no histogram shows while it lasts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory
from phasewatch.base.optional import divide, multiply


@dataclass(frozen=True, slots=True)
class Load:
    """Queue and cache of one engine; None where unknown. The names are those of the metrics."""

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
    """When an engine last put out a token, as far as scrapes can tell.

    Attributes:
        tokens: tokens put out so far.
        running: whether requests run.
        since: monotonic time of the scrape that first showed these tokens, or first showed requests running.
        watched: whether a scrape before that one is known, without which `since` says nothing.
    """

    tokens: float
    running: bool
    since: float
    watched: bool


def measure_load(past: EngineHistory, capacity: float | None) -> Load:
    """Queue and cache of an engine now and over its window.

    Args:
        past: the window, scrape by scrape.
        capacity: tokens that the KV cache holds.
    """
    now = past.newest
    used = multiply(capacity, now.kv_cache_usage)
    headroom = _headroom(capacity, used, compute_mean_prompt_tokens(past))
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
        kv_cache_usage_ratio_peak=_peak(sample.kv_cache_usage for sample in past.samples),
        kv_cache_capacity_tokens=capacity,
        kv_cache_used_tokens=used,
        context_tokens=divide(used, now.requests_running),
        preemptions_per_second=divide(past.growth.preemptions, past.seconds),
        kv_cache_headroom_requests=headroom,
        kv_cache_next_request_fits=None if headroom is None else float(headroom >= 1),
    )


def compute_mean_prompt_tokens(past: EngineHistory) -> float | None:
    """Mean length of a prompt: of the requests that got their first token in the window, or else since the start."""
    for sample in (past.growth, past.newest):
        first = sample.time_to_first_token
        mean = divide(sample.prompt_tokens, first.count if first else None)
        if mean:
            return mean
    return None


def _headroom(capacity: float | None, used: float | None, prompt: float | None) -> float | None:
    """How many more requests of the mean prompt length fit; vLLM admits a request when its whole prompt does (0.22)."""
    if capacity is None or used is None or prompt is None:
        return None
    return math.floor((capacity - used) / prompt)


def _peak(values: Iterable[float | None]) -> float | None:
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
    """Seconds for which requests have run without a token; None while nothing runs.

    The token may have come any time after the scrape before, so the true stall is longer by up to one interval. It
    begins to count when requests begin to run: what an idle engine did before is no stall.
    """
    if progress is None or not progress.running or not progress.watched:
        return None
    return now - progress.since
