"""Which model is probed now, with what, or why not. Pure: state and time in, a request or a reason out.

A probe is sent only to a model that is in memory and stays there, that its name stands for, that completes text, that
nobody uses, and that a user has asked for so recently that it would be in memory without us.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, StoredModel
from phasewatch.backends.ollama.probes.request import (
    LONG_TOKENS,
    SHORT_TOKENS,
    ProbeRequest,
    RequestKind,
    build_load_request,
    build_probe_request,
    choose_prompt_words,
)
from phasewatch.backends.ollama.state import ModelKey, ModelState, OllamaState, ProbePace, Residency
from phasewatch.config.resolve import choose_model_probe
from phasewatch.config.settings import ModelProbeSettings, ProbeSettings
from phasewatch.snapshot.probes import ProbeRecord, SkipReason, count_skip

EXPIRY_MARGIN: Final = 15.0
"""Seconds that a model must have left: one that is unloaded between our look and our request would be loaded again."""

LONGEST_LONG_PROBE: Final = 10.0
"""Seconds that a long probe may be expected to take. On a CPU 2000 tokens can take a minute."""

_QUIET: Final = 3.0
_FIRST_WITHIN: Final = 30.0


def pace(settings: ProbeSettings, random: Random) -> ProbePace:
    """When models are probed: the first time well within one interval of the start, and not all at once."""
    first = min(settings.interval, _FIRST_WITHIN) * random.uniform(0.2, 0.5)
    return ProbePace(first=first, quiet=_quiet(settings), least=settings.interval / 2)


def _quiet(settings: ProbeSettings) -> float:
    return min(_QUIET, settings.interval / 4)


def plan(
    state: OllamaState, settings: ProbeSettings, now: float, wall: float, random: Random
) -> tuple[OllamaState, ProbeRequest | None]:
    """The request that is to be sent now, if any, and the state with what was skipped instead.

    Args:
        state: what is known.
        settings: the operator's.
        now: monotonic time.
        wall: Unix time by our clock.
        random: for prompts.
    """
    quiet = _quiet(settings)
    server_wall = wall + (state.inventory.ahead if state.inventory else 0.0)
    for key in _due(state, settings, now):
        why_not = _why_not(state, settings, key, now, server_wall, quiet)
        if why_not is None:
            return state, _request(state, settings, key, now, random)
        state = _skipped(state, key, why_not, now, settings.interval)
    return state, None


def _due(state: OllamaState, settings: ProbeSettings, now: float) -> list[ModelKey]:
    """Models whose time has come, the longest overdue first: those in memory, and those that may be loaded."""
    inventory = state.inventory
    if inventory is None:
        return []
    found = [
        (model.due, key)
        for key, model in state.models.items()
        if model.due <= now
        and (model.residency is not None or (model.load_due <= now and _may_load(inventory.stored, settings, key)))
        and choose_model_probe(settings, key[0]).enabled
    ]
    return [key for _, key in sorted(found)]


def _may_load(stored: Mapping[str, StoredModel] | None, settings: ProbeSettings, key: ModelKey) -> bool:
    listed = stored.get(key[0]) if stored else None
    return listed is not None and listed.digest == key[1] and choose_model_probe(settings, key[0]).load


def loadable(inventory: Inventory, settings: ProbeSettings) -> Iterator[ModelKey]:
    """Models on disk that the operator allows to be loaded."""
    for name, stored in (inventory.stored or {}).items():
        if _may_load(inventory.stored, settings, (name, stored.digest)):
            yield name, stored.digest


def _why_not(
    state: OllamaState, settings: ProbeSettings, key: ModelKey, now: float, wall: float, quiet: float
) -> SkipReason | None:
    model = state.models[key]
    general = _general_reasons(state, key, now)
    if model.residency is None:
        return next(general, None)
    context = loaded_context(model.residency, choose_model_probe(settings, key[0]))
    return next(chain(general, _reasons_of_users(model, model.residency, context, now, wall, quiet)), None)


def _general_reasons(state: OllamaState, key: ModelKey, now: float) -> Iterator[SkipReason]:
    """Why this model, or any model of this server, is not probed now."""
    model, inventory = state.models[key], state.inventory
    stored = inventory.stored if inventory else None
    listed = stored.get(key[0]) if stored else None
    if model.quarantine is not None:
        yield SkipReason.QUARANTINED
    if listed is None or listed.digest != key[1]:
        yield SkipReason.REPLACED
    elif listed.remote:
        yield SkipReason.REMOTE
    elif not _completes(state, key, listed):
        yield SkipReason.NO_COMPLETION
    if state.backoff_until > now:
        yield SkipReason.BACKOFF
    if state.rest_until > now:
        yield SkipReason.BUDGET
    if model.residency is None and inventory and inventory.loaded:
        yield SkipReason.OTHERS_LOADED


def _completes(state: OllamaState, key: ModelKey, listed: StoredModel) -> bool:
    """Whether the model completes text. Servers before 0.6.4 do not say; they refuse to where it does not."""
    shown = state.shown.get(key[1])
    told = listed.capabilities if listed.capabilities is not None else shown.capabilities if shown else None
    return told is None or ("completion" in told and "image" not in told)


def _reasons_of_users(
    model: ModelState, residency: Residency, context: int | None, now: float, wall: float, quiet: float
) -> Iterator[SkipReason]:
    """Why a probe of a model in memory would harm those who use it."""
    if context is None:
        yield SkipReason.CONTEXT_UNKNOWN
    elif choose_prompt_words(RequestKind.SHORT, context, model.tokens_per_word) is None:
        yield SkipReason.CONTEXT_TOO_SMALL
    expires_at, user_expires_at = residency.model.expires_at, residency.user_expires_at
    if expires_at is None or user_expires_at is None:
        yield SkipReason.EXPIRING
        return
    if expires_at <= wall or now - residency.changed_at < quiet:
        yield SkipReason.ACTIVE
    if user_expires_at <= wall:
        yield SkipReason.USERS_GONE
    if expires_at - wall < EXPIRY_MARGIN + 2 * max(model.cost.values(), default=0.0):
        yield SkipReason.EXPIRING


def loaded_context(residency: Residency, told: ModelProbeSettings) -> int | None:
    """The context that the model was loaded with. Before 0.10 the server does not say; the operator may."""
    configured = told.options.get("num_ctx")
    return int(configured) if configured is not None else residency.model.context_length


def _request(state: OllamaState, settings: ProbeSettings, key: ModelKey, now: float, random: Random) -> ProbeRequest:
    model = state.models[key]
    told = choose_model_probe(settings, key[0])
    if model.residency is None:
        return build_load_request(*key, told.options)
    context = loaded_context(model.residency, told) or 0
    words = long_words(model, context, now)
    if words is not None:
        return build_probe_request(RequestKind.LONG, model.residency.model, words, told.options, random)
    words = choose_prompt_words(RequestKind.SHORT, context, model.tokens_per_word) or 1
    return build_probe_request(RequestKind.SHORT, model.residency.model, words, told.options, random)


def long_words(model: ModelState, context: int, now: float) -> int | None:
    """Words of a long probe, if it is time for one that would not take too long for a server with a single slot."""
    short = model.measurements.get(RequestKind.SHORT)
    if model.long_due > now or short is None:
        return None
    expected = (short.sample.prompt_seconds or 0.0) * LONG_TOKENS / SHORT_TOKENS + short.sample.decode_seconds
    return (
        choose_prompt_words(RequestKind.LONG, context, model.tokens_per_word)
        if expected <= LONGEST_LONG_PROBE
        else None
    )


def _skipped(state: OllamaState, key: ModelKey, reason: SkipReason, now: float, interval: float) -> OllamaState:
    """The state with one probe more that was not sent: counted when the reason changes, and once an interval."""
    model = state.models[key]
    if model.skip is not None and model.skip[0] is reason and now - model.skip[1] < interval:
        return state
    record = count_skip(state.records.get(key[0], ProbeRecord()), reason)
    return replace(
        state,
        models={**state.models, key: replace(model, skip=(reason, now))},
        records={**state.records, key[0]: record},
    )


def skipped_as_gone(state: OllamaState, key: ModelKey, now: float, interval: float) -> OllamaState:
    """The state after a model was unloaded between the plan to probe it and the look right before."""
    return _skipped(state, key, SkipReason.UNLOADED, now, interval) if key in state.models else state


def still_loaded(state: OllamaState, key: ModelKey) -> bool:
    """Whether a model is in memory."""
    inventory = state.inventory
    return inventory is not None and any(model.key == key for model in inventory.loaded)
