"""Chooses the model to probe now and the kind of request, and sets when a model's next probe is due. Pure.

A probe is sent only to a model that is in memory and stays there, that its name stands for, that completes text, that
nobody is using, and that a user is known to have requested so recently that it would be in memory without us.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from random import Random
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, ModelKey, StoredModel
from phasewatch.backends.ollama.probes.request import (
    LONG_TOKENS,
    SHORT_TOKENS,
    ProbeRequest,
    RequestKind,
    build_load_request,
    build_probe_request,
    choose_prompt_words,
)
from phasewatch.backends.ollama.state import ModelState, OllamaState, Residency
from phasewatch.config.resolve import choose_model_probe
from phasewatch.config.settings import ModelProbeSettings, ProbeSettings
from phasewatch.snapshot.models import FOREVER_SECONDS
from phasewatch.snapshot.probes import SkipReason

EXPIRY_MARGIN: Final = 15.0
"""Seconds that a model must have left: one that is unloaded between our observation and our request would be loaded
again.
"""

LONGEST_LONG_PROBE: Final = 10.0
"""Longest expected duration of a long probe, seconds. On a CPU 2000 tokens can take a minute."""

SOON_SECONDS: Final = 10.0
"""Delay of a probe that follows up on another: after the first response since a load, or after a short output."""

LEAST_INTERVALS: Final = 0.5
"""Least time between two probes, in intervals, where a user's request brings the second forward. A probe soon after a
request hardly prolongs the model's life; a later one does so by all the time in between.
"""

MOST_DOUBLINGS: Final = 4

_QUIET_SECONDS: Final = 3.0
_LONGEST_FIRST_DELAY: Final = 30.0


@dataclass(frozen=True, slots=True)
class ProbePace:
    """Delays of the probes of a server, seconds.

    Attributes:
        interval: time between two probes of a model.
        first_delay: time from the first observation of a model in memory to its first probe.
    """

    interval: float
    first_delay: float


@dataclass(frozen=True, slots=True)
class ProbeDecision:
    """The request to send now, None if none is due or allowed, and the due models that it leaves out, with reasons."""

    request: ProbeRequest | None
    skips: tuple[tuple[ModelKey, SkipReason], ...] = ()


class Occasion(Enum):
    """Event that sets the time of a model's next probe."""

    APPEARED = auto()
    """The model came into memory, or may be loaded from now on."""
    USED = auto()
    """A user requested it."""
    PROBED = auto()
    """A probe ended."""
    FOLLOW_UP = auto()
    """A probe ended, and another one is needed soon."""
    LOADED = auto()
    """A probe loaded it."""
    FAILED = auto()
    """A probe failed; its failure is already counted."""


def draw_pace(settings: ProbeSettings, random: Random) -> ProbePace:
    """A pace whose first probe comes well within one interval of the start, and at another time on each exporter."""
    first_delay = min(settings.interval, _LONGEST_FIRST_DELAY) * random.uniform(0.2, 0.5)
    return ProbePace(settings.interval, first_delay)


def compute_quiet_seconds(interval: float) -> float:
    """Time without a sign of users before a probe, seconds."""
    return min(_QUIET_SECONDS, interval / 4)


def compute_backoff_seconds(interval: float, doublings: int) -> float:
    """An interval doubled again and again, up to 16 intervals."""
    return interval * 2.0 ** min(doublings, MOST_DOUBLINGS)


def schedule_next_probe(model: ModelState, occasion: Occasion, now: float, interval: float, delay: float) -> ModelState:
    """The model with the time of its next probe; nothing else sets `due`.

    Args:
        model: state of the model, with the event already folded in.
        occasion: the event.
        now: monotonic time of the event.
        interval: time between two probes of a model, seconds.
        delay: time to the next probe unless the event says otherwise, seconds; drawn at random by the caller.
    """
    match occasion:
        case Occasion.APPEARED:
            due = max(model.due, now + delay)
        case Occasion.USED if model.failures:
            due = model.due  # users do not shorten a backoff
        case Occasion.USED:
            quiet = now + compute_quiet_seconds(interval)
            least = quiet if model.probed_at is None else model.probed_at + interval * LEAST_INTERVALS
            due = min(model.due, max(quiet, least))
        case Occasion.PROBED:
            due = now + delay
        case Occasion.FOLLOW_UP:
            due = now + min(delay, SOON_SECONDS)
        case Occasion.LOADED:
            due = now + SOON_SECONDS
        case Occasion.FAILED:
            due = now + max(delay, compute_backoff_seconds(interval, model.failures - 1))
    return replace(model, due=due)


def choose_probe(state: OllamaState, settings: ProbeSettings, now: float, wall: float, random: Random) -> ProbeDecision:
    """Choose the request to send now: the longest overdue that harms nobody. Changes and counts nothing.

    Args:
        state: state of the server.
        settings: probe settings of the operator.
        now: monotonic time.
        wall: Unix time by our clock.
        random: source of random numbers for prompts.
    """
    server_wall = wall + (state.inventory.clock_offset if state.inventory else 0.0)
    skips: list[tuple[ModelKey, SkipReason]] = []
    for key in _list_due_models(state, settings, now):
        reason = _find_skip_reason(state, settings, key, now, server_wall)
        if reason is None:
            return ProbeDecision(_build_request(state, settings, key, now, random), tuple(skips))
        skips.append((key, reason))
    return ProbeDecision(None, tuple(skips))


def list_loadable_models(inventory: Inventory, settings: ProbeSettings) -> Iterator[ModelKey]:
    """Models on disk that the operator allows probes to load."""
    for name, stored in (inventory.stored or {}).items():
        if _may_load(inventory.stored, settings, (name, stored.digest)):
            yield name, stored.digest


def is_loaded(state: OllamaState, key: ModelKey) -> bool:
    """Whether a model is in memory."""
    inventory = state.inventory
    return inventory is not None and any(model.key == key for model in inventory.loaded)


def get_context_length(residency: Residency, settings: ModelProbeSettings) -> int | None:
    """Context that the model was loaded with, tokens. Servers before 0.10 do not list it; the operator may."""
    configured = settings.options.get("num_ctx")
    return int(configured) if configured is not None else residency.model.context_length


def choose_long_words(model: ModelState, context: int, now: float) -> int | None:
    """Words of a long prompt; None if it is not time for one, or if it would block a single slot for too long."""
    short = model.measurements.get(RequestKind.SHORT)
    if model.long_due > now or short is None:
        return None
    expected = (short.timings.prompt_seconds or 0.0) * LONG_TOKENS / SHORT_TOKENS + short.timings.decode_seconds
    return (
        choose_prompt_words(RequestKind.LONG, context, model.tokens_per_word)
        if expected <= LONGEST_LONG_PROBE
        else None
    )


def _list_due_models(state: OllamaState, settings: ProbeSettings, now: float) -> list[ModelKey]:
    """Due models in memory and those that may be loaded, the longest overdue first."""
    inventory = state.inventory
    if inventory is None:
        return []
    due = [
        (model.due, key)
        for key, model in state.models.items()
        if model.due <= now
        and (model.residency is not None or (model.load_due <= now and _may_load(inventory.stored, settings, key)))
        and choose_model_probe(settings, key[0]).enabled
    ]
    return [key for _, key in sorted(due)]


def _may_load(stored: Mapping[str, StoredModel] | None, settings: ProbeSettings, key: ModelKey) -> bool:
    listed = stored.get(key[0]) if stored else None
    return listed is not None and listed.digest == key[1] and choose_model_probe(settings, key[0]).load


def _find_skip_reason(
    state: OllamaState, settings: ProbeSettings, key: ModelKey, now: float, server_wall: float
) -> SkipReason | None:
    model = state.models[key]
    reasons = _list_general_reasons(state, key, now)
    if model.residency is not None:
        context = get_context_length(model.residency, choose_model_probe(settings, key[0]))
        in_use = _is_in_use(model, model.residency, settings.interval, now, server_wall)
        reasons = chain(reasons, _list_reasons_in_memory(model, model.residency, context, server_wall, in_use=in_use))
    return next(reasons, None)


def _list_general_reasons(state: OllamaState, key: ModelKey, now: float) -> Iterator[SkipReason]:
    """Reasons not to probe this model, or any model of this server, now."""
    model, inventory = state.models[key], state.inventory
    stored = inventory.stored if inventory else None
    listed = stored.get(key[0]) if stored else None
    if model.quarantine is not None:
        yield SkipReason.QUARANTINED
    if listed is None or listed.digest != key[1]:
        yield SkipReason.REPLACED
    elif listed.remote:
        yield SkipReason.REMOTE
    elif not _completes_text(state, key, listed):
        yield SkipReason.NO_COMPLETION
    if state.backoff_until > now:
        yield SkipReason.BACKOFF
    if state.pause_until > now:
        yield SkipReason.BUDGET
    if model.residency is None and inventory and inventory.loaded:
        yield SkipReason.OTHERS_LOADED


def _completes_text(state: OllamaState, key: ModelKey, listed: StoredModel) -> bool:
    """Whether the model completes text. Servers before 0.6.4 do not say; they refuse the request if it does not."""
    description = state.descriptions.get(key[1])
    capabilities = listed.capabilities
    if capabilities is None and description is not None:
        capabilities = description.capabilities
    return capabilities is None or ("completion" in capabilities and "image" not in capabilities)


def _list_reasons_in_memory(
    model: ModelState, residency: Residency, context: int | None, server_wall: float, *, in_use: bool
) -> Iterator[SkipReason]:
    """Reasons why a probe of a model in memory would harm its users."""
    if context is None:
        yield SkipReason.CONTEXT_UNKNOWN
    elif choose_prompt_words(RequestKind.SHORT, context, model.tokens_per_word) is None:
        yield SkipReason.CONTEXT_TOO_SMALL
    expires_at, user_expires_at = residency.model.expires_at, residency.user_expires_at
    if expires_at is None:
        yield SkipReason.EXPIRING
        return
    if in_use:
        yield SkipReason.ACTIVE
    forever = expires_at - server_wall > FOREVER_SECONDS  # a probe prolongs nothing there
    if not forever and (user_expires_at is None or user_expires_at <= server_wall):
        yield SkipReason.USERS_GONE
    if expires_at - server_wall < EXPIRY_MARGIN + 2 * max(model.probe_seconds.values(), default=0.0):
        yield SkipReason.EXPIRING


def _is_in_use(model: ModelState, residency: Residency, interval: float, now: float, server_wall: float) -> bool:
    """Whether somebody uses a model, or has just done so. One whose slots are read is measured by its users' requests,
    so it is in use until they have been idle for a whole interval.
    """
    expires_at, traffic = residency.model.expires_at, model.traffic
    if expires_at is not None and expires_at <= server_wall:
        return True
    if traffic is not None and traffic.read_at - traffic.idle_since < interval:
        return True
    return now - residency.changed_at < compute_quiet_seconds(interval)


def _build_request(
    state: OllamaState, settings: ProbeSettings, key: ModelKey, now: float, random: Random
) -> ProbeRequest:
    model = state.models[key]
    model_settings = choose_model_probe(settings, key[0])
    if model.residency is None:
        return build_load_request(*key, model_settings.options)
    context = get_context_length(model.residency, model_settings) or 0
    kind, words = RequestKind.LONG, choose_long_words(model, context, now)
    if words is None:
        kind, words = RequestKind.SHORT, choose_prompt_words(RequestKind.SHORT, context, model.tokens_per_word) or 1
    return build_probe_request(kind, model.residency.model, words, model_settings.options, random)
