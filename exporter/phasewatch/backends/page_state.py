"""The state of a target that exposes a page of metrics, and how each scrape changes it: `serve` and `replay` share it.

A scrape is either a page or a failure. Folding one into a `PageState` gives the next state; `build_snapshot` turns a
state into what /metrics shows. Nothing here reads a clock or a network, and nothing here knows a server by name: what
only the server's backend knows about its own counters comes as `PageRules`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from phasewatch.analysis.ceiling import compute_ceiling
from phasewatch.analysis.latency import Latencies, compute_latencies
from phasewatch.analysis.phases import Phases, compute_phases
from phasewatch.analysis.queue import (
    Load,
    Progress,
    advance_progress,
    compute_mean_prompt_tokens,
    measure_load,
    measure_token_stall,
)
from phasewatch.analysis.samples import EngineKey, EngineSample, Page
from phasewatch.analysis.saturation import Saturation, advance_saturation, select_recent
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory, PageWindow, append_page, extract_history
from phasewatch.backends.equipment import Equipment, combine_model_costs
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.optional import divide
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_success
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot, create_snapshot


@dataclass(frozen=True, slots=True)
class PageContext:
    """What else is known when the samples of one engine are read.

    Attributes:
        page: the newest page.
        sample: the engine's sample on it.
        api_servers: API server processes behind the address, as the operator says; None where they do not.
        version: as the server reports it; None if unknown.
    """

    page: Page
    sample: EngineSample
    api_servers: int | None
    version: str | None


@dataclass(frozen=True)
class PageRules:
    """What a backend knows about the counters on its pages, as pure functions.

    Attributes:
        measure_totals: tokens and seconds of each phase over a history; None for a single scrape.
        count_interval_steps: engine steps from each scrape of a history to the next, None where unknown.
        read_kv_cache_capacity: tokens that the KV cache of an engine holds; None if unknown.
        find_corrupt_histograms: histograms that took in an impossible observation between two samples, apart from those
            whose sum fell.
    """

    measure_totals: Callable[[EngineHistory, PageContext], PhaseTotals | None]
    count_interval_steps: Callable[[EngineHistory, PageContext], tuple[float | None, ...]]
    read_kv_cache_capacity: Callable[[PageContext], float | None]
    find_corrupt_histograms: Callable[[EngineSample, EngineSample], Iterable[str]]


@dataclass(frozen=True, slots=True)
class EngineAnalysis:
    """What one scrape taught about one engine, computed once.

    Attributes:
        past: the window, scrape by scrape.
        phases: both phases over it.
        latencies: over it.
        load: queue and KV cache, now and over it.
        interval_steps: engine steps from each scrape of it to the next.
        progress: when the engine last put out a token; None for a page that does not count tokens.
        saturation: the state, after this scrape.
    """

    past: EngineHistory
    phases: Phases
    latencies: Latencies
    load: Load
    interval_steps: tuple[float | None, ...]
    progress: Progress | None
    saturation: Saturation


@dataclass(frozen=True, slots=True)
class PageState:
    """Everything known of a target. What it runs on outlives a restart; what its models cost is looked up again."""

    health: Health = field(default_factory=Health)
    facts: ServerFacts = field(default_factory=ServerFacts)
    window: PageWindow = field(default_factory=PageWindow)
    engines: Mapping[EngineKey, EngineAnalysis] = field(default_factory=dict)
    equipment: Equipment = field(default_factory=Equipment)


def fold_page(state: PageState, page: Page, timing: ScrapeTiming, target: Target, rules: PageRules) -> PageState:
    """The state after a scrape that gave a page. After a restart of the server nothing older is kept."""
    window = append_page(state.window, page, timing.done, target.window, _find_corrupt(state.window, page, rules))
    restarted = window.restarts != state.window.restarts
    known = _forget_server(state) if restarted else state
    return replace(
        known,
        health=record_success(state.health, timing),
        window=window,
        engines={key: _analyse_engine(key, page, window, known, target, rules) for key in page.engines},
    )


def fold_failure(state: PageState, error: ScrapeError, timing: ScrapeTiming) -> PageState:
    """The state after a scrape that failed.

    Counters outlive a scrape that came too late, so the window is kept; it covers the gap. A refused connection means
    that the server's process is gone: whatever comes after it starts from nothing.
    """
    known = _forget_server(state) if error.reason is Reason.CONNECT else state
    return replace(known, health=record_failure(state.health, error, timing))


def _forget_server(state: PageState) -> PageState:
    """The state without what a restart of the server may have changed."""
    return PageState(health=state.health, equipment=replace(state.equipment, models={}))


def build_snapshot(state: PageState, target: Target) -> TargetSnapshot:
    """What is to be shown of a target. While it is down nothing about its engines is."""
    snapshot = create_snapshot(target, state.health)
    if not snapshot.up:
        return snapshot
    now = state.window.pages[-1].time
    engines = tuple(
        _build_engine_snapshot(key, analysis, state, target, now) for key, analysis in state.engines.items()
    )
    return replace(snapshot, facts=state.facts, engines=engines)


def _find_corrupt(window: PageWindow, page: Page, rules: PageRules) -> Mapping[EngineKey, Iterable[str]]:
    before = window.newest
    if before is None:
        return {}
    both = before.engines.keys() & page.engines.keys()
    return {key: tuple(rules.find_corrupt_histograms(before.engines[key], page.engines[key])) for key in both}


def _analyse_engine(
    key: EngineKey, page: Page, window: PageWindow, known: PageState, target: Target, rules: PageRules
) -> EngineAnalysis:
    """What the newest page taught about an engine, on top of what was known before it."""
    before, past = known.engines.get(key), extract_history(window, key)
    context = PageContext(page, page.engines[key], target.server.api_servers, known.facts.version)
    capacity = rules.read_kv_cache_capacity(context)
    recent = select_recent(past, target.saturation.memory)
    return EngineAnalysis(
        past=past,
        phases=compute_phases(rules.measure_totals(past, context)),
        latencies=compute_latencies(past),
        load=measure_load(past, capacity),
        interval_steps=rules.count_interval_steps(past, context),
        progress=advance_progress(before.progress if before else None, context.sample, past.times[-1]),
        saturation=advance_saturation(
            before.saturation if before else None,
            recent,
            compute_phases(rules.measure_totals(recent, context)),
            prompt_share=divide(compute_mean_prompt_tokens(past), capacity),
            server=_combine_server_settings(target.server, known.facts.server),
            settings=target.saturation,
        ),
    )


def _combine_server_settings(configured: ServerSettings, reported: ServerSettings) -> ServerSettings:
    """The server's settings: what the operator says, else what the server reports."""
    return ServerSettings(
        max_num_seqs=configured.max_num_seqs or reported.max_num_seqs,
        max_num_batched_tokens=configured.max_num_batched_tokens or reported.max_num_batched_tokens,
        api_servers=configured.api_servers,
    )


def _build_engine_snapshot(
    key: EngineKey, analysis: EngineAnalysis, state: PageState, target: Target, now: float
) -> EngineSnapshot:
    sample = analysis.past.newest
    costs = combine_model_costs(state.equipment, target.model, key.model_name, sample.cache_config.get("cache_dtype"))
    return EngineSnapshot(
        key=key,
        phases=analysis.phases,
        latencies=analysis.latencies,
        load=analysis.load,
        ceiling=compute_ceiling(
            analysis.past,
            analysis.phases,
            analysis.load,
            state.equipment.device,
            costs,
            engines=len(state.engines),
            interval_steps=analysis.interval_steps,
        ),
        token_stall_seconds=measure_token_stall(analysis.progress, now),
        state=analysis.saturation.state,
        asleep=sample.awake == 0,
    )
