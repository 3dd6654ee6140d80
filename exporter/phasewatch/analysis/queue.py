"""Queue and KV cache of an engine, now and over its window, and how many more requests fit into the cache."""

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
class KvCacheSize:
    """The size of a KV cache, in tokens.

    Attributes:
        capacity: tokens that it holds, as the server reports it.
        block: tokens of the unit in which requests get room.
        reserved: the part of the capacity that no request gets.
    """

    capacity: float
    block: float = 1.0
    reserved: float = 0.0


def measure_load(past: EngineHistory, size: KvCacheSize | None, hit_ratio: float | None = None) -> Load:
    """Queue and KV cache of an engine, now and over its window.

    Args:
        past: the window, scrape by scrape.
        size: size of the KV cache; None if unknown.
        hit_ratio: share of the prompt tokens of the window that were found in the prefix cache; None if unknown.
    """
    now = past.newest
    capacity = size.capacity if size else None
    used = count_cached_tokens(now, capacity)
    prompt = compute_mean_prompt_tokens(past)
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
        context_tokens=divide(used, count_token_holders(now)),
        preemptions_per_second=divide(past.growth.preemptions, past.seconds),
        kv_cache_headroom_requests=_compute_headroom(past, size, prompt, hit_ratio),
        kv_cache_next_request_fits=_fits(capacity, used, prompt),
    )


def count_cached_tokens(sample: EngineSample, capacity: float | None) -> float | None:
    """Tokens that the requests of a sample hold in the KV cache: as the server shows them, or usage x capacity."""
    return multiply(capacity, sample.kv_cache_usage) if sample.kv_cache_tokens is None else sample.kv_cache_tokens


def count_token_holders(sample: EngineSample) -> float | None:
    """The requests that hold those tokens: a server that shows each request counts those in decode."""
    running = sample.requests_running
    if running is None or sample.kv_cache_tokens is None:
        return running
    return running - (sample.requests_prefilling or 0.0)


def compute_mean_prompt_tokens(past: EngineHistory) -> float | None:
    """Mean prompt length of the requests that got their first token in the window, or else since the server started."""
    for sample in (past.growth, past.newest):
        first = sample.time_to_first_token
        mean = divide(sample.prompt_tokens, first.count if first else None)
        if mean:
            return mean
    return None


def _compute_mean_output_tokens(past: EngineHistory) -> float | None:
    """Mean output length of the requests that finished in the window, or else since the server started."""
    for sample in (past.growth, past.newest):
        outputs = sample.request_output_tokens
        mean = divide(outputs.sum, outputs.count) if outputs else None
        if mean is not None:
            return mean
    return None


def _compute_headroom(
    past: EngineHistory, size: KvCacheSize | None, prompt: float | None, hit_ratio: float | None
) -> float | None:
    """Number of further requests that fit into the cache until they finish, at least 0; None if unknown.

    A request takes its prompt, without the part that all share, and its output, in whole blocks. The size of a mean
    request is that of those that finished, or of those that run if they hold more already: long requests finish last.
    The running requests grow to that size, and those that wait come before any further one.
    """
    now, output = past.newest, _compute_mean_output_tokens(past)
    if size is None or now.kv_cache_usage is None or prompt is None or output is None:
        return None
    usable = size.capacity - size.reserved
    used, running, waiting = usable * now.kv_cache_usage, now.requests_running or 0.0, now.requests_waiting or 0.0
    shared = _estimate_shared_tokens(past, usable, prompt, output, prompt * (hit_ratio or 0.0))
    tokens = max(prompt - shared + output, divide(used - shared, running) or 0.0)
    room = math.ceil(tokens / size.block) * size.block
    free = usable - max(used, shared + running * room) - waiting * room
    return max(0.0, float(math.floor(free / room))) if room > 0 else None


def _estimate_shared_tokens(past: EngineHistory, usable: float, prompt: float, output: float, most: float) -> float:
    """Tokens that all running requests share, at most `most`, from what they held together over the window.

    What the prefix cache has of a prompt need not be shared: in a conversation it is that of its own earlier turns.
    R requests that share S tokens and are half through their outputs on average hold S + R x (prompt - S + output / 2).
    Below two running requests nothing shows it, and nothing is taken as shared.
    """
    held = [
        (sample.kv_cache_usage * usable, sample.requests_running)
        for sample in past.samples
        if sample.kv_cache_usage is not None and sample.requests_running is not None
    ]
    running = sum(count for _, count in held) / len(held) if held else 0.0
    if running < 2:  # noqa: PLR2004  # sharing takes two
        return 0.0
    used = sum(tokens for tokens, _ in held) / len(held)
    return min(most, max(0.0, (running * (prompt + output / 2) - used) / (running - 1)))


def _fits(capacity: float | None, used: float | None, prompt: float | None) -> float | None:
    """1 if a whole prompt of mean length finds room now, which admits its request (vLLM 0.22), otherwise 0."""
    if capacity is None or used is None or prompt is None:
        return None
    return float(capacity - used >= prompt)


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
