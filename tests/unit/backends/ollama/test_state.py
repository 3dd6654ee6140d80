"""What looks at the inventory tell of models and of who used them."""

from dataclasses import replace
from typing import Any

import pytest

from phasewatch.backends.ollama.inventory import Inventory, LoadedModel, ModelKey
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.scheduling import ProbePace
from phasewatch.backends.ollama.residency import observe_inventory
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelState,
    OllamaState,
    ProbeMeasurement,
    Residency,
    fold_failure,
    fold_late_success,
    fold_success,
    take_over_state,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.hardware.facts import DeviceFacts
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.probes import ProbeRecord
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, stored

PACE = ProbePace(interval=300.0, first_delay=10.0)
KEY: ModelKey = ("a:latest", A)
EMPTY = inventory(disk=(stored(),))
TIMING = ScrapeTiming(100.0, 100.5, WALL)


def looks(*inventories: Inventory, state: OllamaState | None = None, since: float = 0.0, **how: Any) -> OllamaState:
    """The state after looks at seconds 0, 1, 2 and so on."""
    state = state or OllamaState()
    for second, seen in enumerate(inventories):
        state = observe_inventory(state, seen, since + second, PACE, **how)
    return state


def residency(state: OllamaState, key: ModelKey = KEY) -> Residency:
    found = state.models[key].residency
    assert found is not None
    return found


def measured(state: OllamaState, key: ModelKey = KEY, **facts: Any) -> OllamaState:
    """With a measurement, and whatever else is known of a model."""
    model = replace(state.models[key], measurements={RequestKind.SHORT: ProbeMeasurement(1.0, figures())}, **facts)
    return replace(state, models={**state.models, key: model})


def own(state: OllamaState, **facts: Any) -> OllamaState:
    """With what a probe has left behind."""
    model = state.models[KEY]
    return replace(state, models={KEY: replace(model, residency=replace(residency(state), **facts))})


def expiring(seconds: float, **facts: Any) -> Inventory:
    return inventory(loaded(expires_at=WALL + seconds, **facts))


def test_a_model_that_is_there_at_the_first_look_was_not_seen_to_come() -> None:
    state = looks(inventory(loaded()))
    assert residency(state) == Residency(
        witnessed=False, model=loaded(), user_expires_at=WALL + 300, probe_expires_at=None, changed_at=0.0
    )
    assert state.models[KEY].due == PACE.first_delay


def test_a_model_that_comes_later_was_seen_to_come() -> None:
    state = looks(EMPTY, inventory(loaded()))
    assert residency(state).witnessed
    assert state.models[KEY].due == 1.0 + PACE.first_delay


def test_an_expiry_that_moves_is_a_users_request() -> None:
    found = looks(expiring(300), expiring(300), expiring(301.7))
    assert residency(found).user_expires_at == WALL + 301.7
    assert residency(found).changed_at == 2.0
    still = residency(looks(expiring(300), expiring(300)))
    assert (still.user_expires_at, still.changed_at) == (WALL + 300, 0.0)


def test_a_users_request_brings_the_first_probe_forward() -> None:
    assert looks(expiring(300), expiring(301)).models[KEY].due == 1.0 + 3.0


def test_a_users_request_brings_later_probes_forward_but_not_too_close_to_the_last() -> None:
    state = looks(expiring(300))
    for probed_at, due in ((0.0, 150.0), (-140.0, 10.0), (-500.0, 1.0 + 3.0)):
        probed = replace(state, models={KEY: replace(state.models[KEY], due=400.0, probed_at=probed_at)})
        assert observe_inventory(probed, expiring(301), 1.0, PACE).models[KEY].due == due


def test_a_users_request_never_puts_a_probe_off() -> None:
    state = looks(expiring(300))
    soon = replace(state, models={KEY: replace(state.models[KEY], due=2.0, probed_at=0.5)})
    assert observe_inventory(soon, expiring(301), 1.0, PACE).models[KEY].due == 2.0


def test_the_expiry_that_a_probe_has_caused_is_no_users_request() -> None:
    state = own(looks(expiring(300)), probe_expires_at=WALL + 310)
    found = residency(looks(expiring(310), expiring(310), state=state, since=1.0))
    assert (found.user_expires_at, found.changed_at) == (WALL + 300, 0.0)
    assert found.model.expires_at == WALL + 310
    late = residency(looks(expiring(311), state=state, since=1.0))
    assert late.user_expires_at == WALL + 300
    later = residency(looks(expiring(311.1), state=state, since=1.0))
    assert later.user_expires_at == WALL + 311.1


def test_while_a_probe_is_under_way_a_move_is_not_put_down_to_users() -> None:
    found = residency(observe_inventory(looks(expiring(300)), expiring(305), 1.0, PACE, probing=KEY))
    assert (found.user_expires_at, found.model.expires_at) == (WALL + 300, WALL + 305)
    other = residency(observe_inventory(looks(expiring(300)), expiring(305), 1.0, PACE, probing=("b:latest", B)))
    assert other.user_expires_at == WALL + 305


def test_after_a_probe_whose_end_was_not_seen_the_next_move_is_still_its_own() -> None:
    state = own(looks(expiring(300)), unsettled=True)
    first = looks(expiring(312), state=state, since=1.0)
    assert residency(first).user_expires_at == WALL + 300
    assert residency(first).probe_expires_at == WALL + 312
    assert not residency(first).unsettled
    second = looks(expiring(330), state=first, since=2.0)
    assert residency(second).user_expires_at == WALL + 330


def test_a_model_that_leaves_takes_its_measurements_with_it_and_keeps_what_was_learnt() -> None:
    state = measured(
        looks(inventory(loaded())), tokens_per_word=1.4, quarantine="reloads", probe_seconds={RequestKind.SHORT: 2.0}
    )
    gone = observe_inventory(state, EMPTY, 5.0, PACE)
    model = gone.models[KEY]
    assert (model.residency, model.measurements) == (None, {})
    assert (model.tokens_per_word, model.quarantine, model.probe_seconds) == (1.4, "reloads", {RequestKind.SHORT: 2.0})
    back = observe_inventory(gone, expiring(400), 50.0, PACE)
    assert residency(back).witnessed
    assert residency(back).probes == 0
    assert back.models[KEY].due == 50.0 + PACE.first_delay


@pytest.mark.parametrize("facts", [{"context_length": 8192}, {"size": 6e9}])
def test_another_context_or_size_is_another_load(facts: dict[str, Any]) -> None:
    state = measured(looks(inventory(loaded())), failures=3, short_outputs=2)
    found = observe_inventory(state, inventory(loaded(**facts)), 7.0, PACE)
    assert found.models[KEY].measurements == {}
    assert (found.models[KEY].failures, found.models[KEY].short_outputs) == (0, 0)
    assert residency(found).witnessed
    assert residency(found).changed_at == 7.0


def test_the_size_of_an_mlx_runner_changes_without_a_load() -> None:
    mlx = replace(loaded().details, format="safetensors")
    state = measured(looks(inventory(loaded(details=mlx))))
    found = observe_inventory(state, inventory(loaded(details=mlx, size=6e9)), 7.0, PACE)
    assert found.models[KEY].measurements
    assert residency(found).model.size == 6e9


def test_a_model_pulled_anew_while_the_old_one_is_in_memory_is_another_model() -> None:
    both = inventory(loaded(), loaded(digest=B), disk=(stored(digest=B),))
    state = looks(inventory(loaded()), both)
    assert state.models.keys() == {KEY, ("a:latest", B)}
    assert not residency(state).witnessed
    assert residency(state, ("a:latest", B)).witnessed


def test_a_model_that_is_neither_in_memory_nor_on_disk_is_forgotten() -> None:
    state = replace(looks(inventory(loaded())), descriptions={A: ModelDescription(None, ModelCosts())})
    gone = observe_inventory(state, inventory(disk=()), 1.0, PACE)
    assert (gone.models, gone.descriptions) == ({}, {})
    listed = observe_inventory(state, EMPTY, 1.0, PACE)
    assert listed.models.keys() == {KEY}
    assert listed.descriptions.keys() == {A}


def test_while_the_disk_was_not_looked_at_nothing_is_forgotten() -> None:
    assert observe_inventory(looks(inventory(loaded())), Inventory(()), 1.0, PACE).models.keys() == {KEY}


def test_a_model_that_may_be_loaded_has_its_turn_without_being_in_memory() -> None:
    state = looks(EMPTY, EMPTY, loadable=[KEY])
    assert state.models == {KEY: ModelState(due=PACE.first_delay)}


def scraped() -> OllamaState:
    return fold_success(measured(looks(inventory(loaded()))), "0.33.0", TIMING)


def test_a_good_scrape_is_one() -> None:
    state = scraped()
    assert (state.health.up, state.version, state.health.last_success) == (True, "0.33.0", WALL)


def test_a_refused_connection_means_that_the_models_are_gone() -> None:
    state = fold_failure(scraped(), ScrapeError(Reason.CONNECT, "refused"), TIMING)
    assert (state.health.up, state.version) == (False, None)
    assert state.inventory is not None
    assert state.inventory.loaded == ()
    assert (state.models[KEY].residency, state.models[KEY].measurements) == (None, {})
    back = observe_inventory(state, expiring(400), 60.0, PACE)
    assert residency(back).witnessed


@pytest.mark.parametrize("expires_at", [300, 310, 310.5])
def test_a_model_that_was_out_of_sight_and_expires_as_before_was_never_gone(expires_at: float) -> None:
    known = own(looks(expiring(300)), probe_expires_at=WALL + 310)
    lost = fold_failure(known, ScrapeError(Reason.CONNECT, "reset"), TIMING)
    found = residency(observe_inventory(lost, expiring(expires_at), 60.0, PACE))
    assert found.user_expires_at == WALL + 300
    assert not found.witnessed


def test_what_another_monitor_takes_over_is_who_uses_the_models_and_what_is_owed() -> None:
    known = looks(expiring(300))
    given_up = {KEY: replace(known.models[KEY], quarantine="reloads", tokens_per_word=1.4)}
    before = replace(known, models=given_up, device=DeviceFacts(name="L40S"), pause_until=7.0)
    before = replace(before, records={"a:latest": ProbeRecord(probes=3, caused_reloads=1)})
    after = take_over_state(before, None)
    assert (after.device, after.records, after.pause_until) == (DeviceFacts(), {}, 7.0)
    assert after.models[KEY] == replace(given_up[KEY], quarantine=None)
    assert residency(take_over_state(before, KEY)).unsettled


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.CONNECT])
def test_any_other_failure_leaves_the_models_where_they_are(reason: Reason) -> None:
    before = scraped()
    state = fold_failure(before, ScrapeError(reason, "no"), TIMING)
    assert state.health.up is False
    assert state.health.errors[reason] == 1
    assert (state.models, state.inventory, state.version) == (before.models, before.inventory, "0.33.0")


def test_a_failure_before_the_first_look_has_nothing_to_forget() -> None:
    state = fold_failure(OllamaState(), ScrapeError(Reason.CONNECT, "refused"), TIMING)
    assert state.inventory is None


def test_a_server_that_is_late_is_up_and_counted_and_shows_no_models() -> None:
    state = fold_late_success(scraped(), "0.33.0", ScrapeError(Reason.TIMEOUT, "busy"), TIMING)
    assert state.health.up
    assert state.health.errors[Reason.TIMEOUT] == 1
    assert state.inventory is None
    assert state.models[KEY].measurements


def test_after_a_late_scrape_a_model_that_is_still_there_is_the_same_one() -> None:
    late = fold_late_success(scraped(), "0.33.0", ScrapeError(Reason.TIMEOUT, "busy"), TIMING)
    assert observe_inventory(late, inventory(loaded()), 20.0, PACE).models[KEY].measurements
    strange: LoadedModel = loaded("b:latest", B)
    found = observe_inventory(late, inventory(loaded(), strange), 20.0, PACE)
    assert residency(found, ("b:latest", B)).witnessed


def test_a_users_request_does_not_bring_a_failing_probe_forward() -> None:
    state = looks(expiring(300))
    failing = replace(state.models[KEY], failures=2, due=5000.0)
    found = observe_inventory(replace(state, models={KEY: failing}), expiring(400), 10.0, PACE)
    assert found.models[KEY].due == 5000.0


def test_what_was_counted_of_a_model_leaves_with_it() -> None:
    state = replace(looks(expiring(300)), records={"a:latest": ProbeRecord(probes=3)})
    assert observe_inventory(state, inventory(disk=(stored(),)), 1.0, PACE).records
    assert not observe_inventory(state, inventory(disk=()), 1.0, PACE).records
