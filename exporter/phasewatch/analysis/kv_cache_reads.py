"""What the steps of a window found in the KV cache: bytes that they read of it, and what attending to it took."""

from dataclasses import dataclass
from itertools import pairwise

from phasewatch.analysis.phases import engine_steps, ratio
from phasewatch.analysis.samples import EngineSample, Histogram
from phasewatch.analysis.window import History
from phasewatch.base.optional import mean, product, total
from phasewatch.models.costs import ModelCosts


@dataclass(frozen=True, slots=True)
class HeldCache:
    """The KV cache as a mean step found it; None where the model does not tell.

    Attributes:
        read_bytes: that the step read of it.
        operations: that attending to it took for one new token of each stream.
    """

    read_bytes: float | None
    operations: float | None


def held_cache(
    past: History, capacity: float | None, model: ModelCosts, *, steps: float | None, one_api_server: bool | None
) -> HeldCache | None:
    """What a mean step of the window found; None if that cannot be told.

    From scrape to scrape, weighted with the steps between them: usage and running requests are taken at both ends.
    Usage counts whole blocks, so up to one block per request is too much; blocks that several requests share count
    once, although each of them reads them.

    Args:
        past: the window, scrape by scrape.
        capacity: tokens that the cache holds.
        model: what it keeps of a token, and what attending to one takes.
        steps: per second of the whole window. Without any nothing was read, even where an engine that had no request
            yet shows no usage.
        one_api_server: see `phases.engine_steps`.
    """
    if capacity is None:
        return None
    known, weight = steps == 0, 0.0
    read = _read_bytes(model, 0.0)
    operations = model.attention_operations(0.0)
    for (start, before), (end, after) in pairwise(zip(past.times, past.samples, strict=True)):
        usage = mean(before.kv_cache_usage, after.kv_cache_usage)
        running = mean(before.requests_running, after.requests_running)
        if usage is None or running is None:
            continue
        known = True
        delta = EngineSample(
            iteration_tokens=_totals(before.iteration_tokens, after.iteration_tokens),
            inter_token_latency=_totals(before.inter_token_latency, after.inter_token_latency),
        )
        between = History((start, end), (before, after), frozenset())
        taken = engine_steps(between, delta, one_api_server=one_api_server) or 0.0
        weight += taken
        streams = max(1.0, running)
        context = usage * capacity / streams
        read = total(read, product(taken * streams, _read_bytes(model, context)))
        operations = total(operations, product(taken * streams, model.attention_operations(context)))
    if not known:
        return None
    return HeldCache(ratio(read, weight), ratio(operations, weight)) if weight else HeldCache(read, operations)


def _read_bytes(model: ModelCosts, context: float) -> float | None:
    return None if model.kv_cache is None else model.kv_cache.read_bytes(context)


def _totals(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """A difference without buckets, which would take most of the time."""
    if before is None or after is None:
        return None
    return Histogram(after.sum - before.sum, after.count - before.count)
