"""State of one Ollama: health, inventory, models and their probes. Immutable; each fold returns the next state.

`residency` folds in the inventory, `probes.result` the probes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from phasewatch.backends.llamacpp.process import ProcessState
from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, ModelKey
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.response import ProbeTimings
from phasewatch.base.errors import ScrapeError
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_late, record_success
from phasewatch.snapshot.probes import ProbeRecord, SkipReason, count_skip


@dataclass(frozen=True, slots=True)
class Residency:
    """One model's time in memory.

    Attributes:
        witnessed: whether its beginning was observed; otherwise an earlier request may have gone unseen.
        model: its newest entry of /api/ps.
        user_expires_at: newest expiry (Unix time) that a user's request caused; None while no request of a user is
            known. One that is found when the server is first observed may be the work of a probe.
        probe_expires_at: expiry (Unix time) that the newest probe caused; None before the first.
        changed_at: monotonic time at which the newest request of a user, or the first entry, was observed.
        unsettled: whether the next change of the expiry still belongs to a probe, because its end was not observed.
        probes: number of probes that ran in it.
    """

    witnessed: bool
    model: LoadedModel
    user_expires_at: float | None
    probe_expires_at: float | None
    changed_at: float
    unsettled: bool = False
    probes: int = 0


@dataclass(frozen=True, slots=True)
class ObservedTraffic:
    """What the slots of a model's child show of its users, where they can be read.

    Attributes:
        idle_since: monotonic time at which a slot last served a user; before the first time, that of the first reading.
        read_at: monotonic time of the newest reading.
    """

    idle_since: float
    read_at: float


@dataclass(frozen=True, slots=True)
class ProbeMeasurement:
    """Usable timings of a probe, and the monotonic time of its response."""

    time: float
    timings: ProbeTimings


@dataclass(frozen=True, slots=True)
class ModelState:
    """State of one model, by name and digest.

    Attributes:
        due: monotonic time of the next probe; only `probes.scheduling.schedule_next_probe` sets it.
        long_due: monotonic time from which a probe may be a long one.
        load_due: monotonic time from which a probe may load the model, where the operator allows that.
        unmeasured_loads: consecutive loads by probes without a measurement afterwards.
        probed_at: monotonic time at which the newest probe ended.
        residency: None while the model is not in memory.
        last_residency: the one that seems to have ended last: a single observation without the model, or a broken
            connection, need not be its end.
        traffic: None while the slots of its child cannot be read.
        measurements: newest of each kind in this residency.
        tokens_per_word: tokens per word of our prompts; None before the first measurement.
        probe_seconds: busy time of the server for the newest probe of each kind.
        failures: consecutive failed probes.
        short_outputs: consecutive responses with too few tokens.
        quarantine: why the model is no longer probed; None if it is.
        last_skip: why the due probe is not sent, and the monotonic time at which that was last counted.
    """

    due: float = -inf
    long_due: float = 0.0
    load_due: float = 0.0
    unmeasured_loads: int = 0
    probed_at: float | None = None
    residency: Residency | None = None
    last_residency: Residency | None = None
    traffic: ObservedTraffic | None = None
    measurements: Mapping[RequestKind, ProbeMeasurement] = field(default_factory=dict)
    tokens_per_word: float | None = None
    probe_seconds: Mapping[RequestKind, float] = field(default_factory=dict)
    failures: int = 0
    short_outputs: int = 0
    quarantine: str | None = None
    last_skip: tuple[SkipReason, float] | None = None


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Content of /api/show.

    Attributes:
        capabilities: what the model can do; None if the server does not list that.
        costs: what its phases cost.
        layer: layer with its weights, `sha256-` and the digest; None if unknown.
    """

    capabilities: frozenset[str] | None
    costs: ModelCosts
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class OllamaState:
    """State of one Ollama.

    Attributes:
        health: results of its scrapes.
        version: version text that the server reports; None if unknown.
        inventory: models in memory and on disk; None before the first, and while the server is too busy to list them.
        observed: whether its models have ever been observed: those that appear afterwards were loaded since.
        descriptions: content of /api/show, by digest.
        models: state of each model, by name and digest.
        runners: state of the child that runs a model, by name and digest, where it can be read.
        records: probe counters, by name.
        device: hardware of the server.
        idle_overheads: unaccounted seconds of the newest responses.
        idle_loads: load durations of the newest measurements, seconds.
        pause_until: monotonic time before which no probe is sent, so that probes keep to their share of the time.
        pause_debt: seconds of probe pause carried over to the next probe.
        backoff_until: monotonic time before which no probe is sent because the server was busy.
        backoffs: consecutive probes that found it busy.
    """

    health: Health = field(default_factory=Health)
    version: str | None = None
    inventory: Inventory | None = None
    observed: bool = False
    descriptions: Mapping[str, ModelDescription] = field(default_factory=dict)
    models: Mapping[ModelKey, ModelState] = field(default_factory=dict)
    runners: Mapping[ModelKey, ProcessState] = field(default_factory=dict)
    records: Mapping[str, ProbeRecord] = field(default_factory=dict)
    device: DeviceFacts = field(default_factory=DeviceFacts)
    idle_overheads: tuple[float, ...] = ()
    idle_loads: tuple[float, ...] = ()
    pause_until: float = 0.0
    pause_debt: float = 0.0
    backoff_until: float = 0.0
    backoffs: int = 0


def fold_success(state: OllamaState, version: str | None, timing: ScrapeTiming) -> OllamaState:
    """Fold in a successful scrape."""
    return replace(state, health=record_success(state.health, timing), version=version)


def fold_late_success(state: OllamaState, version: str | None, error: ScrapeError, timing: ScrapeTiming) -> OllamaState:
    """Fold in a scrape of a live server that did not list its models in time, as while it loads one."""
    health = record_late(state.health, error, timing)
    return replace(state, health=health, version=version, inventory=None)


def fold_failure(state: OllamaState, error: ScrapeError, timing: ScrapeTiming) -> OllamaState:
    """Fold in a failed scrape. A refused connection means that the process is gone, and its models with it. After a
    broken one the next list of models shows what is still in memory.
    """
    state = replace(state, health=record_failure(state.health, error, timing))
    if not error.refused:
        return state
    models = {key: end_residency(model) for key, model in state.models.items()}
    inventory = None if state.inventory is None else replace(state.inventory, loaded=())
    return replace(state, version=None, inventory=inventory, models=models)


def end_residency(model: ModelState) -> ModelState:
    """The model without its place in memory, its measurements and its traffic."""
    last = model.residency or model.last_residency
    return replace(model, residency=None, last_residency=last, traffic=None, measurements={})


def record_skips(
    state: OllamaState, skips: Iterable[tuple[ModelKey, SkipReason]], now: float, interval: float
) -> OllamaState:
    """Count due probes that were not sent: when the reason of a model changes, and once an interval while it stays."""
    for key, reason in skips:
        model = state.models.get(key)
        if model is None or _was_counted(model.last_skip, reason, now, interval):
            continue
        record = count_skip(state.records.get(key[0], ProbeRecord()), reason)
        state = replace(
            state,
            models={**state.models, key: replace(model, last_skip=(reason, now))},
            records={**state.records, key[0]: record},
        )
    return state


def _was_counted(last: tuple[SkipReason, float] | None, reason: SkipReason, now: float, interval: float) -> bool:
    return last is not None and last[0] is reason and now - last[1] < interval


def take_over_state(state: OllamaState, probing: ModelKey | None) -> OllamaState:
    """The state that the next scraper of the same server starts from: the use of the models, pauses and backoffs.

    The device is detected and the children are found again, if the new configuration looks for them. Quarantined models
    get another chance with it, and counters start again.

    Args:
        state: state of the previous scraper.
        probing: the model that it was probing, if any: that probe is cancelled, and the expiry it causes is still ours.
    """
    models = {key: replace(model, quarantine=None, traffic=None) for key, model in state.models.items()}
    model = models.get(probing) if probing else None
    if probing is not None and model is not None and model.residency is not None:
        models[probing] = replace(model, residency=replace(model.residency, unsettled=True))
    return replace(state, models=models, runners={}, records={}, device=DeviceFacts())
