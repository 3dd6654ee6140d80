"""Why requests wait: one state for each engine at each scrape, from a plain page of metrics.

The naive rule, requests waiting and a KV cache near 1, misses most of it: admission needs room for a whole prompt, so
a cache can limit at 0.7; a queue with an empty cache has slots, the step budget of prefill, or something else as its
cause; and vLLM counts a preemption only when the request puts out a token again (0.8 to 0.32). So a verdict looks at
what the engine did within a short memory, and a state, once shown, is kept for a moment.

Pure: time comes in with the scrapes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from phasewatch.config import Limits, Thresholds
from phasewatch.phases import Phases, ratio
from phasewatch.samples import EngineSample
from phasewatch.window import History, grown


class State(StrEnum):
    """What an engine is doing, and if requests wait, why. The `state` label of `llm_saturation_state`."""

    IDLE = "idle"
    HEALTHY = "healthy"
    KV_CACHE_FULL = "kv_cache_full"
    PREEMPTING = "preempting"
    CONCURRENCY_LIMITED = "concurrency_limited"
    PREFILL_LIMITED = "prefill_limited"
    DEFERRED = "deferred"
    STUCK = "stuck"
    SHEDDING = "shedding"


CONFIRMING_SCRAPES: Final = 3
"""Scrapes in a row that must see a queue before it counts: a single one may fall between two steps."""


MANY_REQUESTS: Final = 16
"""Requests at once from which their number tells whether it is held at a limit."""

PINNED_SHARE: Final = 1 / 3
"""Share of the scrapes that must see the highest number of running requests for it to be a limit."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The state shown, since when, and since when requests have waited while nothing runs (monotonic times)."""

    state: State
    since: float
    blocked_since: float | None


def advance(
    before: Saturation | None,
    past: History,
    phases: Phases,
    *,
    prompt_share: float | None,
    limits: Limits,
    thresholds: Thresholds,
) -> Saturation:
    """The saturation after one more scrape.

    Args:
        before: that after the scrape before; None after a start or a restart.
        past: the engine's recent history, see `recent`.
        phases: both phases over that history.
        prompt_share: share of the KV cache that a prompt of mean length needs; None if unknown.
        limits: the server's settings, where known.
        thresholds: of the target.
    """
    now = past.times[-1]
    blocked_since = _blocked_since(before, past)
    if blocked_since is not None and now - blocked_since >= thresholds.stuck_after:
        state = State.STUCK
    else:
        state = verdict(past, phases, prompt_share=prompt_share, limits=limits, thresholds=thresholds)
    if before is None or (state is not before.state and now - before.since >= thresholds.hysteresis):
        return Saturation(state, now, blocked_since)
    return Saturation(before.state, before.since, blocked_since)


def recent(past: History, memory: float) -> History:
    """The part of a history that a verdict looks at: the last `memory` seconds, and a few scrapes at least."""
    first = max(0, len(past.times) - CONFIRMING_SCRAPES)
    while first > 0 and past.times[first - 1] >= past.times[-1] - memory:
        first -= 1
    return History(past.times[first:], past.samples[first:], past.corrupt)


def verdict(
    past: History, phases: Phases, *, prompt_share: float | None, limits: Limits, thresholds: Thresholds
) -> State:
    """The state of a short history, apart from `stuck`. Where several hold, the first of the order below is it."""
    growth = grown(past.samples[0], past.samples[-1], past.corrupt)
    if growth.rejections:
        return State.SHEDDING
    if growth.preemptions or _thrown_out(past.samples[0], past.samples[-1], growth):
        return State.PREEMPTING
    last = past.samples[-CONFIRMING_SCRAPES:]
    if not all(_waiting(sample) for sample in last):
        busy = any(_waiting(sample) or _running(sample) for sample in past.samples)
        return State.HEALTHY if busy or growth.generation_tokens else State.IDLE
    peak = max((sample.kv_cache_usage or 0.0 for sample in past.samples), default=0.0)
    if 1 - peak < max(prompt_share or 0.0, thresholds.kv_cache_free):
        return State.KV_CACHE_FULL
    deferred = [(sample.requests_deferred or 0.0) / _waiting(sample) for sample in last]
    if min(deferred) > thresholds.deferred_share or not any(_running(sample) for sample in last):
        return State.DEFERRED
    return _limit(past, phases, limits, thresholds)


def _thrown_out(first: EngineSample, last: EngineSample, growth: EngineSample) -> bool:
    """Whether running requests went back to the queue: fewer run than those that finished account for, and as many
    more wait.

    The counter of preemptions tells it only when such a request puts out a token again, which may take minutes.
    """
    if growth.request_latency is None:
        return False
    missing = _running(first) - _running(last) - growth.request_latency.count
    return 0 < missing <= _waiting(last) - _waiting(first)


def _limit(past: History, phases: Phases, limits: Limits, thresholds: Thresholds) -> State:
    """Whether slots or prefill limit, when requests wait for capacity and the cache has room."""
    share = _prefill_share(past, phases)
    budget = ratio(phases.step_tokens, limits.max_num_batched_tokens)
    if (share or 0.0) >= thresholds.prefill_share or (budget or 0.0) >= thresholds.step_budget_share:
        return State.PREFILL_LIMITED
    return State.PREFILL_LIMITED if _slots_are_free(past, limits.max_num_seqs) else State.CONCURRENCY_LIMITED


def _slots_are_free(past: History, slots: int | None) -> bool:
    """Whether fewer run than may, though requests wait.

    Where the number of slots is not known it shows in what runs: with all slots taken, one that gets free is taken in
    the next step, so scrape after scrape sees the same number; what prefill lets in comes and goes. Of a few requests
    nothing can be told: they may all have ended at once.
    """
    running = [_running(sample) for sample in past.samples]
    most = max(running)
    if slots is not None:
        return most < slots
    return most >= MANY_REQUESTS and running.count(most) < len(running) * PINNED_SHARE


def _prefill_share(past: History, phases: Phases) -> float | None:
    """Share of the running requests' time that was prefill.

    By Little's law the mean number of requests in a phase is the time spent in it per second. Prefill time is known
    when a request finishes; where none did, what runs and does not decode is in prefill.
    """
    decode, prefill = phases.decode_streams, phases.prefill_streams
    if decode is None:
        return None
    if prefill:
        return ratio(prefill, prefill + decode)
    running = sum(_running(sample) for sample in past.samples) / len(past.samples)
    return ratio(running - decode, running)


def _blocked_since(before: Saturation | None, past: History) -> float | None:
    """Since when requests have waited while nothing ran and no token came."""
    sample = past.samples[-1]
    if not _waiting(sample) or _running(sample):
        return None
    moved = len(past.samples) > 1 and grown(past.samples[-2], sample).generation_tokens
    if before is None or before.blocked_since is None or moved:
        return past.times[-1]
    return before.blocked_since


def _waiting(sample: EngineSample) -> float:
    """0 where the page has no gauge: a page of several processes has none before the first step."""
    return sample.requests_waiting or 0.0


def _running(sample: EngineSample) -> float:
    return sample.requests_running or 0.0
