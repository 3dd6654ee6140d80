"""The state of one llama-server process, and how each scrape changes it. Shared by targets, by the children of an
Ollama, and by `replay`. Pure.

Each process has a window of its own: a server of several models (a router, an Ollama) restarts them one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from phasewatch.analysis.progress import measure_token_stall
from phasewatch.analysis.samples import EngineKey, EngineSample, Page
from phasewatch.analysis.saturation import SaturationState
from phasewatch.analysis.window import has_restarted
from phasewatch.backends.equipment import Equipment
from phasewatch.backends.llamacpp.facts import ProcessFacts
from phasewatch.backends.llamacpp.quirks import read_kv_cache_size
from phasewatch.backends.llamacpp.reading import Reading
from phasewatch.backends.llamacpp.slots import Slot
from phasewatch.backends.llamacpp.totals import PAGE_RULES
from phasewatch.backends.llamacpp.tracking import Tracking, advance_tracking
from phasewatch.backends.page_state import PageState, build_snapshot, fold_page
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.base.optional import divide
from phasewatch.config.settings import Target
from phasewatch.snapshot.engine import EngineSnapshot, MeasurementSource
from phasewatch.snapshot.health import ScrapeTiming

BUSY_SECONDS: Final = 5.0
"""Seconds for which a process counts as busy after its last request, for the pace of its reads."""

SILENCE_SECONDS: Final = 60.0
"""Seconds without a page after which a server that was decoding is stuck, although /health answers: between two steps
of decode every build answers. While it reads a prompt, builds before August 2026 and forks are silent for minutes."""

LONGEST_PROMPT_SECONDS: Final = 3600.0
"""Seconds for which a server that was reading a prompt is taken to read it although nothing answers, not even /health:
a fork on a CPU took 30 to 60 minutes (ik_llama.cpp#1210)."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of one process. A restart clears all but the equipment.

    Attributes:
        facts: what it says about itself.
        pages: its window, as pages with the counters of `tracking`, and their analysis.
        tracking: its requests at the newest full read; None before the first.
        asleep: whether it slept at the newest scrape.
        resting: whether the newest scrape left it alone.
        read_at: monotonic time of the newest full read; None before the first.
        failure: why the newest scrape gave nothing; None if it did.
        busy_at: monotonic time of the newest read that saw a busy slot; None before the first.
        own_caches: whether its slots have been seen to hold more than one context together.
    """

    facts: ProcessFacts = field(default_factory=ProcessFacts)
    pages: PageState = field(default_factory=PageState)
    tracking: Tracking | None = None
    asleep: bool = False
    resting: bool = False
    read_at: float | None = None
    failure: Reason | None = None
    busy_at: float | None = None
    own_caches: bool = False

    @property
    def key(self) -> EngineKey:
        """The labels of its figures."""
        return EngineKey(self.facts.model, None)


def fold_reading(state: ProcessState, reading: Reading, timing: ScrapeTiming, target: Target) -> ProcessState:
    """The state after a scrape that was answered."""
    state = replace(state, asleep=reading.asleep, resting=reading.resting, failure=None)
    if reading.resting:
        return state
    if reading.asleep:
        return _fold_sleep(state, timing, target)
    if state.tracking is not None and _has_restarted(state.tracking.page, reading.page):
        state = forget(state)
    own_caches = state.own_caches or _exceed_one_context(reading.slots)
    tracking = advance_tracking(state.tracking, reading.page, reading.slots, timing.done)
    busy_at = _find_busy(state, reading.slots, timing.done)
    state = replace(state, tracking=tracking, read_at=timing.done, own_caches=own_caches, busy_at=busy_at)
    return _append(state, tracking.sample, timing, target)


def fold_slots(state: ProcessState, slots: tuple[Slot, ...], time: float) -> ProcessState:
    """The state after the slots alone were read between two scrapes, of a process without a page of metrics. Only the
    tracking moves on: the window gets its next page at the next scrape.
    """
    tracking = advance_tracking(state.tracking, None, slots, time)
    own_caches = state.own_caches or _exceed_one_context(slots)
    return replace(state, tracking=tracking, own_caches=own_caches, busy_at=_find_busy(state, slots, time))


def fold_failure(state: ProcessState, error: ScrapeError) -> ProcessState:
    """The state after a scrape that gave nothing. Unless the process has ended, the window is kept and will cover the
    gap.
    """
    return replace(forget(state) if error.refused else state, asleep=False, resting=False, failure=error.reason)


def forget(state: ProcessState) -> ProcessState:
    """The state of another process in the place of this one."""
    return ProcessState(facts=state.facts, pages=PageState(equipment=state.pages.equipment))


def rename(state: ProcessState, model: str) -> ProcessState:
    """The state with another name for the model. Its figures begin anew under that name."""
    facts = replace(state.facts, model=model)
    return replace(state, facts=facts, pages=PageState(equipment=state.pages.equipment))


def is_another_process(before: ProcessState, after: ProcessState) -> bool:
    """Whether a reading came from another process than the one before."""
    return (
        before.tracking is not None
        and after.tracking is not None
        and _has_restarted(before.tracking.page, after.tracking.page)
    )


def is_idle(before: ProcessState, after: ProcessState) -> bool:
    """Whether a full read saw no request, and none had come and gone since the read before."""
    tracking = after.tracking
    if tracking is None or before.tracking is None:
        return False
    sample = tracking.sample
    if sample.requests_running or sample.requests_waiting:
        return False
    progress = _get_moved_at(after)
    return progress is not None and progress < tracking.time


def needs_frequent_reads(state: ProcessState, now: float) -> bool:
    """Whether the slots are all that a process shows, and one of them was busy a moment ago: then they are read several
    times a second, since what a request does after it was last seen is lost. Reads that went back to their slow pace
    with each pause between two requests would miss the beginning of every one, and count too few.
    """
    left_alone = state.failure is not None or state.asleep or state.resting
    if state.tracking is None or state.tracking.page != EngineSample() or left_alone or state.busy_at is None:
        return False
    return now - state.busy_at < BUSY_SECONDS


def is_stuck(state: ProcessState, now: float) -> bool:
    """Whether a process that gives no page in time was decoding at its last reading, too long ago for any step."""
    if state.failure is not Reason.TIMEOUT or state.tracking is None or state.read_at is None:
        return False
    sample = state.tracking.sample
    decoding = bool(sample.requests_running) and not sample.requests_prefilling
    return decoding and now - state.read_at >= SILENCE_SECONDS


def excuses_silence(state: ProcessState, now: float, *, alive: bool) -> bool:
    """Whether a scrape that got no page in time is no failure of the server.

    A page can stand behind the requests that it measures, for seconds, and /health with it: they hold the threads that
    would answer. So for a minute a server that was working is taken to work. After that its last reading must explain
    the silence: by a prompt at work, or, as a state of its own and only if /health answers, by a stop in the middle of
    decode.

    Args:
        state: the state after that scrape.
        now: monotonic time.
        alive: whether /health answers.
    """
    if state.read_at is None or state.tracking is None:
        return False
    sample, silence = state.tracking.sample, now - state.read_at
    if silence < SILENCE_SECONDS:
        return alive or bool(sample.requests_running)
    if sample.requests_prefilling:
        return alive or silence < LONGEST_PROMPT_SECONDS
    return alive and is_stuck(state, now)


def build_engines(state: ProcessState, target: Target, now: float) -> tuple[EngineSnapshot, ...]:
    """The engine of a process, if there is one.

    There is none before the first page, and none while the process gives no page or is left alone: what it does then is
    not known. A process that is stuck has nothing but its stall and its state.
    """
    if is_stuck(state, now):
        analysis = state.pages.engines.get(state.key)
        stall = measure_token_stall(analysis.progress, now) if analysis else None
        return (EngineSnapshot(state.key, token_stall_seconds=stall, state=SaturationState.STUCK),)
    if state.failure is not None or state.resting or state.pages.window.newest is None:
        return ()
    engines = build_snapshot(state.pages, target).engines
    return tuple(replace(engine, measurement_source=MeasurementSource.TRAFFIC) for engine in engines)


def equip(state: ProcessState, equipment: Equipment) -> ProcessState:
    """The state with other devices or costs of the model."""
    return replace(state, pages=replace(state.pages, equipment=equipment))


def _fold_sleep(state: ProcessState, timing: ScrapeTiming, target: Target) -> ProcessState:
    """A sleeping server has no requests, and its counters stay as they were; its slots forget theirs (b10434)."""
    if state.tracking is None:
        return state
    asleep = replace(
        state.tracking.sample,
        requests_running=0.0,
        requests_prefilling=None if state.tracking.sample.requests_prefilling is None else 0.0,
        requests_waiting=None if state.tracking.sample.requests_waiting is None else 0.0,
        kv_cache_tokens=None if state.tracking.sample.kv_cache_tokens is None else 0.0,
        awake=0.0,
    )
    tracking = Tracking(timing.done, state.tracking.page, asleep, speed=state.tracking.speed)
    return _append(replace(state, tracking=tracking), asleep, timing, target)


def _append(state: ProcessState, sample: EngineSample, timing: ScrapeTiming, target: Target) -> ProcessState:
    waiting = None if state.facts.queues_elsewhere else sample.requests_waiting
    sample = replace(sample, requests_waiting=waiting, cache_config=_describe_cache(state))
    size = read_kv_cache_size(sample)
    if sample.kv_cache_usage is None and size is not None:
        sample = replace(sample, kv_cache_usage=divide(sample.kv_cache_tokens, size.capacity))
    page = Page(process_start=None, openmetrics=False, engines={state.key: sample})
    pages = replace(state.pages, facts=state.facts.describe_server())
    folded = fold_page(pages, page, timing, target, PAGE_RULES)  # a restart clears what is known of the server
    return replace(state, pages=replace(folded, facts=pages.facts, equipment=pages.equipment))


def _describe_cache(state: ProcessState) -> Mapping[str, str]:
    """The facts about the KV cache that `quirks.read_kv_cache_size` needs, as labels."""
    props = state.facts.props
    unified = False if state.own_caches else state.facts.kv_unified
    labels = {
        "n_ctx": None if props.context is None else str(props.context),
        "slots": None if props.slots is None else str(props.slots),
        "kv_unified": None if unified is None else str(unified).lower(),
    }
    return {name: value for name, value in labels.items() if value is not None}


def _find_busy(state: ProcessState, slots: tuple[Slot, ...] | None, time: float) -> float | None:
    """When a slot was last seen busy."""
    return time if any(slot.busy for slot in slots or ()) else state.busy_at


def _exceed_one_context(slots: tuple[Slot, ...] | None) -> bool:
    """Whether the requests hold more tokens than one context has: then each slot has a cache of its own."""
    decoding = [slot for slot in slots or () if slot.decoding]
    held = sum(slot.held or 0 for slot in decoding)
    return any(slot.context is not None and held > slot.context for slot in decoding)


def _has_restarted(before: EngineSample, after: EngineSample | None) -> bool:
    if after is None:
        return False
    key = EngineKey("", None)
    pages = [Page(process_start=None, openmetrics=False, engines={key: sample}) for sample in (before, after)]
    return has_restarted(*pages)


def _get_moved_at(state: ProcessState) -> float | None:
    analysis = state.pages.engines.get(state.key)
    return analysis.progress.moved_at if analysis and analysis.progress else None
