"""Observes which models are in memory, and tells users' requests from probes by the expiry of a model and its slots.

No endpoint of Ollama shows whether a model is in use. Its expiry does: a request moves it to the request's end plus the
model's keep-alive, so a change that no probe caused is a user's request, and an expiry in the past of a model that is
still listed is a running request (0.33; the first request after a load moves it continuously, later ones freeze it). An
expiry that was there before we looked counts for nothing: a probe before a restart of the exporter may have caused it.
Where the slots of a model's child can be read, they show requests while they run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, ModelKey
from phasewatch.backends.ollama.probes.scheduling import Occasion, ProbePace, schedule_next_probe
from phasewatch.backends.ollama.state import ModelState, ObservedTraffic, OllamaState, Residency, end_residency
from phasewatch.snapshot.probes import ProbeRecord

PROBE_EXPIRY_TOLERANCE: Final = 1.0
"""An expiry this near to the one that a probe caused is still the probe's, seconds."""


def observe_inventory(
    state: OllamaState,
    inventory: Inventory,
    now: float,
    pace: ProbePace,
    *,
    loadable: Iterable[ModelKey] = (),
    probing: ModelKey | None = None,
) -> OllamaState:
    """Fold in an observation of the models in memory.

    Args:
        state: state before the observation.
        inventory: the observation.
        now: monotonic time.
        pace: delays of the probes.
        loadable: models on disk that probes may load.
        probing: the model that is being probed: its expiry moves because of us.
    """
    loaded = {model.key: model for model in inventory.loaded}
    models: dict[ModelKey, ModelState] = {}
    for key, model in state.models.items():
        if key in loaded:
            models[key] = _observe_again(model, loaded[key], now, pace, probing=key == probing)
        else:
            models[key] = end_residency(model)
    for key, entry in loaded.items():
        if key not in models:
            models[key] = _begin_residency(_appear(ModelState(), now, pace), entry, now, witnessed=state.observed)
    for key in loadable:
        models.setdefault(key, _appear(ModelState(), now, pace))
    listed = {(name, stored.digest) for name, stored in (inventory.stored or {}).items()}
    kept = {key: model for key, model in models.items() if key in loaded or key in listed or inventory.stored is None}
    digests = {digest for _, digest in kept}
    return replace(
        state,
        inventory=inventory,
        observed=True,
        models=kept,
        records=_drop_records(state.records, inventory),
        descriptions={digest: text for digest, text in state.descriptions.items() if digest in digests},
    )


def observe_traffic(state: OllamaState, key: ModelKey, now: float, *, served: bool) -> OllamaState:
    """Fold in a reading of the slots of a model's child.

    Args:
        state: state before the reading.
        key: the model that the child runs.
        now: monotonic time of the reading.
        served: whether a request of a user runs, or has run since the reading before; our own probe is none.
    """
    model = state.models.get(key)
    residency = model.residency if model else None
    if model is None or residency is None:
        return state
    idle_since = now if served or model.traffic is None else model.traffic.idle_since
    if served:
        # The end of that request moves the expiry beyond the present one, so users keep the model until then at least.
        residency = replace(residency, user_expires_at=residency.model.expires_at, changed_at=now)
    model = replace(model, residency=residency, traffic=ObservedTraffic(idle_since, now))
    return replace(state, models={**state.models, key: model})


def end_traffic(state: OllamaState, keys: Iterable[ModelKey]) -> OllamaState:
    """The state without the traffic of models whose children can no longer be read."""
    models = {key: replace(model, traffic=None) for key in keys if (model := state.models.get(key)) is not None}
    return replace(state, models={**state.models, **models})


def _drop_records(records: Mapping[str, ProbeRecord], inventory: Inventory) -> Mapping[str, ProbeRecord]:
    """The records without those of removed models, which would stay for ever."""
    if inventory.stored is None:
        return records
    names = inventory.stored.keys() | {model.name for model in inventory.loaded}
    return {name: record for name, record in records.items() if name in names}


def _appear(model: ModelState, now: float, pace: ProbePace) -> ModelState:
    return schedule_next_probe(model, Occasion.APPEARED, now, pace.interval, pace.first_delay)


def _begin_residency(model: ModelState, entry: LoadedModel, now: float, *, witnessed: bool) -> ModelState:
    """The model from its load on, or with its last residency continued if that had not ended."""
    last = model.last_residency
    if last is not None and not _was_reloaded(last.model, entry):
        ours = _is_near(last.probe_expires_at, entry.expires_at)
        if ours or entry.expires_at == last.model.expires_at:  # any request or load would have moved it
            return replace(model, residency=replace(last, model=entry), last_residency=None, measurements={})
    residency = Residency(witnessed, entry, entry.expires_at if witnessed else None, None, now)
    model = replace(model, residency=residency, last_residency=None, traffic=None, measurements={})
    return replace(model, failures=0, short_outputs=0)


def _observe_again(model: ModelState, entry: LoadedModel, now: float, pace: ProbePace, *, probing: bool) -> ModelState:
    residency = model.residency
    if residency is None:
        return _begin_residency(_appear(model, now, pace), entry, now, witnessed=True)
    if _was_reloaded(residency.model, entry):
        return _begin_residency(model, entry, now, witnessed=True)
    unchanged = entry.expires_at == residency.model.expires_at
    if probing or unchanged or _is_near(residency.probe_expires_at, entry.expires_at):
        return replace(model, residency=replace(residency, model=entry))
    if residency.unsettled:
        settled = replace(residency, model=entry, probe_expires_at=entry.expires_at, unsettled=False)
        return replace(model, residency=settled)
    used = replace(residency, model=entry, user_expires_at=entry.expires_at, changed_at=now)
    return schedule_next_probe(replace(model, residency=used), Occasion.USED, now, pace.interval, pace.first_delay)


def _is_near(probe_expires_at: float | None, expires_at: float | None) -> bool:
    """Whether an expiry is the one that a probe caused; the server may move it slightly after its response."""
    if probe_expires_at is None or expires_at is None:
        return False
    return abs(expires_at - probe_expires_at) <= PROBE_EXPIRY_TOLERANCE


def _was_reloaded(before: LoadedModel, after: LoadedModel) -> bool:
    """Whether a model was loaded again between two observations: its context or its size differs. The size of an MLX
    runner is what its allocator holds at the moment.
    """
    if before.context_length != after.context_length:
        return True
    return before.size != after.size and after.details.format != "safetensors"
