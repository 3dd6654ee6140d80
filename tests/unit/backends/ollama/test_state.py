"""What scrapes, skipped probes and a change of the configuration make of the state of an Ollama."""

from dataclasses import replace
from typing import Final

from phasewatch.backends.ollama.inventory import ModelKey
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.state import (
    ModelState,
    OllamaState,
    ProbeMeasurement,
    Residency,
    fold_failure,
    fold_late_success,
    fold_success,
    record_skips,
    take_over_state,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.probes import ProbeRecord, SkipReason
from tests.support.ollama_facts import WALL, A, figures, inventory, loaded

KEY: Final[ModelKey] = ("a:latest", A)
TIMING: Final = ScrapeTiming(100.0, 100.5, WALL)
RESIDENCY: Final = Residency(
    witnessed=False, model=loaded(), user_expires_at=WALL + 300, probe_expires_at=None, changed_at=0.0
)
MODEL: Final = ModelState(
    due=10.0, residency=RESIDENCY, measurements={RequestKind.SHORT: ProbeMeasurement(1.0, figures())}
)
SCRAPED: Final = fold_success(
    OllamaState(inventory=inventory(loaded()), observed=True, models={KEY: MODEL}), "0.33.0", TIMING
)


def test_after_a_good_scrape_the_server_is_up_with_its_version() -> None:
    assert (SCRAPED.health.up, SCRAPED.version, SCRAPED.health.last_success) == (True, "0.33.0", WALL)


def test_a_refused_connection_means_that_the_models_are_gone() -> None:
    state = fold_failure(SCRAPED, ScrapeError(Reason.CONNECT, "refused", refused=True), TIMING)
    assert (state.health.up, state.version) == (False, None)
    assert state.inventory is not None
    assert state.inventory.loaded == ()
    assert (state.models[KEY].residency, state.models[KEY].measurements) == (None, {})


def test_any_other_failure_leaves_the_models_as_they_are() -> None:
    for reason in Reason:
        state = fold_failure(SCRAPED, ScrapeError(reason, "no"), TIMING)
        assert state.health.up is False, reason
        assert state.health.errors[reason] == 1, reason
        assert (state.models, state.inventory, state.version) == (SCRAPED.models, SCRAPED.inventory, "0.33.0"), reason


def test_a_failure_before_the_first_observation_leaves_no_inventory() -> None:
    state = fold_failure(OllamaState(), ScrapeError(Reason.CONNECT, "refused", refused=True), TIMING)
    assert state.inventory is None


def test_a_late_scrape_is_counted_and_the_server_up_without_an_inventory() -> None:
    state = fold_late_success(SCRAPED, "0.33.0", ScrapeError(Reason.TIMEOUT, "busy"), TIMING)
    assert state.health.up
    assert state.health.errors[Reason.TIMEOUT] == 1
    assert state.inventory is None
    assert state.models[KEY].measurements


def test_the_next_scraper_takes_over_the_use_of_the_models_and_the_pauses() -> None:
    quarantined = replace(MODEL, quarantine="reloads", tokens_per_word=1.4)
    before = replace(
        SCRAPED,
        models={KEY: quarantined},
        device=DeviceFacts(name="L40S"),
        pause_until=7.0,
        records={"a:latest": ProbeRecord(probes=3, caused_reloads=1)},
    )
    after = take_over_state(before, None)
    assert (after.device, after.records, after.pause_until) == (DeviceFacts(), {}, 7.0)
    assert after.models[KEY] == replace(quarantined, quarantine=None)
    probed = take_over_state(before, KEY).models[KEY].residency
    assert probed is not None
    assert probed.unsettled


def test_a_skip_is_counted_when_its_reason_changes_and_once_an_interval() -> None:
    state = SCRAPED
    for now, reason, count in (
        (0.0, SkipReason.ACTIVE, 1),
        (299.0, SkipReason.ACTIVE, 1),
        (300.0, SkipReason.ACTIVE, 2),
        (301.0, SkipReason.BUDGET, 1),
        (302.0, SkipReason.ACTIVE, 3),
    ):
        state = record_skips(state, [(KEY, reason)], now, 300.0)
        assert state.records["a:latest"].skipped[reason] == count, now


def test_a_skip_of_an_unknown_model_is_not_counted() -> None:
    assert record_skips(OllamaState(), [(KEY, SkipReason.UNLOADED)], 0.0, 300.0) == OllamaState()
