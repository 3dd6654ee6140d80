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

from phasewatch.analysis.phases import Phases
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory, subtract_counters
from phasewatch.base.optional import divide
from phasewatch.config.settings import SaturationSettings, ServerSettings


class SaturationState(StrEnum):
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


CALM: Final = frozenset({SaturationState.IDLE, SaturationState.HEALTHY})

CONFIRMING_SCRAPES: Final = 3
"""Scrapes in a row that must see a queue before it counts: a single one may fall between two steps."""

CACHE_IN_USE: Final = 0.5
"""KV usage below which nothing can have been preempted for want of it."""

CACHE_SHORT: Final = 0.9
"""KV usage from which requests that are back in the queue were thrown out of it."""

LONGEST_STEP: Final = 10.0
"""Seconds that one step of prefill may take."""

SMALLEST_BUDGET: Final = 100
"""Tokens per step below which no server is set; where slots limit, what looks like a budget was 6 to 27."""


MANY_REQUESTS: Final = 16
"""Requests at once from which their number tells whether it is held at a limit."""

PINNED_SHARE: Final = 1 / 3
"""Share of the scrapes that must see the highest number of running requests for it to be a limit."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The state shown, since when, and since when requests have waited while nothing runs (monotonic times)."""

    state: SaturationState
    since: float
    blocked_since: float | None


def advance_saturation(
    before: Saturation | None,
    past: EngineHistory,
    phases: Phases,
    *,
    prompt_share: float | None,
    server: ServerSettings,
    settings: SaturationSettings,
) -> Saturation:
    """The saturation after one more scrape.

    Args:
        before: that after the scrape before; None after a start or a restart.
        past: the engine's recent history, see `recent`.
        phases: both phases over that history.
        prompt_share: share of the KV cache that a prompt of mean length needs; None if unknown.
        server: the server's settings, where known.
        settings: of the target.
    """
    now = past.times[-1]
    blocked_since = _blocked_since(before, past)
    if blocked_since is not None and now - blocked_since >= settings.stuck_after:
        state = SaturationState.STUCK
    else:
        state = judge_state(
            past,
            phases,
            prompt_share=prompt_share,
            server=server,
            settings=settings,
            saturated=before is not None and before.state not in CALM,
        )
    if before is None or (state is not before.state and now - before.since >= settings.hysteresis):
        return Saturation(state, now, blocked_since)
    return Saturation(before.state, before.since, blocked_since)


def select_recent(past: EngineHistory, memory: float) -> EngineHistory:
    """The part of a history that a verdict looks at: the last `memory` seconds, and a few scrapes at least."""
    first = max(0, len(past.times) - CONFIRMING_SCRAPES)
    while first > 0 and past.times[first - 1] >= past.times[-1] - memory:
        first -= 1
    return EngineHistory(past.times[first:], past.samples[first:], past.corrupt)


def judge_state(
    past: EngineHistory,
    phases: Phases,
    *,
    prompt_share: float | None,
    server: ServerSettings,
    settings: SaturationSettings,
    saturated: bool = False,
) -> SaturationState:
    """The state of a short history, apart from `stuck`. Where several hold, the first of the order below is it.

    `saturated` tells that the engine was before: a queue must be seen by three scrapes in a row to begin, and be gone
    from as many to end.
    """
    growth = past.growth
    busy = any(_waiting(sample) or _running(sample) for sample in past.samples)
    peak = max((sample.kv_cache_usage for sample in past.samples if sample.kv_cache_usage is not None), default=None)
    if growth.rejections and busy:
        return SaturationState.SHEDDING
    if _preempts(past, peak):
        return SaturationState.PREEMPTING
    last = past.samples[-CONFIRMING_SCRAPES:]
    if not _queue_stands(last, saturated=saturated):
        return SaturationState.HEALTHY if busy or growth.generation_tokens else SaturationState.IDLE
    if peak is not None and 1 - peak < max(prompt_share or 0.0, settings.kv_cache_free):
        return SaturationState.KV_CACHE_FULL
    deferred = [divide(sample.requests_deferred or 0.0, _waiting(sample)) or 0.0 for sample in last]
    if min(deferred) > settings.deferred_share or _nothing_goes_on(past):
        return SaturationState.DEFERRED
    return _limit(past, phases, server, settings)


def _queue_stands(last: tuple[EngineSample, ...], *, saturated: bool) -> bool:
    if saturated:
        return any(map(_waiting, last))
    return len(last) == CONFIRMING_SCRAPES and all(map(_waiting, last))


def _preempts(past: EngineHistory, peak: float | None) -> bool:
    """Whether running requests are thrown out of the KV cache: it is counted, or they are seen back in the queue.

    A server that is paused and resumed counts the requests it held as preempted too (0.32), with a cache that was never
    short. The counter moves only when such a request puts out a token again, which may take minutes; before, fewer run
    than those that finished account for, and as many more wait. Clients that give up do not wait, and leave room.
    """
    growth = past.growth
    if growth.preemptions and (peak is None or peak >= CACHE_IN_USE):
        return True
    if growth.request_latency is None or peak is None or peak < CACHE_SHORT:
        return False
    first, last = past.samples[0], past.samples[-1]
    missing = _running(first) - _running(last) - growth.request_latency.count
    return 0 < missing <= _waiting(last) - _waiting(first)


def _nothing_goes_on(past: EngineHistory) -> bool:
    """Whether nothing runs and no token comes while requests wait.

    A page shows what ran after the step before: if all ended in it, it says 0 through the whole next step of prefill.
    """
    start = max(0, len(past.times) - CONFIRMING_SCRAPES)
    if any(map(_running, past.samples[start:])):
        return False
    while start > 0 and past.times[start - 1] >= past.times[-1] - LONGEST_STEP:
        start -= 1
    return not subtract_counters(past.samples[start], past.samples[-1]).generation_tokens


def _limit(
    past: EngineHistory, phases: Phases, server: ServerSettings, settings: SaturationSettings
) -> SaturationState:
    """Whether slots or prefill limit, when requests wait for capacity and the cache has room."""
    budget = divide(phases.step_tokens, server.max_num_batched_tokens)
    if budget is not None and budget >= settings.step_budget_share:
        return SaturationState.PREFILL_LIMITED
    if server.max_num_seqs is None:
        full = _steps_are_full(past)
        if full is None:
            full = (_prefill_share(past, phases) or 0.0) >= settings.prefill_share
        if full:
            return SaturationState.PREFILL_LIMITED
    return (
        SaturationState.PREFILL_LIMITED
        if _slots_are_free(past, server.max_num_seqs)
        else SaturationState.CONCURRENCY_LIMITED
    )


def _steps_are_full(past: EngineHistory) -> bool | None:
    """Whether prefill fills the steps of the engine, from what a full step must give; None if it cannot be told.

    With a budget of b tokens a step and prompts of P tokens, a prefill lasts k = P / b + 1 steps, and b / P prompts
    begin per step. So (prompts per second) x (prefill time - one step) is 1, and P / (k - 1) is the budget itself.
    Where slots limit, prompts begin when a slot gets free, and the product is whatever it is, or the budget too small.
    """
    first = len(past.samples) - 1
    while first > 0 and _waiting(past.samples[first - 1]):
        first -= 1
    samples, seconds = past.samples[first:], past.times[-1] - past.times[first]
    growth = subtract_counters(samples[0], samples[-1], past.corrupt)
    latency, begun, prefill = growth.inter_token_latency, growth.time_to_first_token, growth.prefill_time
    if seconds <= 0 or not (latency and begun and prefill and latency.count and begun.count and latency.sum > 0):
        return None
    step, rate = latency.sum / latency.count, begun.count / seconds
    # Prefill time is known of requests that have finished; until one has, by Little's law from those not decoding.
    one = prefill.sum / prefill.count if prefill.count else (_mean_running(samples) - latency.sum / seconds) / rate
    tokens = growth.prompt_tokens if growth.prompt_tokens_computed is None else growth.prompt_tokens_computed
    steps = one / step
    many = max(map(_running, samples)) >= MANY_REQUESTS
    if tokens is None or steps <= (1.2 if many else 1.0):
        return False
    product, budget = rate * (one - step), tokens / begun.count / (steps - 1)
    return budget >= SMALLEST_BUDGET and (0.8 if many else 0.6) <= product <= 1.4 + rate * step


def _slots_are_free(past: EngineHistory, slots: int | None) -> bool:
    """Whether fewer run than may, though requests wait.

    Where the number of slots is not known it shows in what runs: with all slots taken, one that gets free is taken in
    the next step, so scrape after scrape sees the same number; what prefill lets in comes and goes. Of a few requests
    nothing can be told: they may all have ended at once. What a page shows lacks those that ended in the last step.
    """
    running = [_running(sample) for sample in past.samples]
    most = max(running)
    growth = past.growth
    ended = divide(growth.request_latency.count if growth.request_latency else None, growth.generation_tokens)
    ended_in_a_step = _mean_running(past.samples) * (ended or 0.0)
    if slots is not None:
        return most + ended_in_a_step < slots
    at_the_limit = sum(one >= most - 1 - ended_in_a_step for one in running)
    return most >= MANY_REQUESTS and at_the_limit < len(running) * PINNED_SHARE


def _prefill_share(past: EngineHistory, phases: Phases) -> float | None:
    """Share of the running requests' time that was prefill.

    By Little's law the mean number of requests in a phase is the time spent in it per second. Prefill time is known
    when a request finishes; where none did, what runs and does not decode is in prefill.
    """
    decode, prefill = phases.decode_streams, phases.prefill_streams
    if decode is None:
        return None
    if prefill:
        return divide(prefill, prefill + decode)
    running = _mean_running(past.samples)
    return divide(running - decode, running)


def _blocked_since(before: Saturation | None, past: EngineHistory) -> float | None:
    """Since when requests have waited while nothing ran and no token came."""
    sample = past.samples[-1]
    if not _waiting(sample) or _running(sample):
        return None
    moved = len(past.samples) > 1 and subtract_counters(past.samples[-2], sample).generation_tokens
    if before is None or before.blocked_since is None or moved:
        return past.times[-1]
    return before.blocked_since


def _waiting(sample: EngineSample) -> float:
    """0 where the page has no gauge: a page of several processes has none before the first step."""
    return sample.requests_waiting or 0.0


def _running(sample: EngineSample) -> float:
    return sample.requests_running or 0.0


def _mean_running(samples: tuple[EngineSample, ...]) -> float:
    return sum(map(_running, samples)) / len(samples)
