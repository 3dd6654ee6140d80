"""What is known of an Ollama: who is in memory since when, who asked for it last, and what probes have told.

No endpoint tells whether a model is in use. Its expiry does: a request moves it to the request's end plus the model's
keep-alive, so a change that was not ours is somebody's request, and an expiry that has passed while the model is still
listed is a request that runs (0.33; the first request after a load moves it at each look, later ones freeze it).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.response import ProbeTimings
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_late, record_success
from phasewatch.snapshot.probes import ProbeRecord

OWN_SECONDS: Final = 1.0
"""An expiry this near to that of a probe is the probe's."""

ModelKey = tuple[str, str]
"""Name and digest of a model."""


@dataclass(frozen=True, slots=True)
class Residency:
    """One model's time in memory.

    Attributes:
        witnessed: whether it was seen to begin; nothing is known of what ran before otherwise.
        model: as it was listed last.
        user_expires_at: the newest expiry (Unix time) that no probe has caused.
        own_expires_at: the expiry that the newest probe has caused; None before the first.
        changed_at: monotonic time of the look that first showed the newest expiry that is not ours.
        unsettled: whether the next change of the expiry is still our doing: the end of a probe was not seen.
        probes: how many were answered in it.
    """

    witnessed: bool
    model: LoadedModel
    user_expires_at: float | None
    own_expires_at: float | None
    changed_at: float
    unsettled: bool = False
    probes: int = 0


@dataclass(frozen=True, slots=True)
class ProbeMeasurement:
    """A sample that counts, and the monotonic time at which it came."""

    time: float
    sample: ProbeTimings


@dataclass(frozen=True, slots=True)
class ModelState:
    """What is known of one model, by name and digest.

    Attributes:
        due: monotonic time of the next probe.
        long_due: monotonic time from which it may be a long one.
        probed_at: monotonic time at which the newest probe ended.
        load_due: monotonic time from which a probe may load it, where the operator allows that.
        loads: loads in a row after which nothing could be measured.
        residency: None while it is not in memory.
        last: the residency that seemed to end last: one look without it, or a broken connection, need not be its end.
        measurements: the newest of each kind in this residency.
        tokens_per_word: of our prompts.
        cost: seconds that the newest probe of each kind took.
        failures: failed probes in a row.
        thin: answers with too few tokens in a row.
        quarantine: why it is not probed any more; None if it is.
        skip: why the probe that is due now is not sent, and since when.
    """

    due: float
    long_due: float = 0.0
    load_due: float = 0.0
    loads: int = 0
    probed_at: float | None = None
    residency: Residency | None = None
    last: Residency | None = None
    measurements: Mapping[RequestKind, ProbeMeasurement] = field(default_factory=dict)
    tokens_per_word: float | None = None
    cost: Mapping[RequestKind, float] = field(default_factory=dict)
    failures: int = 0
    thin: int = 0
    quarantine: str | None = None
    skip: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What /api/show tells of a model: what it can do, None if it does not say, and what it costs."""

    capabilities: frozenset[str] | None
    costs: ModelCosts


@dataclass(frozen=True, slots=True)
class OllamaState:
    """Everything known of an Ollama.

    Attributes:
        health: how scrapes went.
        version: as told.
        inventory: what is in memory and on disk; None until it was told, and while the server is too busy to tell.
        looked: whether it was ever told: what appears from then on was loaded since.
        shown: what /api/show told, by digest.
        models: by name and digest.
        records: of probes, by name.
        device: what the server runs on.
        rests: what the newest answers had left over beside load, prompt and output, in seconds.
        idle_loads: load durations of the newest answers that did not wait.
        rest_until: monotonic time before which no probe may be sent, lest probes take more than their share.
        owed: seconds of such a rest that were put off to the next.
        backoff_until: monotonic time before which none may be sent because the server was busy.
        backoffs: times in a row that it was.
    """

    health: Health = field(default_factory=Health)
    version: str | None = None
    inventory: Inventory | None = None
    looked: bool = False
    shown: Mapping[str, ModelDescription] = field(default_factory=dict)
    models: Mapping[ModelKey, ModelState] = field(default_factory=dict)
    records: Mapping[str, ProbeRecord] = field(default_factory=dict)
    device: DeviceFacts = field(default_factory=DeviceFacts)
    rests: tuple[float, ...] = ()
    idle_loads: tuple[float, ...] = ()
    rest_until: float = 0.0
    owed: float = 0.0
    backoff_until: float = 0.0
    backoffs: int = 0


def fold_success(state: OllamaState, version: str | None, timing: ScrapeTiming) -> OllamaState:
    """The state after a scrape that was answered."""
    return replace(state, health=record_success(state.health, timing), version=version)


def fold_late_success(state: OllamaState, version: str | None, error: ScrapeError, timing: ScrapeTiming) -> OllamaState:
    """The state after a scrape of a server that lives but did not say in time what it holds, as while it loads."""
    return replace(state, health=record_late(state.health, error, timing), version=version, inventory=None, looked=True)


def fold_failure(state: OllamaState, error: ScrapeError, timing: ScrapeTiming) -> OllamaState:
    """The state after a scrape that failed. A refused connection means that the process is gone, and its models."""
    state = replace(state, health=record_failure(state.health, error, timing))
    if error.reason is not Reason.CONNECT:
        return state
    gone = {key: _gone(model) for key, model in state.models.items()}
    empty = None if state.inventory is None else replace(state.inventory, loaded=())
    return replace(state, version=None, inventory=empty, models=gone)


def take_over_state(state: OllamaState, probing: ModelKey | None) -> OllamaState:
    """What another monitor of the same server goes on from: who uses its models and what is owed to it. The device is
    found anew, models that were given up get another chance with the new configuration, and counting begins anew.

    Args:
        state: of the monitor before.
        probing: the model that it was probing, if it was: that probe is given up, and its expiry is still ours.
    """
    models = {key: replace(model, quarantine=None) for key, model in state.models.items()}
    known = models.get(probing) if probing else None
    if probing is not None and known is not None and known.residency is not None:
        open_ended = replace(known, residency=replace(known.residency, unsettled=True))
        models = {**models, probing: open_ended}
    return replace(state, models=models, records={}, device=DeviceFacts())


@dataclass(frozen=True, slots=True)
class ProbePace:
    """When models are probed, in seconds.

    Attributes:
        first: from the first look at a model in memory to its first probe.
        quiet: for which nothing must have been seen of users.
        least: from one probe to the next that a user's request brings forward. A probe soon after a request hardly
            prolongs the model's life; one that comes later does so by all the time in between.
    """

    first: float
    quiet: float
    least: float


def observe_inventory(
    state: OllamaState,
    inventory: Inventory,
    now: float,
    pace: ProbePace,
    *,
    loadable: Iterable[ModelKey] = (),
    probing: ModelKey | None = None,
) -> OllamaState:
    """The state after a look at what is in memory.

    Args:
        state: before.
        inventory: what is there now.
        now: monotonic time.
        pace: of the probes.
        loadable: models on disk that probes may load.
        probing: the model that a probe is under way to: its expiry moves by our doing.
    """
    loaded = {model.key: model for model in inventory.loaded}
    models: dict[ModelKey, ModelState] = {}
    for key, known in state.models.items():
        if key in loaded:
            models[key] = _still_there(known, loaded[key], now, pace, ours=key == probing)
        else:
            models[key] = _gone(known)
    for key, model in loaded.items():
        if key not in models:
            models[key] = _new(ModelState(due=now + pace.first), model, now, witnessed=state.looked)
    for key in loadable:
        models.setdefault(key, ModelState(due=now + pace.first))
    listed = {(name, stored.digest) for name, stored in (inventory.stored or {}).items()}
    kept = {key: model for key, model in models.items() if key in loaded or key in listed or inventory.stored is None}
    digests = {digest for _, digest in kept}
    return replace(
        state,
        inventory=inventory,
        looked=True,
        models=kept,
        records=_records_of(state.records, inventory),
        shown={digest: shown for digest, shown in state.shown.items() if digest in digests},
    )


def _records_of(records: Mapping[str, ProbeRecord], inventory: Inventory) -> Mapping[str, ProbeRecord]:
    """The records of models that are still there; those of others would stay for ever."""
    if inventory.stored is None:
        return records
    there = inventory.stored.keys() | {model.name for model in inventory.loaded}
    return {name: record for name, record in records.items() if name in there}


def _gone(known: ModelState) -> ModelState:
    return replace(known, residency=None, last=known.residency or known.last, measurements={})


def _new(known: ModelState, model: LoadedModel, now: float, *, witnessed: bool) -> ModelState:
    last = known.last
    if last is not None and not _loaded_anew(last.model, model):
        own = _is_own(last.own_expires_at, model.expires_at)
        if own or model.expires_at == last.model.expires_at:  # anybody's request, and a load, would have moved it
            return replace(known, residency=replace(last, model=model), last=None, measurements={})
    residency = Residency(witnessed, model, model.expires_at, None, now)
    return replace(known, residency=residency, last=None, measurements={}, failures=0, thin=0)


def _still_there(known: ModelState, model: LoadedModel, now: float, pace: ProbePace, *, ours: bool) -> ModelState:
    residency = known.residency
    if residency is None:
        return _new(replace(known, due=max(known.due, now + pace.first)), model, now, witnessed=True)
    if _loaded_anew(residency.model, model):
        return _new(known, model, now, witnessed=True)
    if ours or model.expires_at == residency.model.expires_at or _is_own(residency.own_expires_at, model.expires_at):
        return replace(known, residency=replace(residency, model=model))
    if residency.unsettled:
        caused = replace(residency, model=model, own_expires_at=model.expires_at, unsettled=False)
        return replace(known, residency=caused)
    moved = replace(residency, model=model, user_expires_at=model.expires_at, changed_at=now)
    if known.failures:
        return replace(known, residency=moved)
    sooner = now + pace.quiet if known.probed_at is None else max(now + pace.quiet, known.probed_at + pace.least)
    return replace(known, residency=moved, due=min(known.due, sooner))


def _is_own(own: float | None, expires_at: float | None) -> bool:
    """Whether an expiry is the one that a probe has caused, which the server may move a moment after its answer."""
    return own is not None and expires_at is not None and abs(expires_at - own) <= OWN_SECONDS


def _loaded_anew(before: LoadedModel, after: LoadedModel) -> bool:
    """Whether a model was loaded again between two looks: it has another context or another size. The size of an MLX
    runner is what its allocator holds now.
    """
    if before.context_length != after.context_length:
        return True
    return before.size != after.size and after.details.format != "safetensors"
