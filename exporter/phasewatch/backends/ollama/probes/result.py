"""Folds the result of a probe into the state: measurements, counters, pauses, and reloads that it caused."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, ModelKey
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import ProbeError, ProbeTimings, RequestOverhead
from phasewatch.backends.ollama.probes.scheduling import (
    MOST_DOUBLINGS,
    Occasion,
    choose_long_words,
    compute_backoff_seconds,
    get_context_length,
    schedule_next_probe,
)
from phasewatch.backends.ollama.state import ModelState, OllamaState, ProbeMeasurement
from phasewatch.config.resolve import choose_model_probe
from phasewatch.config.settings import ProbeSettings
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, ProbeRecord, count_discard, count_failure

QUEUED_SECONDS: Final = 0.25
"""Unaccounted time (total - load - prompt - eval) above the idle baseline from which a probe counts as queued, seconds.
"""

LOAD_DETECTION_SECONDS: Final = 0.25
LOAD_DETECTION_FACTOR: Final = 10.0
"""A load duration is that of a load if it exceeds both: this many seconds, and this many times the usual one."""

_REFUSED: Final = frozenset(
    {
        ProbeReason.AUTH,
        ProbeReason.BUSY,
        ProbeReason.CONTEXT_EXCEEDED,
        ProbeReason.HTTP_STATUS,
        ProbeReason.MODEL_GONE,
        ProbeReason.UNSUPPORTED,
    }
)
"""Failures of requests that never ran, and moved no expiry."""

_UNFINISHED: Final = frozenset(
    {ProbeReason.CONNECT, ProbeReason.INTERNAL, ProbeReason.TIMEOUT, ProbeReason.TLS, ProbeReason.TOO_LARGE}
)
"""Failures of requests that may still run on the server."""

_LONGEST_IDLE_OVERHEAD: Final = 1.0
"""Longest unaccounted time of an idle server, seconds; more is a queue, even if it is never shorter."""

_SHORT_OUTPUT_RETRIES: Final = 3
_KEPT: Final = 20
_JITTER: Final = (0.9, 1.1)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The end of a probe.

    Attributes:
        request: the request as sent.
        overhead: time outside the two phases; None for a load, or if the probe failed before that was known.
        timings: None for a load, for an output that is too short, or if the probe failed.
        error: why it failed.
        sent: monotonic time of the request.
        ended: monotonic time of the complete response.
        wall: Unix time at `ended`.
        before: inventory right before.
        after: inventory right after; None if it could not be read.
    """

    request: ProbeRequest
    overhead: RequestOverhead | None
    timings: ProbeTimings | None
    error: ProbeError | None
    sent: float
    ended: float
    wall: float
    before: Inventory
    after: Inventory | None

    @property
    def seconds(self) -> float:
        """Duration by our clock, seconds."""
        return self.ended - self.sent


def record_result(state: OllamaState, result: ProbeResult, settings: ProbeSettings, random: Random) -> OllamaState:
    """Fold in a probe that was sent.

    Args:
        state: state before the probe ended; `observe_inventory` has not seen `result.after` yet.
        result: result of the probe.
        settings: probe settings of the operator.
        random: source of random numbers for jitter.
    """
    key, kind = result.request.key, result.request.kind
    before = state.models.get(key, ModelState())
    record = state.records.get(key[0], ProbeRecord())
    record = replace(record, probes=record.probes + 1, duration=result.seconds)
    delay = settings.interval * random.uniform(*_JITTER)
    model = replace(
        _claim_expiry(before, result),
        probed_at=result.ended,
        probe_seconds=_update_probe_seconds(state, before, result),
        last_skip=None,
    )
    if kind is RequestKind.LONG:
        model = replace(model, long_due=result.ended + settings.long_interval)
    may_defer_pause = state.pause_debt == 0
    if kind is not RequestKind.LOAD:
        state = _pause(state, before, result, settings)
    reload = None if kind is RequestKind.LOAD else _detect_reload(state, result)
    if reload is not None:
        model, record = replace(model, quarantine=reload), _count_reload(state, record, result.overhead)
    state = _store(state, result, model, record)
    if result.error is not None:
        state, occasion = _record_failure(state, result, result.error, settings), Occasion.FAILED
    elif kind is RequestKind.LOAD:
        state, occasion = _record_load(state, result, settings), Occasion.LOADED
    elif reload is not None:
        state = _store(state, result, model, count_discard(record, DiscardReason.RELOADED))
        occasion = Occasion.PROBED
    else:
        state, occasion = _record_response(state, result, settings, may_defer_pause=may_defer_pause)
    model = schedule_next_probe(state.models[key], occasion, result.ended, settings.interval, delay)
    return replace(state, models={**state.models, key: model})


def _store(state: OllamaState, result: ProbeResult, model: ModelState, record: ProbeRecord) -> OllamaState:
    key = result.request.key
    return replace(state, models={**state.models, key: model}, records={**state.records, key[0]: record})


def _pause(state: OllamaState, model: ModelState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    """Pause all probes until this one keeps to its share of the time, and pay off the pause of the one before."""
    pause = state.pause_debt + _compute_busy_seconds(state, model, result) * (1 / settings.budget - 1)
    return replace(state, pause_until=result.ended + pause, pause_debt=0.0)


def _back_off(state: OllamaState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    """Send nothing to the server for two intervals, then four, and so on."""
    backoffs = min(state.backoffs + 1, MOST_DOUBLINGS)
    backoff = compute_backoff_seconds(settings.interval, backoffs)
    return replace(state, backoffs=backoffs, backoff_until=result.ended + backoff)


def _compute_busy_seconds(state: OllamaState, model: ModelState, result: ProbeResult) -> float:
    """Seconds that the server worked on a probe. Waiting behind a user costs nobody anything; a probe that was given up
    counts as no more than twice what others took.
    """
    queue_seconds = _compute_queue_seconds(state, result.overhead) if result.overhead else 0.0
    if queue_seconds > QUEUED_SECONDS:
        return max(result.seconds - queue_seconds, 0.0)
    usual = 2 * max(model.probe_seconds.values(), default=result.seconds)
    return min(result.seconds, usual) if result.error is not None else result.seconds


def _compute_queue_seconds(state: OllamaState, overhead: RequestOverhead) -> float:
    """Seconds that a probe waited for its turn: its unaccounted time above the idle baseline, which is 0 before the
    first response.
    """
    unaccounted = overhead.unaccounted_seconds
    idle = min(*state.idle_overheads, unaccounted, _LONGEST_IDLE_OVERHEAD) if state.idle_overheads else 0.0
    return unaccounted - idle


def _update_probe_seconds(state: OllamaState, model: ModelState, result: ProbeResult) -> Mapping[RequestKind, float]:
    """Busy seconds by kind, with those of an answered probe. The duration of a load predicts none of a probe."""
    if result.error is not None or result.request.kind is RequestKind.LOAD:
        return model.probe_seconds
    return {**model.probe_seconds, result.request.kind: _compute_busy_seconds(state, model, result)}


def _claim_expiry(model: ModelState, result: ProbeResult) -> ModelState:
    """The model with the expiry that the probe caused, so that it is not taken for a user's."""
    if model.residency is None:
        return model
    before, after = _find_model(result.before, result.request.key), _find_model(result.after, result.request.key)
    moved = after is not None and before is not None and after.expires_at != before.expires_at
    refused = result.error is not None and result.error.reason in _REFUSED
    residency = replace(
        model.residency,
        probe_expires_at=after.expires_at if after and not refused else model.residency.probe_expires_at,
        # The scheduler moves the expiry slightly after the response, and at the end of a request that was given up.
        unsettled=not refused and (not moved or (result.error is not None and result.error.reason in _UNFINISHED)),
        probes=model.residency.probes + (not refused),
    )
    return replace(model, residency=residency)


def _find_model(inventory: Inventory | None, key: ModelKey) -> LoadedModel | None:
    return next((model for model in inventory.loaded if model.key == key), None) if inventory else None


def _detect_reload(state: OllamaState, result: ProbeResult) -> str | None:
    """Evidence that the probe made the server load the model; None if there is none."""
    before, after = _find_model(result.before, result.request.key), _find_model(result.after, result.request.key)
    if before is not None and after is not None:
        if before.context_length != after.context_length:
            return f"its context went from {before.context_length} to {after.context_length} tokens"
        if before.size and after.size and before.size != after.size and after.details.format != "safetensors":
            return f"its size went from {before.size:.0f} to {after.size:.0f} bytes"
    if result.overhead is not None and _includes_load(state, result.overhead) and not _others_changed(result):
        return f"it waited {result.overhead.load_seconds:.1f} s for the model"
    return None


def _includes_load(state: OllamaState, overhead: RequestOverhead) -> bool:
    usual = min(state.idle_loads, default=0.0)
    return overhead.load_seconds > max(LOAD_DETECTION_SECONDS, LOAD_DETECTION_FACTOR * usual)


def _others_changed(result: ProbeResult) -> bool:
    """Whether another model came, went or was reloaded meanwhile: then that is what the probe waited for."""
    key = result.request.key
    return result.after is not None and _describe_others(result.before, key) != _describe_others(result.after, key)


def _describe_others(inventory: Inventory, key: ModelKey) -> set[tuple[ModelKey, int | None, float | None]]:
    return {(model.key, model.context_length, model.size) for model in inventory.loaded if model.key != key}


def _count_reload(state: OllamaState, record: ProbeRecord, overhead: RequestOverhead | None) -> ProbeRecord:
    seconds = overhead.load_seconds if overhead and _includes_load(state, overhead) else record.load_seconds
    return replace(record, caused_reloads=record.caused_reloads + 1, load_seconds=seconds)


def _record_load(state: OllamaState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    """Fold in a load that the operator allowed. No other model was in memory: our clock gives the duration."""
    key = result.request.key
    record, model = replace(state.records[key[0]], success=True, load_seconds=result.seconds), state.models[key]
    # A model that leaves before it can be measured is loaded more and more rarely.
    load_due = result.ended + compute_backoff_seconds(settings.interval, model.unmeasured_loads)
    model = replace(model, failures=0, load_due=load_due, unmeasured_loads=model.unmeasured_loads + 1)
    return _store(state, result, model, record)


def _record_failure(state: OllamaState, result: ProbeResult, error: ProbeError, settings: ProbeSettings) -> OllamaState:
    key = result.request.key
    model = state.models[key]
    model = replace(model, failures=model.failures + 1)
    if error.reason is ProbeReason.UNSUPPORTED:
        model = replace(model, quarantine=error.message)
    state = _store(state, result, model, count_failure(state.records[key[0]], error.reason))
    return _back_off(state, result, settings) if error.reason in {ProbeReason.BUSY, ProbeReason.TIMEOUT} else state


def _record_response(
    state: OllamaState, result: ProbeResult, settings: ProbeSettings, *, may_defer_pause: bool
) -> tuple[OllamaState, Occasion]:
    """Fold in a response: discard it, or keep its measurement."""
    key, timings, overhead = result.request.key, result.timings, result.overhead
    assert overhead is not None  # noqa: S101  # the caller's case
    queue_seconds = _compute_queue_seconds(state, overhead)
    model, record = state.models[key], replace(state.records[key[0]], queue_seconds=queue_seconds)
    model = replace(model, failures=0)
    # Responses that queued count as well: the baseline is the least, and a slow server always has much overhead.
    state = replace(state, idle_overheads=(*state.idle_overheads, overhead.unaccounted_seconds)[-_KEPT:])
    queued = queue_seconds > QUEUED_SECONDS
    if queued:
        state = _back_off(state, result, settings)
    if timings is None:
        model = replace(model, short_outputs=model.short_outputs + 1)
        state = _store(state, result, model, count_discard(record, DiscardReason.TOO_FEW_TOKENS))
        retry = model.short_outputs < _SHORT_OUTPUT_RETRIES
        return state, Occasion.FOLLOW_UP if retry else Occasion.PROBED
    model, timings = _calibrate(model, result.request, timings)
    if _is_first_response(model) or _includes_load(state, overhead):
        state = _store(state, result, model, count_discard(record, DiscardReason.FIRST_AFTER_LOAD))
        if may_defer_pause and not queued:
            # One probe may follow before the pause for both: a slow model would have left by then.
            pause = state.pause_until - result.ended
            state = replace(state, pause_until=result.ended, pause_debt=pause)
        return state, Occasion.FOLLOW_UP
    if not queued:
        state = replace(state, backoffs=0)
    return _record_measurement(state, result, model, record, timings, settings)


def _is_first_response(model: ModelState) -> bool:
    """Whether a response is the first since a load that was observed."""
    return model.residency is not None and model.residency.witnessed and model.residency.probes <= 1


def _calibrate(model: ModelState, request: ProbeRequest, timings: ProbeTimings) -> tuple[ModelState, ProbeTimings]:
    """The model with its tokens per word, from short prompts. A word is at least one token: a smaller count is not that
    of our prompt, which was cut, or the server counts otherwise, and its duration means nothing.
    """
    if timings.prompt_tokens is None:
        return model, timings
    tokens_per_word = timings.prompt_tokens / request.words
    if tokens_per_word < 1:
        return model, replace(timings, computed_tokens=None, prompt_seconds=None)
    if request.kind is RequestKind.LONG:
        return model, timings
    return replace(model, tokens_per_word=tokens_per_word), timings


def _record_measurement(
    state: OllamaState,
    result: ProbeResult,
    model: ModelState,
    record: ProbeRecord,
    timings: ProbeTimings,
    settings: ProbeSettings,
) -> tuple[OllamaState, Occasion]:
    measurement = ProbeMeasurement(result.ended, timings)
    measurements = {**model.measurements, result.request.kind: measurement}
    model = replace(model, short_outputs=0, unmeasured_loads=0, measurements=measurements)
    state = _store(state, result, model, replace(record, success=True, last_success=result.wall))
    state = replace(state, idle_loads=(*state.idle_loads, timings.load_seconds)[-_KEPT:])
    return state, Occasion.FOLLOW_UP if _needs_long_probe(model, result, settings) else Occasion.PROBED


def _needs_long_probe(model: ModelState, result: ProbeResult, settings: ProbeSettings) -> bool:
    """Whether a first long probe can follow soon: until then prefill is less exact or unknown."""
    if model.residency is None or RequestKind.LONG in model.measurements:
        return False
    context = get_context_length(model.residency, choose_model_probe(settings, result.request.key[0]))
    return context is not None and choose_long_words(model, context, result.ended) is not None
