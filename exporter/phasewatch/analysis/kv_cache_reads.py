"""KV cache traffic and attention operations of a mean engine step, integrated over the window."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phasewatch.analysis.queue import count_cached_tokens, count_token_holders
from phasewatch.analysis.window import EngineHistory
from phasewatch.base.optional import add, average, divide, multiply
from phasewatch.models.costs import ModelCosts


@dataclass(frozen=True, slots=True)
class KvCacheReads:
    """KV cache reads of a mean step; None where the model's costs are unknown.

    Attributes:
        read_bytes: bytes of keys and values that the step reads.
        operations: attention operations for one new token of each stream.
    """

    read_bytes: float | None
    operations: float | None


def compute_kv_cache_reads(
    past: EngineHistory,
    capacity: float | None,
    model: ModelCosts,
    *,
    steps: float | None,
    interval_steps: Sequence[float | None],
) -> KvCacheReads | None:
    """KV cache traffic of a mean step of the window; None if unknown.

    Tokens in the cache and running requests are averaged over both ends of each interval between scrapes, and intervals
    are weighted by their number of steps. Usage counts whole blocks, so it is too high by up to one block per request;
    a block shared by several requests counts once, although each of them reads it.

    Args:
        past: the window, scrape by scrape.
        capacity: capacity of the cache in tokens; None if unknown.
        model: bytes and operations that a token in the cache costs per step.
        steps: engine steps per second over the whole window. At 0 nothing was read, even if the engine exposes no usage
            before its first request.
        interval_steps: engine steps from each scrape to the next, one fewer than there are scrapes; None where unknown.
    """
    if capacity is None and past.newest.kv_cache_tokens is None:
        return None
    has_usage, weight = steps == 0, 0.0
    read = _compute_read_bytes(model, 0.0)
    operations = model.compute_attention_operations(0.0)
    for (before, after), steps_between in zip(pairwise(past.samples), interval_steps, strict=True):
        tokens = average(count_cached_tokens(before, capacity), count_cached_tokens(after, capacity))
        running = average(count_token_holders(before), count_token_holders(after))
        if tokens is None or running is None:
            continue
        has_usage = True
        interval_weight = steps_between or 0.0
        weight += interval_weight
        streams = max(1.0, running)
        context = tokens / streams
        read = add(read, multiply(interval_weight * streams, _compute_read_bytes(model, context)))
        operations = add(operations, multiply(interval_weight * streams, model.compute_attention_operations(context)))
    if not has_usage:
        return None
    return KvCacheReads(divide(read, weight), divide(operations, weight)) if weight else KvCacheReads(read, operations)


def _compute_read_bytes(model: ModelCosts, context: float) -> float | None:
    return None if model.kv_cache is None else model.kv_cache.read_bytes(context)
