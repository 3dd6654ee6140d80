"""Why requests wait: one state for each engine at each scrape, from a plain page of metrics.

The naive rule, requests waiting and KV cache usage near 1, misses most causes. Admission needs room for a whole prompt,
so the cache can be the limit at a usage of 0.7. A queue with an empty cache is caused by slots, by the step budget of
prefill, or by something else. A preemption is counted only when the preempted request generates a token again (vLLM 0.8
to 0.32). So the state is computed from what the engine did in the last few seconds (`SaturationSettings.memory`), and
is then kept for a minimum time (`SaturationSettings.hysteresis`).

A limit is named only if something on the page shows it: slots are the limit if all that were ever in use are in use,
and prefill is if prompts are being computed. An engine that has requests and does nothing has no limit: it is stuck.

Pure: times come with the scrapes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from phasewatch.analysis.phases import Phases
from phasewatch.analysis.progress import Progress, has_worked, list_work, measure_inactivity
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.window import EngineHistory, subtract_counters
from phasewatch.base.optional import divide
from phasewatch.config.settings import SaturationSettings, ServerSettings


class SaturationState(StrEnum):
    """What an engine is doing and, if requests wait, why: the `state` label of `llm_saturation_state`."""

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
"""The states in which nothing limits the engine."""

_WITHOUT_QUEUE: Final = CALM | {SaturationState.STUCK}
"""States after which a queue has to be confirmed again: when an engine that hung goes on, it may be gone."""

CONFIRMING_SCRAPES: Final = 3
"""Consecutive scrapes that must see a queue before it counts: a single scrape may fall between two steps."""

CACHE_IN_USE: Final = 0.5
"""KV cache usage (0 to 1) below which no request can have been preempted for lack of space."""

CACHE_SHORT: Final = 0.9
"""KV cache usage (0 to 1) from which requests that return to the queue count as preempted."""

LONGEST_STEP: Final = 10.0
"""Seconds that one step of prefill may take."""

SMALLEST_BUDGET: Final = 100
"""Tokens per step below which no server is configured. Where slots were the limit, the budget that follows from the
prefill times was 6 to 27."""

MANY_REQUESTS: Final = 16
"""Number of running requests from which its variation shows whether a limit holds it."""

PINNED_SHARE: Final = 1 / 3
"""Share of the scrapes that must see the highest number of running requests for it to be a limit."""


IN_PREFILL: Final = 0.5
"""Mean number of running requests that do not decode from which at least one of them is in prefill."""

SLOTS_IN_USE: Final = 0.9
"""Share of the slots, or of the most requests ever seen running, from which slots count as taken. Few scrapes do not
always see the highest number."""


_ROUNDING: Final = 1e-6
"""Seconds by which the difference of two clock readings may be too small."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The state of an engine.

    Attributes:
        state: as reported, after hysteresis.
        since: monotonic time at which it began.
    """

    state: SaturationState
    since: float


def advance_saturation(
    before: Saturation | None,
    past: EngineHistory,
    phases: Phases,
    progress: Progress | None,
    *,
    prompt_share: float | None,
    server: ServerSettings,
    settings: SaturationSettings,
) -> Saturation | None:
    """The saturation after one more scrape; None if the page does not show the queue of an engine that has worked.

    Args:
        before: the saturation after the previous scrape; None after a start or a restart.
        past: the engine's recent history, see `select_recent`.
        phases: both phases over that history.
        progress: the engine's work after this scrape; None if the page does not count it.
        prompt_share: share of the KV cache that a prompt of mean length needs; None if unknown.
        server: the server's settings, where known.
        settings: thresholds of the target.
    """
    now = past.times[-1]
    inactivity = measure_inactivity(progress, now)
    if inactivity is not None and inactivity >= settings.stuck_after - _ROUNDING:
        state = SaturationState.STUCK
    elif not _shows_queue(past):
        return None
    else:
        state = judge_state(
            past,
            phases,
            prompt_share=prompt_share,
            most_running=progress.most_running if progress else 0.0,
            server=server,
            settings=settings,
            saturated=before is not None and before.state not in _WITHOUT_QUEUE,
        )
    if before is None or (state is not before.state and now - before.since >= settings.hysteresis):
        return Saturation(state, now)
    return before


def _shows_queue(past: EngineHistory) -> bool:
    """Whether the waiting requests are known. A multiprocess page has no gauges before the first step (vLLM 0.8 to
    0.32); an engine that has never worked is idle without them.
    """
    if any(sample.requests_waiting is not None for sample in past.samples):
        return True
    return not any(count for _, count in list_work(past.newest))


def select_recent(past: EngineHistory, memory: float) -> EngineHistory:
    """The part of a history that the state is computed from: the last `memory` seconds, at least three scrapes."""
    first = max(0, len(past.times) - CONFIRMING_SCRAPES)
    while first > 0 and past.times[first - 1] >= past.times[-1] - memory:
        first -= 1
    return EngineHistory(past.times[first:], past.samples[first:], past.corrupt)


def judge_state(
    past: EngineHistory,
    phases: Phases,
    *,
    prompt_share: float | None,
    most_running: float,
    server: ServerSettings,
    settings: SaturationSettings,
    saturated: bool = False,
) -> SaturationState:
    """The state of a short history, except `stuck`. If several states apply, the first one in the order below is used.

    Args:
        past: the engine's recent history.
        phases: both phases over that history.
        prompt_share: share of the KV cache that a prompt of mean length needs; None if unknown.
        most_running: most requests seen running since the server started.
        server: the server's settings, where known.
        settings: thresholds of the target.
        saturated: whether the engine was saturated at the previous scrape. A queue begins when three consecutive
            scrapes see it, or fewer that are `memory` apart, and ends when three consecutive scrapes do not.
    """
    growth = past.growth
    busy = any(_count_waiting(sample) or _count_running(sample) for sample in past.samples)
    peak = max((sample.kv_cache_usage for sample in past.samples if sample.kv_cache_usage is not None), default=None)
    if growth.rejections and busy:
        return SaturationState.SHEDDING
    if _is_preempting(past, peak):
        return SaturationState.PREEMPTING
    last = past.samples[-CONFIRMING_SCRAPES:]
    confirmed = len(last) == CONFIRMING_SCRAPES or past.seconds >= settings.memory
    if not _has_queue(last, saturated=saturated, confirmed=confirmed):
        worked = has_worked(past.samples[0], past.newest)
        return SaturationState.HEALTHY if busy or worked else SaturationState.IDLE
    if peak is not None and 1 - peak < max(prompt_share or 0.0, settings.kv_cache_free):
        return SaturationState.KV_CACHE_FULL
    deferred = [divide(sample.requests_deferred or 0.0, _count_waiting(sample)) or 0.0 for sample in last]
    if min(deferred) > settings.deferred_share or _is_inactive(past):
        return SaturationState.DEFERRED
    return _find_limit(past, phases, most_running, server, settings)


def _has_queue(last: tuple[EngineSample, ...], *, saturated: bool, confirmed: bool) -> bool:
    """Whether requests wait. `confirmed`: whether the last scrapes are enough to begin a queue, or far enough apart."""
    if saturated:
        return any(map(_count_waiting, last))
    return confirmed and all(map(_count_waiting, last))


def _is_preempting(past: EngineHistory, peak: float | None) -> bool:
    """Whether requests are preempted: the counter says so, or running requests are seen to return to the queue.

    A server that is paused and resumed also counts its requests as preempted, although its cache was never short
    (vLLM 0.32); hence the minimum usage. The counter increases only when a preempted request generates a token again,
    which may take minutes (vLLM 0.8 to 0.32). Until then, the number of running requests falls by more than have
    finished, and at least that many more are waiting. Clients that give up do not join the queue, and they free cache.
    """
    growth = past.growth
    if growth.preemptions and (peak is None or peak >= CACHE_IN_USE):
        return True
    if growth.request_latency is None or peak is None or peak < CACHE_SHORT:
        return False
    first, last = past.samples[0], past.samples[-1]
    missing = _count_running(first) - _count_running(last) - growth.request_latency.count
    return 0 < missing <= _count_waiting(last) - _count_waiting(first)


def _is_inactive(past: EngineHistory) -> bool:
    """Whether nothing runs and no work is done while requests wait.

    A page shows the running requests as of the end of the last step. If all of them ended in it, the page shows 0
    during the whole next step, which may be a long prefill; hence the wait of `LONGEST_STEP`.
    """
    start = max(0, len(past.times) - CONFIRMING_SCRAPES)
    if any(map(_count_running, past.samples[start:])):
        return False
    while start > 0 and past.times[start - 1] >= past.times[-1] - LONGEST_STEP:
        start -= 1
    return not has_worked(past.samples[start], past.newest)


def _find_limit(
    past: EngineHistory,
    phases: Phases,
    most_running: float,
    server: ServerSettings,
    settings: SaturationSettings,
) -> SaturationState:
    """The limit, slots or prefill, for requests that wait for capacity while the cache has room.

    If slots are free and no prompt is being computed, nothing on the page explains the queue: then the requests wait
    for something else, as deferred ones do.
    """
    budget = divide(phases.step_tokens, server.max_num_batched_tokens)
    if budget is not None and budget >= settings.step_budget_share:
        return SaturationState.PREFILL_LIMITED
    # A server that shows each request shows this share even where all slots are taken: then more would not help.
    if server.max_num_seqs is None or _shows_prefill(past):
        full = _steps_are_full(past)
        if full is None:
            full = (_compute_prefill_share(past, phases) or 0.0) >= settings.prefill_share
        if full:
            return SaturationState.PREFILL_LIMITED
    if not _slots_are_free(past, server.max_num_seqs, most_running):
        return SaturationState.CONCURRENCY_LIMITED
    return SaturationState.PREFILL_LIMITED if _computes_prompts(past, phases) else SaturationState.DEFERRED


def _shows_prefill(past: EngineHistory) -> bool:
    return past.newest.requests_prefilling is not None


def _computes_prompts(past: EngineHistory, phases: Phases) -> bool:
    """Whether prompts are being computed: some have been counted, or requests run that do not decode.

    A prompt is counted when it is complete (vLLM 0.8 to 0.32), so a long one is seen only as a request that runs.
    """
    growth = past.growth
    counted = growth.prompt_tokens if growth.prompt_tokens_computed is None else growth.prompt_tokens_computed
    if counted:
        return True
    return phases.decode_streams is None or _compute_mean_running(past.samples) - phases.decode_streams >= IN_PREFILL


def _steps_are_full(past: EngineHistory) -> bool | None:
    """Whether prefill fills the steps of the engine, from what full steps imply; None if unknown.

    With a budget of b tokens per step and prompts of P tokens, a prefill lasts k = P / b + 1 steps, and b / P prompts
    begin per step. So (prompts per second) x (prefill time - one step) is 1, and P / (k - 1) is the budget itself.
    If slots are the limit, prompts begin when a slot becomes free: then the product is arbitrary, or the budget is too
    small to be one.
    """
    first = len(past.samples) - 1
    while first > 0 and _count_waiting(past.samples[first - 1]):
        first -= 1
    samples, seconds = past.samples[first:], past.times[-1] - past.times[first]
    growth = subtract_counters(samples[0], samples[-1], past.corrupt)
    latency, begun, prefill = growth.inter_token_latency, growth.time_to_first_token, growth.prefill_time
    if seconds <= 0 or not (latency and begun and prefill and latency.count and begun.count):
        return None
    step, rate = latency.sum / latency.count, begun.count / seconds
    if step <= 0:
        return None
    # Prefill time is observed when a request finishes. Until one has, it follows by Little's law from the requests that
    # run but do not decode.
    in_prefill = _compute_mean_running(samples) - latency.sum / seconds
    prefill_time = prefill.sum / prefill.count if prefill.count else in_prefill / rate
    tokens = growth.prompt_tokens if growth.prompt_tokens_computed is None else growth.prompt_tokens_computed
    steps = prefill_time / step
    many = max(map(_count_running, samples)) >= MANY_REQUESTS
    if tokens is None or steps <= (1.2 if many else 1.0):
        return False
    product, budget = rate * (prefill_time - step), tokens / begun.count / (steps - 1)
    return budget >= SMALLEST_BUDGET and (0.8 if many else 0.6) <= product <= 1.4 + rate * step


def _slots_are_free(past: EngineHistory, slots: int | None, most_running: float) -> bool:
    """Whether slots are free although requests wait.

    If the number of slots is unknown, there are at least as many as were ever in use. If those are in use, the number
    of running requests shows whether there are more: a slot that becomes free is taken in the next step, so consecutive
    scrapes see the same number, whereas the number that prefill admits fluctuates. A small number shows nothing: all
    requests may have ended at once. A page does not include the requests that ended in the last step.
    """
    running = [_count_running(sample) for sample in past.samples]
    most = max(running)
    growth = past.growth
    ended = divide(growth.request_latency.count if growth.request_latency else None, growth.generation_tokens)
    ended_in_a_step = _compute_mean_running(past.samples) * (ended or 0.0)
    if slots is not None:
        return most + ended_in_a_step < SLOTS_IN_USE * slots
    if most + ended_in_a_step < SLOTS_IN_USE * most_running:
        return True
    at_the_limit = sum(count >= most - 1 - ended_in_a_step for count in running)
    return most >= MANY_REQUESTS and at_the_limit < len(running) * PINNED_SHARE


def _compute_prefill_share(past: EngineHistory, phases: Phases) -> float | None:
    """Share of the running requests' time that was spent in prefill.

    By Little's law, the mean number of requests in a phase is the time spent in it per second. Prefill time is observed
    when a request finishes; if none did, the requests that run but do not decode are in prefill.
    """
    if _shows_prefill(past):
        prefilling = sum(sample.requests_prefilling or 0.0 for sample in past.samples) / len(past.samples)
        return divide(prefilling, _compute_mean_running(past.samples))
    decode, prefill = phases.decode_streams, phases.prefill_streams
    if decode is None:
        return None
    if prefill:
        return divide(prefill, prefill + decode)
    running = _compute_mean_running(past.samples)
    return divide(running - decode, running)


def _count_waiting(sample: EngineSample) -> float:
    """Number of waiting requests; 0 without the gauge, which a multiprocess page lacks before the first step."""
    return sample.requests_waiting or 0.0


def _count_running(sample: EngineSample) -> float:
    """Number of running requests; 0 without the gauge, as above."""
    return sample.requests_running or 0.0


def _compute_mean_running(samples: tuple[EngineSample, ...]) -> float:
    return sum(map(_count_running, samples)) / len(samples)
