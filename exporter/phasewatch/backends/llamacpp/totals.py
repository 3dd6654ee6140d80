"""`PhaseTotals` from the counters of a llama-server and from what its slots show (b10434 and its neighbours).

Its counters move at the end of a request, its steps with every token, and values are printed with six digits. So there
are three ways to count the generated tokens, and of those the one with the smallest error is taken:

- the counter and the tokens in the slots (`tracking`): exact, but for the rounding of the counter;
- steps x mean busy slots: without /slots. It counts a batch of a prompt as a token, and no accepted drafts;
- mean number of streams x their speed, from the slots alone: 1 to 4 % for answers of 80 to 300 tokens, 7 % for answers
  of 0.2 s, read four times a second (measured on b10434).

The first token of each stream is among them: no counter says how many streams there were.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from phasewatch.analysis.queue import KvCacheSize
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory
from phasewatch.backends.llamacpp.quirks import (
    compute_count_resolution,
    compute_resolution,
    counts_prompt_time_once,
    drafts,
    measure_stream_steps,
    read_kv_cache_size,
)
from phasewatch.backends.page_state import PageContext, PageRules
from phasewatch.base.optional import add, divide, multiply

LARGEST_ERROR: Final = 0.03
"""Largest error of a figure that is shown, as a share of it."""

LEAST_TRACKED_SHARE: Final = 0.8
"""Least share of the streams' time that two scrapes must have seen for their speed to stand for all."""

LEAST_PREFILL_SIGHTINGS: Final = 5
"""Scrapes that must have seen a prompt at work for their mean number to be known."""


@dataclass(frozen=True, slots=True)
class Count:
    """A count with the error it may have, in the same unit, and the seconds of streams that belong to it."""

    value: float
    error: float
    seconds: float | None


def measure_totals(past: EngineHistory, context: PageContext) -> PhaseTotals | None:
    """Tokens and seconds of each phase over a history; None for a single scrape."""
    del context
    if past.seconds <= 0:
        return None
    generated = _count_generated(past)
    prefill = _count_prefill_tokens(past)
    cached = _get_precise_growth(past, "prompt_tokens_local_hits")
    prefill_seconds = _measure_prefill_seconds(past)
    return PhaseTotals(
        seconds=past.seconds,
        prefill_tokens=prefill,
        prefill_seconds=prefill_seconds,
        timed_prefill_tokens=None if prefill_seconds is None else prefill,
        decode_tokens=generated.value if generated else None,
        decode_seconds=generated.seconds if generated else None,
        decode_outputs=_count_outputs(past),
        generated_tokens=generated.value if generated else None,
        steps=_get_precise_growth(past, "engine_steps"),
        prefix_cache_queries=add(prefill, cached),
        prefix_cache_hits=cached,
        local_cache_tokens=cached,
        external_cache_tokens=None if cached is None else 0.0,
    )


def _count_prefill_tokens(past: EngineHistory) -> float | None:
    """Prompt tokens computed, by the counter, which moves when a prompt is done. By the slots alone they are those of
    the requests that were seen: all of them, if streams last long enough to be seen twice, or if no request has ended
    and those that began are still at their prompts.
    """
    if past.newest.prompt_tokens_computed is not None:
        return _get_precise_growth(past, "prompt_tokens_computed")
    growth = past.growth
    complete = _are_tracked(growth) if growth.sampled_seconds else _are_still_prefilling(past)
    return growth.prefill_progress if complete else None


def _are_still_prefilling(past: EngineHistory) -> bool:
    """Whether the requests that are in prefill now are those of the first scrape and all that have begun since."""
    if not _was_busy(past):
        return True
    first, now, begun = past.samples[0].requests_prefilling, past.newest.requests_prefilling, past.growth.requests_begun
    return first is not None and now is not None and begun is not None and 0 < now == first + begun


def _get_precise_growth(
    past: EngineHistory, name: str, measure: Callable[[float | None], float] = compute_count_resolution
) -> float | None:
    """The growth of a counter; None if the rounding of its total may change it by more than `LARGEST_ERROR`. A counter
    that does not move while there are no requests has not grown.

    Args:
        past: the window.
        name: field of the counter.
        measure: resolution of its values.
    """
    growth: float | None = getattr(past.growth, name)
    if growth is None or (growth == 0 and not _was_busy(past)):
        return growth
    return growth if measure(getattr(past.newest, name)) <= LARGEST_ERROR * growth else None


def _count_generated(past: EngineHistory) -> Count | None:
    counts = [count for count in _list_counts(past) if count.error <= LARGEST_ERROR * count.value]
    return min(counts, key=lambda count: count.error, default=None)


def _list_counts(past: EngineHistory) -> Iterator[Count]:
    """Every way to count the generated tokens of the window that this server allows."""
    growth, now = past.growth, past.newest
    has_slots = growth.sampled_seconds is not None
    if has_slots and growth.generation_tokens is not None:
        moved = growth.generation_tokens > 0 or _was_busy(past)
        error = compute_count_resolution(now.generation_tokens) if moved else 0.0
        yield Count(growth.generation_tokens, error, _measure_stream_seconds(past, growth.generation_tokens))
    if not has_slots and now.generation_tokens and not drafts(now):
        steps = _count_stream_steps(past)
        if steps is not None:
            yield Count(steps.value, steps.error, _measure_ended_streams(past, steps.value))
    if has_slots:
        sampled = _count_sampled(past)
        if sampled is not None:
            yield sampled


def _was_busy(past: EngineHistory) -> bool:
    """Whether there were requests, as far as the scrapes show: one may begin and end between two."""
    return bool(past.growth.requests_begun) or any(sample.requests_running for sample in past.samples)


def _measure_stream_seconds(past: EngineHistory, tokens: float) -> float | None:
    """Time that streams spent on `tokens`, by the counter and their ages, or where that is too coarse by their speed
    from scrape to scrape.
    """
    growth, now = past.growth, past.newest
    seconds = growth.stream_seconds
    if seconds is not None and compute_resolution(now.decode_seconds) <= LARGEST_ERROR * seconds:
        return seconds
    return _scale_seconds(tokens, growth.tracked_tokens, growth.tracked_seconds) if _are_tracked(growth) else None


def _measure_ended_streams(past: EngineHistory, tokens: float) -> float | None:
    """Time that streams spent on `tokens` at the speed of those that ended in the window, without /slots. Those are
    counted whole, whenever they began. So what they generated and the time that it took must be about what the window
    has; otherwise they are others than its streams, such as requests that were aborted while their prompt was read.
    """
    growth = past.growth
    running = sum(sample.requests_running or 0.0 for sample in past.samples) / len(past.samples)
    shares = (divide(growth.generation_tokens, tokens), divide(growth.decode_seconds, running * past.seconds))
    if any(share is None or not LEAST_TRACKED_SHARE <= share <= 1 / LEAST_TRACKED_SHARE for share in shares):
        return None
    return _scale_seconds(
        tokens,
        _get_precise_growth(past, "generation_tokens"),
        _get_precise_growth(past, "decode_seconds", compute_resolution),
    )


def _are_tracked(growth: EngineSample) -> bool:
    share = divide(growth.tracked_seconds, growth.sampled_seconds)
    return share is not None and share >= LEAST_TRACKED_SHARE


def _scale_seconds(tokens: float, known_tokens: float | None, known_seconds: float | None) -> float | None:
    """The seconds of `tokens` at the speed of those that are known."""
    return divide(multiply(tokens, known_seconds), known_tokens)


def _count_stream_steps(past: EngineHistory) -> Count | None:
    """Steps x mean busy slots since the start, from the first to the last scrape, with the error of their rounding."""
    first, last = measure_stream_steps(past.samples[0]), measure_stream_steps(past.newest)
    if first is None or last is None:
        return None
    value = last[0] - first[0]
    return Count(value, first[1] + last[1], None) if value >= 0 else None


def _count_sampled(past: EngineHistory) -> Count | None:
    """Mean number of streams x their speed. The error is three standard deviations of the time of a stream's beginning
    and end, each of which lies anywhere between two scrapes. Where the slots are all that the server shows, it is not
    weighed: see the module for what it is then.
    """
    growth = past.growth
    sampled, tracked = growth.sampled_seconds, growth.tracked_seconds
    if sampled is None or tracked is None:
        return None
    if sampled == 0:  # no scrape saw a stream; one may have begun and ended between two
        return None if _was_busy(past) else Count(0.0, 0.0, 0.0)
    speed = divide(growth.tracked_tokens, tracked)
    if speed is None:
        return None
    interval = past.seconds / (len(past.times) - 1)
    ends = max(0.0, 2 * (sampled - tracked) / interval)
    if growth.generation_tokens is None:
        return Count(sampled * speed, 0.0, sampled)  # there is no other count to compare it with
    error = 3 * speed * interval * math.sqrt(ends / 12)
    return Count(sampled * speed, error, sampled) if _are_tracked(growth) else None


def _count_outputs(past: EngineHistory) -> float | None:
    """Steps of each stream, summed over streams: with speculation a step gives several tokens."""
    if not past.newest.generation_tokens:
        return None
    count = _count_stream_steps(past)
    return count.value if count and count.error <= LARGEST_ERROR * count.value else None


def _measure_prefill_seconds(past: EngineHistory) -> float | None:
    """Time that requests spent in prefill: that of the engine x the mean number of prompts while any is at work."""
    if not counts_prompt_time_once(past.newest):
        return None
    counts = [sample.requests_prefilling for sample in past.samples if sample.requests_prefilling]
    if len(counts) < LEAST_PREFILL_SIGHTINGS:
        return None
    return multiply(_get_precise_growth(past, "prefill_seconds", compute_resolution), sum(counts) / len(counts))


def _count_interval_steps(past: EngineHistory, context: PageContext) -> tuple[float | None, ...]:
    del context
    return tuple(
        None if before.engine_steps is None or after.engine_steps is None else after.engine_steps - before.engine_steps
        for before, after in pairwise(past.samples)
    )


def _read_kv_cache_size(context: PageContext) -> KvCacheSize | None:
    return read_kv_cache_size(context.sample)


PAGE_RULES: Final = PageRules(
    measure_totals=measure_totals,
    count_interval_steps=_count_interval_steps,
    read_kv_cache_size=_read_kv_cache_size,
    read_cache_dtype=lambda _sample: None,  # no page shows it
    find_corrupt_histograms=lambda _before, _after: (),
)
