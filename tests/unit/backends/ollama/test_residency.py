"""What observations of the inventory show of models and of their users."""

from dataclasses import replace
from typing import Any

from phasewatch.backends.ollama.inventory import Inventory, ModelKey
from phasewatch.backends.ollama.probes.request import RequestKind
from phasewatch.backends.ollama.probes.scheduling import ProbePace
from phasewatch.backends.ollama.residency import end_traffic, observe_inventory, observe_traffic
from phasewatch.backends.ollama.state import (
    ModelDescription,
    ModelState,
    OllamaState,
    ProbeMeasurement,
    Residency,
    fold_failure,
    fold_late_success,
)
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.models.costs import ModelCosts
from phasewatch.snapshot.health import ScrapeTiming
from phasewatch.snapshot.probes import ProbeRecord
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, stored

PACE = ProbePace(interval=300.0, first_delay=10.0)
QUIET = 3.0
"""Seconds without a sign of users at this pace."""
LEAST = 150.0
"""Seconds between two probes at this pace where a user brings the second forward."""
KEY: ModelKey = ("a:latest", A)
NEWER: ModelKey = ("a:latest", B)
EMPTY = inventory(disk=(stored(),))
TIMING = ScrapeTiming(100.0, 100.5, WALL)
REFUSAL = ScrapeError(Reason.CONNECT, "refused", refused=True)


def observe(*inventories: Inventory, state: OllamaState | None = None, since: float = 0.0, **how: Any) -> OllamaState:
    """The state after observations one second apart."""
    state = state or OllamaState()
    for second, observed in enumerate(inventories):
        state = observe_inventory(state, observed, since + second, PACE, **how)
    return state


def residency_of(state: OllamaState, key: ModelKey = KEY) -> Residency:
    residency = state.models[key].residency
    assert residency is not None
    return residency


def change_model(state: OllamaState, **facts: Any) -> OllamaState:
    return replace(state, models={**state.models, KEY: replace(state.models[KEY], **facts)})


def change_residency(state: OllamaState, **facts: Any) -> OllamaState:
    return change_model(state, residency=replace(residency_of(state), **facts))


def measured(state: OllamaState, **facts: Any) -> OllamaState:
    """The state with a measurement, and other facts, of the model."""
    return change_model(state, measurements={RequestKind.SHORT: ProbeMeasurement(1.0, figures())}, **facts)


def expiring(seconds: float, **facts: Any) -> Inventory:
    return inventory(loaded(expires_at=WALL + seconds, **facts))


def test_the_expiry_of_a_model_in_the_first_observation_counts_for_nothing() -> None:
    """A probe before a restart of the exporter, or that of another exporter, may have caused it."""
    state = observe(inventory(loaded()))
    assert residency_of(state) == Residency(
        witnessed=False, model=loaded(), user_expires_at=None, probe_expires_at=None, changed_at=0.0
    )
    assert residency_of(observe(inventory(loaded()), state=state, since=60.0)).user_expires_at is None
    assert state.models[KEY].due == PACE.first_delay


def test_the_load_of_a_model_that_appears_later_was_witnessed() -> None:
    state = observe(EMPTY, inventory(loaded()))
    assert residency_of(state).witnessed
    assert state.models[KEY].due == 1.0 + PACE.first_delay


def test_an_expiry_that_moves_is_a_users_request() -> None:
    moved = residency_of(observe(expiring(300), expiring(300), expiring(301.7)))
    assert (moved.user_expires_at, moved.changed_at) == (WALL + 301.7, 2.0)
    unmoved = residency_of(observe(EMPTY, expiring(300), expiring(300)))
    assert (unmoved.user_expires_at, unmoved.changed_at) == (WALL + 300, 1.0)


def test_a_users_request_brings_the_first_probe_forward() -> None:
    assert observe(expiring(300), expiring(301)).models[KEY].due == 1.0 + QUIET


def test_a_users_request_brings_later_probes_forward_but_not_too_close_to_the_last() -> None:
    state = observe(expiring(300))
    for probed_at, due in ((0.0, LEAST), (-140.0, 10.0), (-500.0, 1.0 + QUIET)):
        probed = change_model(state, due=400.0, probed_at=probed_at)
        assert observe_inventory(probed, expiring(301), 1.0, PACE).models[KEY].due == due, probed_at


def test_a_users_request_never_delays_a_probe() -> None:
    soon = change_model(observe(expiring(300)), due=2.0, probed_at=0.5)
    assert observe_inventory(soon, expiring(301), 1.0, PACE).models[KEY].due == 2.0


def test_a_users_request_does_not_bring_a_failing_probe_forward() -> None:
    failing = change_model(observe(expiring(300)), failures=2, due=5000.0)
    assert observe_inventory(failing, expiring(400), 10.0, PACE).models[KEY].due == 5000.0


def test_the_expiry_that_a_probe_caused_is_no_users_request() -> None:
    state = change_residency(observe(EMPTY, expiring(300)), probe_expires_at=WALL + 310)
    own = residency_of(observe(expiring(310), expiring(310), state=state, since=2.0))
    assert (own.user_expires_at, own.changed_at) == (WALL + 300, 1.0)
    assert own.model.expires_at == WALL + 310
    near = residency_of(observe(expiring(311), state=state, since=1.0))
    assert near.user_expires_at == WALL + 300
    beyond = residency_of(observe(expiring(311.1), state=state, since=1.0))
    assert beyond.user_expires_at == WALL + 311.1


def test_during_a_probe_of_the_model_a_moving_expiry_is_no_users_request() -> None:
    state = observe(EMPTY, expiring(300))
    own = residency_of(observe_inventory(state, expiring(305), 2.0, PACE, probing=KEY))
    assert (own.user_expires_at, own.model.expires_at) == (WALL + 300, WALL + 305)
    other = residency_of(observe_inventory(state, expiring(305), 2.0, PACE, probing=("b:latest", B)))
    assert other.user_expires_at == WALL + 305


def test_after_a_probe_whose_end_was_not_observed_the_next_move_is_the_probes() -> None:
    state = change_residency(observe(EMPTY, expiring(300)), unsettled=True)
    first = observe(expiring(312), state=state, since=1.0)
    assert residency_of(first).user_expires_at == WALL + 300
    assert residency_of(first).probe_expires_at == WALL + 312
    assert not residency_of(first).unsettled
    second = observe(expiring(330), state=first, since=2.0)
    assert residency_of(second).user_expires_at == WALL + 330


def test_an_unloaded_model_loses_its_measurements_and_keeps_what_outlives_a_load() -> None:
    state = measured(
        observe(inventory(loaded())), tokens_per_word=1.4, quarantine="reloads", probe_seconds={RequestKind.SHORT: 2.0}
    )
    unloaded = observe_inventory(state, EMPTY, 5.0, PACE)
    model = unloaded.models[KEY]
    assert (model.residency, model.measurements) == (None, {})
    assert (model.tokens_per_word, model.quarantine, model.probe_seconds) == (
        1.4,
        "reloads",
        {RequestKind.SHORT: 2.0},
    )
    back = observe_inventory(unloaded, expiring(400), 50.0, PACE)
    assert residency_of(back).witnessed
    assert residency_of(back).probes == 0
    assert back.models[KEY].due == 50.0 + PACE.first_delay


def test_another_context_or_size_is_another_load() -> None:
    changes: list[dict[str, Any]] = [{"context_length": 8192}, {"size": 6e9}]
    for change in changes:
        state = measured(observe(inventory(loaded())), failures=3, short_outputs=2)
        later = observe_inventory(state, inventory(loaded(**change)), 7.0, PACE)
        assert later.models[KEY].measurements == {}, change
        assert (later.models[KEY].failures, later.models[KEY].short_outputs) == (0, 0), change
        assert residency_of(later).witnessed, change
        assert residency_of(later).changed_at == 7.0, change


def test_the_size_of_an_mlx_runner_changes_without_a_load() -> None:
    mlx = replace(loaded().details, format="safetensors")
    state = measured(observe(inventory(loaded(details=mlx))))
    later = observe_inventory(state, inventory(loaded(details=mlx, size=6e9)), 7.0, PACE)
    assert later.models[KEY].measurements
    assert residency_of(later).model.size == 6e9


def test_a_model_pulled_again_while_the_old_one_is_in_memory_is_another_model() -> None:
    both = inventory(loaded(), loaded(digest=B), disk=(stored(digest=B),))
    state = observe(inventory(loaded()), both)
    assert state.models.keys() == {KEY, NEWER}
    assert not residency_of(state).witnessed
    assert residency_of(state, NEWER).witnessed


def test_a_model_neither_in_memory_nor_on_disk_is_forgotten() -> None:
    state = replace(observe(inventory(loaded())), descriptions={A: ModelDescription(None, ModelCosts())})
    removed = observe_inventory(state, inventory(disk=()), 1.0, PACE)
    assert (removed.models, removed.descriptions) == ({}, {})
    unloaded = observe_inventory(state, EMPTY, 1.0, PACE)
    assert unloaded.models.keys() == {KEY}
    assert unloaded.descriptions.keys() == {A}


def test_nothing_is_forgotten_while_the_models_on_disk_are_unknown() -> None:
    assert observe_inventory(observe(inventory(loaded())), Inventory(()), 1.0, PACE).models.keys() == {KEY}


def test_the_counters_of_a_model_leave_with_it() -> None:
    state = replace(observe(expiring(300)), records={"a:latest": ProbeRecord(probes=3)})
    assert observe_inventory(state, inventory(disk=(stored(),)), 1.0, PACE).records
    assert not observe_inventory(state, inventory(disk=()), 1.0, PACE).records


def test_a_loadable_model_is_due_without_being_in_memory() -> None:
    state = observe(EMPTY, EMPTY, loadable=[KEY])
    assert state.models == {KEY: ModelState(due=PACE.first_delay)}


def test_after_a_refused_connection_a_model_was_loaded_again() -> None:
    lost = fold_failure(measured(observe(inventory(loaded()))), REFUSAL, TIMING)
    back = observe_inventory(lost, expiring(400), 60.0, PACE)
    assert residency_of(back).witnessed


def test_a_model_that_reappears_with_its_old_expiry_was_never_unloaded() -> None:
    for known, user_expires_at in ((observe(expiring(300)), None), (observe(EMPTY, expiring(300)), WALL + 300)):
        lost = fold_failure(change_residency(known, probe_expires_at=WALL + 310), REFUSAL, TIMING)
        for expires_in in (300, 310, 310.5):
            back = residency_of(observe_inventory(lost, expiring(expires_in), 60.0, PACE))
            assert back.user_expires_at == user_expires_at, expires_in
            assert back.witnessed is residency_of(known).witnessed, expires_in


def test_after_a_late_scrape_known_models_continue_and_others_were_loaded_since() -> None:
    late = fold_late_success(
        measured(observe(inventory(loaded()))), "0.33.0", ScrapeError(Reason.TIMEOUT, "busy"), TIMING
    )
    assert observe_inventory(late, inventory(loaded()), 20.0, PACE).models[KEY].measurements
    both = observe_inventory(late, inventory(loaded(), loaded("b:latest", B)), 20.0, PACE)
    assert residency_of(both, ("b:latest", B)).witnessed


def test_a_first_scrape_without_a_list_of_models_is_no_observation_of_them() -> None:
    late = fold_late_success(OllamaState(), "0.33.0", ScrapeError(Reason.TIMEOUT, "busy"), TIMING)
    first = residency_of(observe_inventory(late, expiring(300), 20.0, PACE))
    assert (first.witnessed, first.user_expires_at) == (False, None)


def traffic_of(state: OllamaState) -> tuple[float, float]:
    """Since when the model has been idle, and the time of the newest reading of its slots."""
    traffic = state.models[KEY].traffic
    assert traffic is not None
    return traffic.idle_since, traffic.read_at


def test_a_request_in_a_slot_is_a_users_request() -> None:
    state = observe_traffic(observe(expiring(300)), KEY, 5.0, served=True)
    assert (residency_of(state).user_expires_at, residency_of(state).changed_at) == (WALL + 300, 5.0)
    assert traffic_of(state) == (5.0, 5.0)
    assert traffic_of(observe_traffic(state, KEY, 6.0, served=True)) == (6.0, 6.0)


def test_idle_slots_are_no_users_request() -> None:
    state = observe_traffic(observe(expiring(300)), KEY, 5.0, served=False)
    assert residency_of(state).user_expires_at is None
    assert traffic_of(state) == (5.0, 5.0)
    assert traffic_of(observe_traffic(state, KEY, 65.0, served=False)) == (5.0, 65.0)


def test_a_request_in_a_slot_keeps_a_model_that_probes_had_prolonged_until_its_expiry() -> None:
    """That expiry came with an earlier request, so the end of this one lies beyond it."""
    state = change_residency(observe(EMPTY, expiring(300)), probe_expires_at=WALL + 310)
    prolonged = observe(expiring(310), state=state, since=2.0)
    assert residency_of(observe_traffic(prolonged, KEY, 5.0, served=False)).user_expires_at == WALL + 300
    assert residency_of(observe_traffic(prolonged, KEY, 5.0, served=True)).user_expires_at == WALL + 310


def test_traffic_ends_with_the_childs_readings_or_its_residency() -> None:
    state = observe_traffic(observe(expiring(300)), KEY, 5.0, served=True)
    assert end_traffic(state, [KEY, NEWER]).models == change_model(state, traffic=None).models
    assert observe_inventory(state, EMPTY, 6.0, PACE).models[KEY].traffic is None
    assert observe_inventory(state, expiring(300, context_length=8192), 6.0, PACE).models[KEY].traffic is None
    unloaded = observe(inventory(loaded()), EMPTY)
    for key in (KEY, NEWER):
        assert observe_traffic(unloaded, key, 6.0, served=True) == unloaded, key
