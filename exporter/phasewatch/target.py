"""One target's state, and how each scrape changes it: the pure middle that `serve` and `replay` share.

A scrape is either a page or a failure. Folding one into a `TargetState` gives the next state; `snapshot` turns a state
into what /metrics shows. Nothing here reads a clock or a network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.config import Limits, Target
from phasewatch.errors import Reason, ScrapeError
from phasewatch.latency import Latencies, latencies
from phasewatch.load import (
    Load,
    Progress,
    advance,
    kv_cache_capacity_tokens,
    load,
    mean_prompt_tokens,
    token_stall_seconds,
)
from phasewatch.phases import Phases, has_one_api_server, phases, ratio
from phasewatch.samples import EngineKey, Page
from phasewatch.saturation import Saturation, State, recent
from phasewatch.saturation import advance as saturation_advance
from phasewatch.units import human_duration
from phasewatch.window import History, Increase, Window, history, increase, push


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a server says of a model: `root` is the path or hub name it was loaded from."""

    root: str | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself, apart from its metrics. Empty until it was asked."""

    version: str | None = None
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a scrape took place: `sent` and `done` monotonic, `wall` the Unix time at `done`, None if unknown."""

    sent: float
    done: float
    wall: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A target's present run of failures: when it began, how many scrapes it cost, and the newest error."""

    since: float
    failures: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class TargetState:
    """Everything known of a target. `trouble` is None while it is up; `answered` tells whether it ever was."""

    answered: bool = False
    trouble: Trouble | None = None
    errors: Mapping[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    scrape_seconds: float | None = None
    last_success: float | None = None
    facts: ServerFacts = field(default_factory=ServerFacts)
    window: Window = field(default_factory=Window)
    progress: Mapping[EngineKey, Progress | None] = field(default_factory=dict)
    saturation: Mapping[EngineKey, Saturation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """All that is known of one engine now."""

    key: EngineKey
    phases: Phases
    latencies: Latencies
    load: Load
    token_stall_seconds: float | None
    state: State
    asleep: bool


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """What /metrics and the landing page show of a target. `up` is None before the first scrape has ended."""

    name: str
    backend: str
    url: str
    optional: bool
    answered: bool
    up: bool | None
    trouble: Trouble | None
    errors: Mapping[Reason, int]
    scrape_seconds: float | None
    last_success: float | None
    facts: ServerFacts
    engines: tuple[EngineReading, ...]


def succeed(state: TargetState, page: Page, timing: Timing, target: Target) -> TargetState:
    """The state after a scrape that gave a page. After a restart of the server nothing older is kept."""
    window = push(state.window, page, timing.done, target.window)
    restarted = window.restarts != state.window.restarts
    known = TargetState() if restarted else state
    next_state = replace(
        state,
        answered=True,
        trouble=None,
        scrape_seconds=timing.done - timing.sent,
        last_success=timing.wall,
        facts=known.facts,
        window=window,
        progress={key: advance(known.progress.get(key), sample, timing.done) for key, sample in page.engines.items()},
    )
    return replace(
        next_state,
        saturation={key: _saturation(known.saturation.get(key), next_state, target, key) for key in page.engines},
    )


def fail(state: TargetState, error: ScrapeError, timing: Timing) -> TargetState:
    """The state after a scrape that failed.

    Counters outlive a scrape that came too late, so the window is kept; it covers the gap. A refused connection means
    that the server's process is gone: whatever comes after it starts anew.
    """
    before = state.trouble
    trouble = Trouble(
        since=before.since if before else timing.done,
        failures=before.failures + 1 if before else 1,
        reason=error.reason,
        message=error.message,
    )
    known = TargetState() if error.reason is Reason.CONNECT else state
    return replace(
        state,
        trouble=trouble,
        errors={**state.errors, error.reason: state.errors[error.reason] + 1},
        scrape_seconds=timing.done - timing.sent,
        facts=known.facts,
        window=known.window,
        progress=known.progress,
        saturation=known.saturation,
    )


def snapshot(state: TargetState, target: Target) -> TargetSnapshot:
    """What is to be shown of a target. While it is down nothing about its engines is."""
    up = None if state.scrape_seconds is None else state.trouble is None
    return TargetSnapshot(
        name=target.name,
        backend=target.backend,
        url=target.url,
        optional=target.optional,
        answered=state.answered,
        up=up,
        trouble=state.trouble,
        errors=state.errors,
        scrape_seconds=state.scrape_seconds,
        last_success=state.last_success,
        facts=state.facts if up else ServerFacts(),
        engines=_readings(state, target) if up else (),
    )


def stale(shown: TargetSnapshot, age: float) -> TargetSnapshot:
    """A snapshot that has grown too old: nothing has been heard of the target for `age` seconds."""
    message = f"no scrape has ended for {human_duration(age)}: the exporter is held up"
    trouble = shown.trouble or Trouble(0.0, 0, Reason.INTERNAL, message)
    return replace(shown, up=False, trouble=trouble, scrape_seconds=None, facts=ServerFacts(), engines=())


def _readings(state: TargetState, target: Target) -> tuple[EngineReading, ...]:
    newest = state.window.snapshots[-1]
    return tuple(_reading(state, target, key, newest.page, newest.time) for key in newest.page.engines)


def _reading(state: TargetState, target: Target, key: EngineKey, page: Page, now: float) -> EngineReading:
    past = history(state.window, key)
    growth = increase(past)
    return EngineReading(
        key=key,
        phases=_phases(state, target, key, past, growth),
        latencies=latencies(growth),
        load=load(past, growth, alone=len(page.engines) == 1),
        token_stall_seconds=token_stall_seconds(state.progress.get(key), now),
        state=state.saturation[key].state,
        asleep=page.engines[key].awake == 0,
    )


def _saturation(before: Saturation | None, state: TargetState, target: Target, key: EngineKey) -> Saturation:
    whole = history(state.window, key)
    past = recent(whole, target.thresholds.memory)
    page = state.window.snapshots[-1].page
    prompt = mean_prompt_tokens(increase(whole), past.samples[-1])
    return saturation_advance(
        before,
        past,
        _phases(state, target, key, past, increase(past)),
        prompt_share=ratio(prompt, kv_cache_capacity_tokens(past.samples[-1], alone=len(page.engines) == 1)),
        limits=_limits(state, target),
        thresholds=target.thresholds,
    )


def _limits(state: TargetState, target: Target) -> Limits:
    """The server's settings: what the operator said, else what the server says of itself."""
    told, asked = target.limits, state.facts.limits
    return Limits(
        max_num_seqs=told.max_num_seqs or asked.max_num_seqs,
        max_num_batched_tokens=told.max_num_batched_tokens or asked.max_num_batched_tokens,
    )


def _phases(state: TargetState, target: Target, key: EngineKey, past: History, growth: Increase | None) -> Phases:
    page = state.window.snapshots[-1].page
    one_api_server = has_one_api_server(page, page.engines[key], target.api_servers)
    return phases(past, growth, one_api_server=one_api_server, version=state.facts.version)
