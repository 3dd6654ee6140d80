"""What the answer to a probe changes: measurements, counters, when the next comes, and whether it did harm."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import ProbeError, ProbeTimings, RequestOverhead
from phasewatch.backends.ollama.probes.scheduling import loaded_context, long_words, model_settings
from phasewatch.backends.ollama.state import ModelKey, ModelState, OllamaState, ProbeMeasurement
from phasewatch.config.probe_settings import ProbeSettings
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, ProbeRecord, count_discard, count_failure

QUEUED_SECONDS: Final = 0.25
"""Rest of an answer's time, above that of an idle server, from which the probe had to wait for somebody."""

LOAD_DETECTION_SECONDS: Final = 0.25
LOAD_DETECTION_FACTOR: Final = 10.0
"""A load duration is that of a load if it is above both: this many seconds, and this many times the usual one."""

SOON_SECONDS: Final = 10.0
"""Until the next probe after one that said nothing: the first after a load, or one that put out too little."""

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

_LONGEST_IDLE: Final = 1.0
"""Rest of an idle server's answer, in seconds; more is a queue, even if it is never shorter."""

_THIN_RETRIES: Final = 3
_MOST_BACKOFFS: Final = 4
_KEPT: Final = 20
_JITTER: Final = (0.9, 1.1)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How a probe went.

    Attributes:
        request: what was sent.
        course: how it went apart from its phases; None for a load, or if it failed.
        sample: its figures; None if it put out too little, for a load, or if it failed.
        error: why it failed.
        sent: monotonic time at which it was sent.
        ended: monotonic time at which the answer was there.
        wall: Unix time then.
        before: what was in memory right before.
        after: what is in memory right after; None if that could not be had.
    """

    request: ProbeRequest
    course: RequestOverhead | None
    sample: ProbeTimings | None
    error: ProbeError | None
    sent: float
    ended: float
    wall: float
    before: Inventory
    after: Inventory | None

    @property
    def seconds(self) -> float:
        """How long it took, by our clock."""
        return self.ended - self.sent


def record_result(state: OllamaState, result: ProbeResult, settings: ProbeSettings, random: Random) -> OllamaState:
    """The state after a probe.

    Args:
        state: before; `observe` has not yet seen `result.after`.
        result: how it went.
        settings: the operator's.
        random: for jitter.
    """
    key, kind = result.request.key, result.request.kind
    known = state.models.get(key, ModelState(due=0.0))
    record = state.records.get(key[0], ProbeRecord())
    record = replace(record, probes=record.probes + 1, duration=result.seconds)
    model = replace(
        _with_own_expiry(known, result),
        due=result.ended + settings.interval * random.uniform(*_JITTER),
        probed_at=result.ended,
        cost=_cost(state, known, result),
        skip=None,
    )
    if kind is RequestKind.LONG:
        model = replace(model, long_due=result.ended + settings.long_interval)
    nothing_owed = state.owed == 0
    if kind is not RequestKind.LOAD:
        rest = state.owed + _worked(state, known, result) * (1 / settings.budget - 1)
        state = replace(state, rest_until=result.ended + rest, owed=0.0)
    if kind is RequestKind.LOAD:
        state = _put(state, result, model, record)
        return _failed(state, result, settings) if result.error else _loaded(state, result, settings)
    harm = _harm(state, result)
    if harm is not None:
        model, record = replace(model, quarantine=harm), _reloaded(state, record, result.course)
    if result.error is not None:
        return _failed(_put(state, result, model, record), result, settings)
    if harm is not None:
        return _put(state, result, model, count_discard(record, DiscardReason.RELOADED))
    return _answered(_put(state, result, model, record), result, settings, may_put_off=nothing_owed)


def _worked(state: OllamaState, known: ModelState, result: ProbeResult) -> float:
    """Seconds for which the server worked on a probe. While it waited behind somebody it took nothing from anybody; of
    one that was given up no more is assumed than twice what others took.
    """
    waited = _waited(state, result.course) if result.course else 0.0
    if waited > QUEUED_SECONDS:
        return max(result.seconds - waited, 0.0)
    usual = 2 * max(known.cost.values(), default=result.seconds)
    return min(result.seconds, usual) if result.error is not None else result.seconds


def _cost(state: OllamaState, known: ModelState, result: ProbeResult) -> Mapping[RequestKind, float]:
    """What probes took, with that of an answered one. A load is none: what it takes says nothing of the next probe."""
    if result.error is not None or result.request.kind is RequestKind.LOAD:
        return known.cost
    return {**known.cost, result.request.kind: _worked(state, known, result)}


def _put(state: OllamaState, result: ProbeResult, model: ModelState, record: ProbeRecord) -> OllamaState:
    key = result.request.key
    return replace(state, models={**state.models, key: model}, records={**state.records, key[0]: record})


def _with_own_expiry(model: ModelState, result: ProbeResult) -> ModelState:
    """The model with the expiry that the probe has caused, so that it is not taken for a user's."""
    if model.residency is None:
        return model
    before, now_listed = _entry(result.before, result.request.key), _entry(result.after, result.request.key)
    moved = now_listed is not None and before is not None and now_listed.expires_at != before.expires_at
    refused = result.error is not None and result.error.reason in _REFUSED
    caused = replace(
        model.residency,
        own_expires_at=now_listed.expires_at if now_listed and not refused else model.residency.own_expires_at,
        # The scheduler moves the expiry a moment after the answer, and at the end of what was given up.
        unsettled=not refused and (not moved or (result.error is not None and result.error.reason in _UNFINISHED)),
        probes=model.residency.probes + (not refused),
    )
    return replace(model, residency=caused)


def _entry(inventory: Inventory | None, key: tuple[str, str]) -> LoadedModel | None:
    return next((model for model in inventory.loaded if model.key == key), None) if inventory else None


def _loaded(state: OllamaState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    """A load that the operator allowed, on a server where nothing else was loaded: our clock tells how long it took."""
    key = result.request.key
    record, model = replace(state.records[key[0]], success=True, load_seconds=result.seconds), state.models[key]
    # A model that leaves before it can be measured is loaded more and more rarely.
    later = result.ended + settings.interval * 2 ** min(model.loads, _MOST_BACKOFFS)
    soon = replace(model, failures=0, due=result.ended + SOON_SECONDS, load_due=later, loads=model.loads + 1)
    return _put(state, result, soon, record)


def _failed(state: OllamaState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    key, error = result.request.key, result.error
    assert error is not None  # noqa: S101  # the caller's case
    model = state.models[key]
    failures = model.failures + 1
    later = settings.interval * 2 ** min(failures - 1, _MOST_BACKOFFS)
    model = replace(model, failures=failures, due=max(model.due, result.ended + later))
    if error.reason is ProbeReason.UNSUPPORTED:
        model = replace(model, quarantine=error.message)
    state = _put(state, result, model, count_failure(state.records[key[0]], error.reason))
    return _back_off(state, result, settings) if error.reason in {ProbeReason.BUSY, ProbeReason.TIMEOUT} else state


def _back_off(state: OllamaState, result: ProbeResult, settings: ProbeSettings) -> OllamaState:
    """Leave the server alone for two intervals, then four, and so on."""
    backoffs = min(state.backoffs + 1, _MOST_BACKOFFS)
    return replace(state, backoffs=backoffs, backoff_until=result.ended + settings.interval * 2**backoffs)


def _harm(state: OllamaState, result: ProbeResult) -> str | None:
    """What tells that the probe made the server load the model; None if nothing does."""
    before, after = _entry(result.before, result.request.key), _entry(result.after, result.request.key)
    if before is not None and after is not None:
        if before.context_length != after.context_length:
            return f"its context went from {before.context_length} to {after.context_length} tokens"
        if before.size and after.size and before.size != after.size and after.details.format != "safetensors":
            return f"its size went from {before.size:.0f} to {after.size:.0f} bytes"
    if result.course is not None and _has_load(state, result.course) and not _others_changed(result):
        return f"it waited {result.course.load:.1f} s for the model"
    return None


def _has_load(state: OllamaState, went: RequestOverhead) -> bool:
    usual = min(state.idle_loads, default=0.0)
    return went.load > max(LOAD_DETECTION_SECONDS, LOAD_DETECTION_FACTOR * usual)


def _others_changed(result: ProbeResult) -> bool:
    """Whether another model came, went or was loaded anew meanwhile: then that is what the probe waited for."""
    return result.after is not None and _others(result.before, result) != _others(result.after, result)


def _others(seen: Inventory, result: ProbeResult) -> set[tuple[ModelKey, int | None, float | None]]:
    return {(model.key, model.context_length, model.size) for model in seen.loaded if model.key != result.request.key}


def _reloaded(state: OllamaState, record: ProbeRecord, went: RequestOverhead | None) -> ProbeRecord:
    load = went.load if went and _has_load(state, went) else record.load_seconds
    return replace(record, caused_reloads=record.caused_reloads + 1, load_seconds=load)


def _answered(state: OllamaState, result: ProbeResult, settings: ProbeSettings, *, may_put_off: bool) -> OllamaState:
    key, sample, went = result.request.key, result.sample, result.course
    assert went is not None  # noqa: S101  # the caller's case
    model, record = state.models[key], replace(state.records[key[0]], queue_seconds=_waited(state, went))
    queued = _waited(state, went) > QUEUED_SECONDS
    # Those of answers that waited as well: the smallest counts, and a slow server always has much left over.
    state = replace(state, rests=(*state.rests, went.rest)[-_KEPT:])
    residency = model.residency
    soon = result.ended + SOON_SECONDS
    if sample is None:
        thin = model.thin + 1
        again = soon if thin < _THIN_RETRIES else model.due
        model = replace(model, thin=thin, failures=0, due=min(again, model.due))
        known = _put(state, result, model, count_discard(record, DiscardReason.TOO_FEW_TOKENS))
        return _back_off(known, result, settings) if queued else known
    model, sample = _calibrated(model, result.request, sample)
    first = residency is not None and residency.witnessed and residency.probes <= 1
    if first or _has_load(state, went):
        model = replace(model, failures=0, due=min(soon, model.due))
        known = _put(state, result, model, count_discard(record, DiscardReason.FIRST_AFTER_LOAD))
        if queued:
            return _back_off(known, result, settings)
        # One probe may follow before the rest of both: a slow model would be gone by then.
        rest = known.rest_until - result.ended
        return replace(known, rest_until=result.ended, owed=rest) if may_put_off else known
    known = _measured(state, result, replace(model, failures=0, thin=0), record, sample, settings)
    return _back_off(known, result, settings) if queued else replace(known, backoffs=0)


def _calibrated(model: ModelState, request: ProbeRequest, sample: ProbeTimings) -> tuple[ModelState, ProbeTimings]:
    """The model with its tokens per word, from short prompts. No word is less than a token, so a count that is smaller
    is not that of our prompt: it was cut, or the server counts otherwise, and its duration says nothing.
    """
    if sample.prompt_tokens is None:
        return model, sample
    per_word = sample.prompt_tokens / request.words
    if per_word < 1:
        return model, replace(sample, computed_tokens=None, prompt_seconds=None)
    if request.kind is RequestKind.LONG:
        return model, sample
    return replace(model, tokens_per_word=per_word), sample


def _waited(state: OllamaState, went: RequestOverhead) -> float:
    """Seconds that a probe had to wait for its turn; before the first answer all that was left over counts as such."""
    idle = min(*state.rests, went.rest, _LONGEST_IDLE) if state.rests else 0.0
    return went.rest - idle


def _long_may_follow(model: ModelState, result: ProbeResult, settings: ProbeSettings) -> bool:
    """Whether a first long probe can follow soon: until there is one, prefill is known less well or not at all."""
    if model.residency is None or RequestKind.LONG in model.measurements:
        return False
    context = loaded_context(model.residency, model_settings(settings, result.request.key[0]))
    return context is not None and long_words(model, context, result.ended) is not None


def _measured(
    state: OllamaState,
    result: ProbeResult,
    model: ModelState,
    record: ProbeRecord,
    sample: ProbeTimings,
    settings: ProbeSettings,
) -> OllamaState:
    kind = result.request.kind
    model = replace(model, loads=0, measurements={**model.measurements, kind: ProbeMeasurement(result.ended, sample)})
    if _long_may_follow(model, result, settings):
        model = replace(model, due=min(model.due, result.ended + SOON_SECONDS))
    state = _put(state, result, model, replace(record, success=True, last_success=result.wall))
    return replace(state, idle_loads=(*state.idle_loads, sample.load_seconds)[-_KEPT:])
