"""The state of a target with a page of metrics, and how each scrape changes it. Shared by `serve` and `replay`.

A scrape is either a page or a failure. Folding it into a `PageState` gives the next state; `build_snapshot` turns a
state into what /metrics exposes. Pure functions, the same for every kind of server: whatever depends on how a server
counts is passed in as `PageRules`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from phasewatch.analysis.ceiling import compute_ceiling
from phasewatch.analysis.latency import Latencies, compute_latencies
from phasewatch.analysis.objectives import judge_objectives
from phasewatch.analysis.phases import Phases, compute_phases
from phasewatch.analysis.progress import Progress, advance_progress, list_work, measure_token_stall
from phasewatch.analysis.queue import KvCacheSize, Load, compute_mean_prompt_tokens, measure_load
from phasewatch.analysis.requests import Requests, compute_requests, compute_server_requests
from phasewatch.analysis.samples import EngineKey, EngineSample, Page
from phasewatch.analysis.saturation import Saturation, advance_saturation, select_recent
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory, PageWindow, append_page, extract_history
from phasewatch.backends.equipment import Equipment, combine_model_costs
from phasewatch.base.errors import ScrapeError
from phasewatch.base.optional import divide
from phasewatch.config.settings import ServerSettings, Target
from phasewatch.models.costs import KvCache
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_success
from phasewatch.snapshot.target import ServerFacts, TargetSnapshot, create_snapshot


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a backend's rules may need besides the history of an engine.

    Attributes:
        page: the newest page.
        sample: the engine's sample on it.
        server: settings of the server, as configured.
        version: the server's version, as it reports it; None if unknown.
        kv_cache: the KV cache of the model, from its files; None if unknown.
    """

    page: Page
    sample: EngineSample
    server: ServerSettings
    version: str | None
    kv_cache: KvCache | None


@dataclass(frozen=True)
class PageRules:
    """A backend's rules for the counters on its pages, as pure functions.

    Attributes:
        measure_totals: tokens and seconds of each phase over a history; None for a single scrape.
        count_interval_steps: engine steps from each scrape of a history to the next, None where unknown.
        read_kv_cache_size: size of an engine's KV cache; None if unknown.
        read_cache_dtype: number format of an engine's KV cache; None if the server does not report it.
        find_corrupt_histograms: names of histograms with an impossible observation between two samples, except those
            whose sum has fallen.
    """

    measure_totals: Callable[[EngineHistory, PageContext], PhaseTotals | None]
    count_interval_steps: Callable[[EngineHistory, PageContext], tuple[float | None, ...]]
    read_kv_cache_size: Callable[[PageContext], KvCacheSize | None]
    read_cache_dtype: Callable[[EngineSample], str | None]
    find_corrupt_histograms: Callable[[EngineSample, EngineSample], Iterable[str]]


@dataclass(frozen=True, slots=True)
class EngineAnalysis:
    """All figures of one engine after a scrape, computed once per scrape.

    Attributes:
        past: the window, scrape by scrape.
        phases: both phases over the window.
        latencies: latencies over the window.
        load: queue and KV cache, now and over the window.
        requests: how requests ended over the window, their lengths and their times.
        cache_dtype: number format of the KV cache; None if the server does not report it.
        interval_steps: engine steps from each scrape of the window to the next.
        progress: when the engine last worked; None for a page without counters of work.
        saturation: the saturation state after this scrape; None if the page does not show the queue.
        notes: what was left out because it cannot be right, in words.
    """

    past: EngineHistory
    phases: Phases
    latencies: Latencies
    load: Load
    requests: Requests
    cache_dtype: str | None
    interval_steps: tuple[float | None, ...]
    progress: Progress | None
    saturation: Saturation | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageState:
    """The state of a target. A restart of the server clears all but health, devices and the configured model."""

    health: Health = field(default_factory=Health)
    facts: ServerFacts = field(default_factory=ServerFacts)
    window: PageWindow = field(default_factory=PageWindow)
    engines: Mapping[EngineKey, EngineAnalysis] = field(default_factory=dict)
    equipment: Equipment = field(default_factory=Equipment)


def fold_page(state: PageState, page: Page, timing: ScrapeTiming, target: Target, rules: PageRules) -> PageState:
    """The state after a successful scrape. If the server has restarted, nothing older is kept, see `PageState`."""
    window = append_page(
        state.window, page, timing.done, target.window, _find_corrupt_histograms(state.window, page, rules)
    )
    restarted = window.restarts != state.window.restarts
    before = _forget_server(state) if restarted else state
    return replace(
        before,
        health=record_success(state.health, timing),
        window=window,
        engines={key: _analyse_engine(key, page, window, before, target, rules) for key in page.engines},
    )


def fold_failure(state: PageState, error: ScrapeError, timing: ScrapeTiming) -> PageState:
    """The state after a failed scrape.

    A refused connection means that the server's process has ended: everything after it starts from nothing. After any
    other failure, a broken connection included, the window is kept and will cover the gap: if the server has restarted
    meanwhile, the counters and start times of the next page show it.
    """
    before = _forget_server(state) if error.refused else state
    return replace(before, health=record_failure(state.health, error, timing))


def learn_facts(state: PageState, facts: ServerFacts, target: Target, rules: PageRules) -> PageState:
    """The state once more is known of the server: what depends on its version is measured again."""
    page = state.window.newest
    if page is None:
        return replace(state, facts=facts)
    engines = {
        key: _measure_engine(
            analysis.past,
            _create_context(key, page, replace(state, facts=facts), target, rules),
            rules,
            analysis.progress,
            analysis.saturation,
        )
        for key, analysis in state.engines.items()
    }
    return replace(state, facts=facts, engines=engines)


def _forget_server(state: PageState) -> PageState:
    """The state without what a restart of the server may have changed."""
    return PageState(health=state.health, equipment=replace(state.equipment, models={}))


def build_snapshot(state: PageState, target: Target) -> TargetSnapshot:
    """The snapshot of a target; without engines while it is down.

    An engine without a single counter is left out: it has not worked yet, or it is a router that shows the gauges of
    its servers.
    """
    snapshot = create_snapshot(target, state.health)
    if not snapshot.up:
        return snapshot
    now = state.window.pages[-1].time
    engines = tuple(
        _build_engine_snapshot(key, analysis, state, target, now)
        for key, analysis in state.engines.items()
        if any(list_work(analysis.past.newest))
    )
    histories = {key: analysis.past for key, analysis in state.engines.items()}
    requests = compute_server_requests(state.window, histories)
    return replace(snapshot, facts=state.facts, engines=engines, requests=requests)


def list_notes(state: PageState) -> tuple[str, ...]:
    """What was left out of the newest page, or of what was computed from it, because it cannot be right. In words."""
    page = state.window.newest
    computed = (note for analysis in state.engines.values() for note in analysis.notes)
    return tuple(dict.fromkeys((*(page.notes if page else ()), *computed)))


def _find_corrupt_histograms(window: PageWindow, page: Page, rules: PageRules) -> Mapping[EngineKey, Iterable[str]]:
    before = window.newest
    if before is None:
        return {}
    both = before.engines.keys() & page.engines.keys()
    return {key: tuple(rules.find_corrupt_histograms(before.engines[key], page.engines[key])) for key in both}


def _analyse_engine(
    key: EngineKey, page: Page, window: PageWindow, state: PageState, target: Target, rules: PageRules
) -> EngineAnalysis:
    """The analysis of an engine on the newest page, with `state` as it was before that page."""
    before, past = state.engines.get(key), extract_history(window, key)
    context = _create_context(key, page, state, target, rules)
    size = rules.read_kv_cache_size(context)
    recent = select_recent(past, target.saturation.memory)
    progress = advance_progress(before.progress if before else None, context.sample, past.times[-1])
    saturation = advance_saturation(
        before.saturation if before else None,
        recent,
        compute_phases(rules.measure_totals(recent, context)),
        progress,
        prompt_share=divide(compute_mean_prompt_tokens(past), size.capacity if size else None),
        server=_combine_server_settings(target.server, state.facts.server),
        settings=target.saturation,
    )
    return _measure_engine(past, context, rules, progress, saturation)


def _create_context(key: EngineKey, page: Page, state: PageState, target: Target, rules: PageRules) -> PageContext:
    sample = page.engines[key]
    costs = combine_model_costs(state.equipment, target.model, key.model_name, rules.read_cache_dtype(sample))
    return PageContext(page, sample, target.server, state.facts.version, costs.kv_cache)


def _measure_engine(
    past: EngineHistory,
    context: PageContext,
    rules: PageRules,
    progress: Progress | None,
    saturation: Saturation | None,
) -> EngineAnalysis:
    totals = rules.measure_totals(past, context)
    phases = compute_phases(totals)
    return EngineAnalysis(
        past=past,
        phases=phases,
        latencies=compute_latencies(past),
        load=measure_load(past, rules.read_kv_cache_size(context), phases.prefix_cache_hit_ratio),
        requests=compute_requests(past, totals),
        cache_dtype=rules.read_cache_dtype(context.sample),
        interval_steps=rules.count_interval_steps(past, context),
        progress=progress,
        saturation=saturation,
        notes=_note_impossible_shares(totals, past.growth),
    )


def _note_impossible_shares(totals: PhaseTotals | None, growth: EngineSample) -> tuple[str, ...]:
    shares = (
        (
            "llm_prefix_cache_hit_ratio",
            totals.prefix_cache_hits if totals else None,
            totals.prefix_cache_queries if totals else None,
        ),
        ("llm_draft_acceptance_ratio", growth.accepted_draft_tokens, growth.draft_tokens),
    )
    return tuple(
        f"{name} would be above 1 and is therefore left out"
        for name, part, whole in shares
        if part is not None and whole is not None and part > whole
    )


def _combine_server_settings(configured: ServerSettings, reported: ServerSettings) -> ServerSettings:
    """The server's settings: configured ones, or else those that the server reports."""
    known = {name: value for name, value in asdict(configured).items() if value is not None}
    return replace(reported, **known)


def _build_engine_snapshot(
    key: EngineKey, analysis: EngineAnalysis, state: PageState, target: Target, now: float
) -> EngineSnapshot:
    costs = combine_model_costs(state.equipment, target.model, key.model_name, analysis.cache_dtype)
    return EngineSnapshot(
        key=key,
        phases=analysis.phases,
        latencies=analysis.latencies,
        load=analysis.load,
        requests=analysis.requests,
        ceiling=compute_ceiling(
            analysis.past,
            analysis.phases,
            analysis.load,
            state.equipment.device,
            costs,
            engines=len(state.engines),
            interval_steps=analysis.interval_steps,
            gpu_share=state.equipment.gpu_share,
        ),
        token_stall_seconds=measure_token_stall(analysis.progress, now),
        state=analysis.saturation.state if analysis.saturation else None,
        asleep=analysis.past.newest.awake == 0,
        objectives=judge_objectives(analysis.latencies, analysis.phases, target.objectives),
    )
