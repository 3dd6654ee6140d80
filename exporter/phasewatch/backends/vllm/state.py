"""The state of a vLLM target, and how each scrape changes it: the pure middle that `serve` and `replay` share.

A scrape is either a page or a failure. Folding one into a `TargetState` gives the next state; `snapshot` turns a state
into what /metrics shows. Nothing here reads a clock or a network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phasewatch.analysis.ceiling import compute_ceiling
from phasewatch.analysis.latency import compute_latencies
from phasewatch.analysis.phases import Phases, compute_phases, divide, has_one_api_server
from phasewatch.analysis.queue import (
    Progress,
    advance_progress,
    compute_mean_prompt_tokens,
    measure_load,
    measure_token_stall,
    read_kv_cache_capacity,
)
from phasewatch.analysis.samples import EngineKey, Page
from phasewatch.analysis.saturation import Saturation, select_recent
from phasewatch.analysis.saturation import advance_saturation as saturation_advance
from phasewatch.analysis.window import (
    EngineHistory,
    Increase,
    PageWindow,
    append_page,
    compute_increase,
    extract_history,
)
from phasewatch.backends.equipment import Equipment, combine_model_costs
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.resolve import Limits, Target
from phasewatch.snapshot.health import Health, ScrapeTiming, record_failure, record_success
from phasewatch.snapshot.target import EngineSnapshot, ServerFacts, TargetSnapshot, create_snapshot


@dataclass(frozen=True, slots=True)
class TargetState:
    """Everything known of a target. What it runs on outlives a restart; what its models cost is asked anew."""

    health: Health = field(default_factory=Health)
    facts: ServerFacts = field(default_factory=ServerFacts)
    window: PageWindow = field(default_factory=PageWindow)
    progress: Mapping[EngineKey, Progress | None] = field(default_factory=dict)
    saturation: Mapping[EngineKey, Saturation] = field(default_factory=dict)
    equipment: Equipment = field(default_factory=Equipment)


def fold_page(state: TargetState, page: Page, timing: ScrapeTiming, target: Target) -> TargetState:
    """The state after a scrape that gave a page. After a restart of the server nothing older is kept."""
    window = append_page(state.window, page, timing.done, target.window)
    restarted = window.restarts != state.window.restarts
    known = TargetState() if restarted else state
    next_state = replace(
        state,
        health=record_success(state.health, timing),
        facts=known.facts,
        equipment=_after_restart(state.equipment) if restarted else state.equipment,
        window=window,
        progress={
            key: advance_progress(known.progress.get(key), sample, timing.done) for key, sample in page.engines.items()
        },
    )
    return replace(
        next_state,
        saturation={key: _saturation(known.saturation.get(key), next_state, target, key) for key in page.engines},
    )


def fold_failure(state: TargetState, error: ScrapeError, timing: ScrapeTiming) -> TargetState:
    """The state after a scrape that failed.

    Counters outlive a scrape that came too late, so the window is kept; it covers the gap. A refused connection means
    that the server's process is gone: whatever comes after it starts anew.
    """
    known = TargetState() if error.reason is Reason.CONNECT else state
    return replace(
        state,
        health=record_failure(state.health, error, timing),
        facts=known.facts,
        equipment=_after_restart(state.equipment) if known is not state else state.equipment,
        window=known.window,
        progress=known.progress,
        saturation=known.saturation,
    )


def _after_restart(equipment: Equipment) -> Equipment:
    return replace(equipment, models={})


def build_snapshot(state: TargetState, target: Target) -> TargetSnapshot:
    """What is to be shown of a target. While it is down nothing about its engines is."""
    shown = create_snapshot(target, state.health)
    return replace(shown, facts=state.facts, engines=_readings(state, target)) if shown.up else shown


def _readings(state: TargetState, target: Target) -> tuple[EngineSnapshot, ...]:
    newest = state.window.snapshots[-1]
    return tuple(_reading(state, target, key, newest.page, newest.time) for key in newest.page.engines)


def _reading(state: TargetState, target: Target, key: EngineKey, page: Page, now: float) -> EngineSnapshot:
    past = extract_history(state.window, key)
    growth = compute_increase(past)
    sample, engines = page.engines[key], len(page.engines)
    one_api_server = has_one_api_server(page, sample, target.api_servers)
    both_phases = compute_phases(past, growth, one_api_server=one_api_server, version=state.facts.version)
    held = measure_load(past, growth, alone=engines == 1)
    return EngineSnapshot(
        key=key,
        phases=both_phases,
        latencies=compute_latencies(growth),
        load=held,
        ceiling=compute_ceiling(
            past,
            growth,
            both_phases,
            held,
            state.equipment.device,
            combine_model_costs(state.equipment, target.model, key.model_name, sample.cache_config.get("cache_dtype")),
            engines=engines,
            one_api_server=one_api_server,
        ),
        token_stall_seconds=measure_token_stall(state.progress.get(key), now),
        state=state.saturation[key].state,
        asleep=sample.awake == 0,
    )


def _saturation(before: Saturation | None, state: TargetState, target: Target, key: EngineKey) -> Saturation:
    whole = extract_history(state.window, key)
    past = select_recent(whole, target.thresholds.memory)
    page = state.window.snapshots[-1].page
    prompt = compute_mean_prompt_tokens(compute_increase(whole), past.samples[-1])
    return saturation_advance(
        before,
        past,
        _phases(state, target, key, past, compute_increase(past)),
        prompt_share=divide(prompt, read_kv_cache_capacity(past.samples[-1], alone=len(page.engines) == 1)),
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


def _phases(state: TargetState, target: Target, key: EngineKey, past: EngineHistory, growth: Increase | None) -> Phases:
    page = state.window.snapshots[-1].page
    one_api_server = has_one_api_server(page, page.engines[key], target.api_servers)
    return compute_phases(past, growth, one_api_server=one_api_server, version=state.facts.version)
