"""The state of a target: what a scrape changes, and what a failure clears."""

from dataclasses import fields, replace
from typing import Any

import pytest

from phasewatch.analysis import window
from phasewatch.analysis.phases import Phases
from phasewatch.analysis.requests import Requests
from phasewatch.analysis.samples import EngineSample
from phasewatch.analysis.saturation import Saturation, advance_saturation
from phasewatch.analysis.totals import PhaseTotals
from phasewatch.analysis.window import EngineHistory, subtract_counters
from phasewatch.backends import page_state
from phasewatch.backends.page_state import PageContext, PageState, build_snapshot, fold_failure, fold_page, learn_facts
from phasewatch.backends.prometheus_page import PageReader
from phasewatch.backends.vllm.metric_names import METRIC_NAMES
from phasewatch.backends.vllm.totals import PAGE_RULES
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.config.settings import ServerSettings
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.target import ServerFacts
from tests.support.pages import bodies, page
from tests.support.targets import new_target

TARGET = new_target("chat", "vllm", "http://a.invalid")
PAGES = [PageReader(METRIC_NAMES).read(body) for _, body in list(bodies("batch-ramp"))[10:14]]


def timing(time: float) -> ScrapeTiming:
    return ScrapeTiming(time - 0.01, time, 1.7e9 + time)


def fold_pages(count: int) -> PageState:
    state = PageState(facts=ServerFacts(version="0.32.0"))
    for index in range(count):
        state = fold_page(state, PAGES[index], timing(float(index)), TARGET, PAGE_RULES)
    return state


def fail(state: PageState, reason: Reason, time: float = 2.0, *, refused: bool = False) -> PageState:
    return fold_failure(state, ScrapeError(reason, "why", refused=refused), timing(time))


def test_a_first_page_has_gauges_and_no_rates() -> None:
    (engine,) = build_snapshot(fold_pages(1), TARGET).engines
    assert engine.load.requests_running is not None
    assert engine.phases.decode_throughput_tokens_per_second is None


def test_the_second_page_has_rates() -> None:
    (engine,) = build_snapshot(fold_pages(2), TARGET).engines
    assert engine.phases.decode_throughput_tokens_per_second is not None


def test_a_target_that_is_down_has_neither_engines_nor_facts() -> None:
    for reason in Reason:
        snapshot = build_snapshot(fail(fold_pages(2), reason), TARGET)
        assert (snapshot.up, snapshot.engines, snapshot.facts) == (False, (), ServerFacts()), reason
        assert snapshot.last_success == 1.7e9 + 1, reason
        assert snapshot.errors[reason] == 1, reason


def test_a_window_covers_the_gap_after_any_failure_but_a_refused_connection() -> None:
    for reason in Reason:
        state = fold_page(fail(fold_pages(2), reason), PAGES[3], timing(3.0), TARGET, PAGE_RULES)
        assert len(state.window.pages) == 3, reason
        assert build_snapshot(state, TARGET).facts.version == "0.32.0", reason


def test_a_stall_goes_on_across_broken_connections() -> None:
    still = PageReader(METRIC_NAMES).read(page({"generation_tokens_total": 7, "num_requests_running": 1}))
    state = PageState()
    for second in range(0, 200, 5):
        at = timing(float(second))
        broken = second % 20 == 15
        state = fail(state, Reason.CONNECT, second) if broken else fold_page(state, still, at, TARGET, PAGE_RULES)
        stalls = [engine.token_stall_seconds for engine in build_snapshot(state, TARGET).engines]
        assert stalls == ([] if broken else [second or None]), second


def test_a_restart_behind_a_broken_connection_still_clears_window_and_facts() -> None:
    fresh = PageReader(METRIC_NAMES).read(page({"generation_tokens_total": 1}, labels='engine="0",model_name="tiny"'))
    state = fold_page(fail(fold_pages(2), Reason.CONNECT), fresh, timing(3.0), TARGET, PAGE_RULES)
    assert len(state.window.pages) == 1
    assert build_snapshot(state, TARGET).facts == ServerFacts()


def test_a_refused_connection_clears_window_and_facts() -> None:
    state = fold_page(fail(fold_pages(2), Reason.CONNECT, refused=True), PAGES[3], timing(3.0), TARGET, PAGE_RULES)
    assert len(state.window.pages) == 1
    assert build_snapshot(state, TARGET).facts == ServerFacts()


def test_trouble_counts_its_scrapes_and_ends_with_a_page() -> None:
    state = fail(fail(fold_pages(1), Reason.TIMEOUT, 2.0), Reason.HTTP_STATUS, 3.0)
    trouble = state.health.trouble
    assert trouble is not None
    assert (trouble.since, trouble.failures, trouble.reason) == (2.0, 2, Reason.HTTP_STATUS)
    assert fold_page(state, PAGES[1], timing(4.0), TARGET, PAGE_RULES).health.trouble is None


def test_a_restart_between_two_pages_clears_progress_and_facts() -> None:
    fresh = PageReader(METRIC_NAMES).read(
        page({"generation_tokens_total": 1, "num_requests_running": 1}, labels='engine="0",model_name="tiny"')
    )
    state = fold_page(fold_pages(2), fresh, timing(2.0), TARGET, PAGE_RULES)
    (engine,) = build_snapshot(state, TARGET).engines
    assert engine.token_stall_seconds is None
    assert state.facts == ServerFacts()


def test_up_is_unknown_before_the_first_scrape() -> None:
    assert build_snapshot(PageState(), TARGET).up is None


def test_a_stall_continues_through_a_gap_that_empties_the_window() -> None:
    still = page({"generation_tokens_total": 7, "num_requests_running": 1})
    state, reader = PageState(facts=ServerFacts(version="0.32.0")), PageReader(METRIC_NAMES)
    for time in (0.0, 1.0, 200.0):
        state = fold_page(state, reader.read(still), timing(time), TARGET, PAGE_RULES)
    (engine,) = build_snapshot(state, TARGET).engines
    assert engine.token_stall_seconds == 200
    assert build_snapshot(state, TARGET).facts.version == "0.32.0"


def test_the_increases_of_each_span_are_computed_once_per_scrape_and_not_for_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subtracted: list[tuple[EngineSample, EngineSample]] = []
    measured: list[EngineHistory] = []

    def subtract(first: EngineSample, last: EngineSample, corrupt: frozenset[str] = frozenset()) -> EngineSample:
        subtracted.append((first, last))
        return subtract_counters(first, last, corrupt)

    def measure(past: EngineHistory, context: PageContext) -> PhaseTotals | None:
        measured.append(past)
        return PAGE_RULES.measure_totals(past, context)

    monkeypatch.setattr(window, "subtract_counters", subtract)
    before = fold_pages(3)
    subtracted.clear()
    state = fold_page(before, PAGES[3], timing(3.0), TARGET, replace(PAGE_RULES, measure_totals=measure))
    spans = [(past.samples[0], past.samples[-1]) for past in measured]
    assert len(measured) == 2  # the window, and the memory of the saturation state
    assert subtracted == spans
    build_snapshot(state, TARGET)
    assert (len(measured), len(subtracted)) == (2, 2)


def test_what_depends_on_the_version_is_measured_as_soon_as_it_is_known() -> None:
    def measure(past: EngineHistory, context: PageContext) -> PhaseTotals | None:
        return None if context.version is None else PAGE_RULES.measure_totals(past, context)

    rules, state = replace(PAGE_RULES, measure_totals=measure), PageState()
    for index in range(3):
        state = fold_page(state, PAGES[index], timing(float(index)), TARGET, rules)
    (engine,) = build_snapshot(state, TARGET).engines
    assert engine.phases == Phases()
    learned = learn_facts(state, ServerFacts(version="0.32.0"), TARGET, rules)
    (engine,) = build_snapshot(learned, TARGET).engines
    assert engine.phases == next(iter(fold_pages(3).engines.values())).phases != Phases()
    assert learned.facts.version == "0.32.0"
    for key, analysis in learned.engines.items():
        before = replace(state.engines[key], phases=Phases(), requests=Requests())
        assert replace(analysis, phases=Phases(), requests=Requests()) == before


def test_facts_that_come_before_the_first_page_are_kept_for_it() -> None:
    assert learn_facts(PageState(), ServerFacts(version="0.32.0"), TARGET, PAGE_RULES).facts.version == "0.32.0"


def test_every_configured_setting_of_the_server_precedes_the_reported_one(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[ServerSettings] = []

    def record(*arguments: Any, server: ServerSettings, **others: Any) -> Saturation | None:
        used.append(server)
        return advance_saturation(*arguments, server=server, **others)

    monkeypatch.setattr(page_state, "advance_saturation", record)
    names = [setting.name for setting in fields(ServerSettings)]
    values: dict[str, Any] = dict.fromkeys(names, 3)
    reported = ServerSettings(**values)
    state = PageState(facts=ServerFacts(version="0.32.0", server=reported))
    for name in names:
        changed: dict[str, Any] = {name: 7}
        target = replace(TARGET, server=ServerSettings(**changed))
        fold_page(state, PAGES[0], timing(0.0), target, PAGE_RULES)
        assert used[-1] == replace(reported, **changed), name
    fold_page(state, PAGES[0], timing(0.0), TARGET, PAGE_RULES)
    assert used[-1] == reported
