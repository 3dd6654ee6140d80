"""What the steps of a window found in the KV cache: bytes that they read of it, and what attending to it took."""

from dataclasses import dataclass
from itertools import pairwise

from phasewatch.analysis.phases import divide, engine_steps
from phasewatch.analysis.samples import EngineSample, Histogram
from phasewatch.analysis.window import EngineHistory
from phasewatch.base.optional import add, average, multiply
from phasewatch.models.costs import ModelCosts


@dataclass(frozen=True, slots=True)
class KvCacheReads:
    """The KV cache as a mean step found it; None where the model does not tell.

    Attributes:
        read_bytes: that the step read of it.
        operations: that attending to it took for one new token of each stream.
    """

    read_bytes: float | None
    operations: float | None


def compute_kv_cache_reads(
    past: EngineHistory, capacity: float | None, model: ModelCosts, *, steps: float | None, one_api_server: bool | None
) -> KvCacheReads | None:
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
        usage = average(before.kv_cache_usage, after.kv_cache_usage)
        running = average(before.requests_running, after.requests_running)
        if usage is None or running is None:
            continue
        known = True
        delta = EngineSample(
            iteration_tokens=_totals(before.iteration_tokens, after.iteration_tokens),
            inter_token_latency=_totals(before.inter_token_latency, after.inter_token_latency),
        )
        between = EngineHistory((start, end), (before, after), frozenset())
        taken = engine_steps(between, delta, one_api_server=one_api_server) or 0.0
        weight += taken
        streams = max(1.0, running)
        context = usage * capacity / streams
        read = add(read, multiply(taken * streams, _read_bytes(model, context)))
        operations = add(operations, multiply(taken * streams, model.attention_operations(context)))
    if not known:
        return None
    return KvCacheReads(divide(read, weight), divide(operations, weight)) if weight else KvCacheReads(read, operations)


def _read_bytes(model: ModelCosts, context: float) -> float | None:
    return None if model.kv_cache is None else model.kv_cache.read_bytes(context)


def _totals(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """A difference without buckets, which would take most of the time."""
    if before is None or after is None:
        return None
    return Histogram(after.sum - before.sum, after.count - before.count)
