"""What the result of a probe changes: measurements, counters, pauses, backoffs and quarantine."""

from dataclasses import replace
from typing import Any, Final

import pytest

from phasewatch.backends.ollama.inventory import Inventory, ModelKey
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import ProbeError, ProbeTimings, RequestOverhead
from phasewatch.backends.ollama.probes.result import QUEUED_SECONDS, ProbeResult, record_result
from phasewatch.backends.ollama.probes.scheduling import SOON_SECONDS
from phasewatch.backends.ollama.state import ModelState, OllamaState, Residency
from phasewatch.config.settings import ProbeSettings
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, ProbeRecord
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, seeded
from tests.support.targets import new_probe_settings

KEY: Final[ModelKey] = ("a:latest", A)
SENT: Final = 1000.0
SECONDS: Final = 0.2
ENDED: Final = SENT + SECONDS
SETTINGS: Final = new_probe_settings()
SMALL: Final = loaded(context_length=512)
"""A model whose context holds no long prompt, so that none follows."""


def new_state(*, witnessed: bool = False, **facts: Any) -> OllamaState:
    residency = Residency(
        witnessed=witnessed, model=SMALL, user_expires_at=WALL + 300, probe_expires_at=None, changed_at=900.0
    )
    model = replace(ModelState(due=999.0, residency=residency), **facts)
    return OllamaState(inventory=inventory(SMALL), models={KEY: model})


def overhead_of(timings: ProbeTimings | None) -> RequestOverhead:
    """Overhead of a request; without timings that of an idle server."""
    if timings is None:
        return RequestOverhead(0.0009, 0.0026)
    return RequestOverhead(timings.load_seconds, timings.unaccounted_seconds)


def result(
    timings: ProbeTimings | None = None,
    error: ProbeError | None = None,
    kind: RequestKind = RequestKind.SHORT,
    **facts: Any,
) -> ProbeResult:
    """A probe of 150 words that took 0.2 s and moved the expiry by a second."""
    default = ProbeResult(
        request=ProbeRequest(kind, KEY, 150, {}),
        overhead=overhead_of(timings) if error is None else None,
        timings=timings,
        error=error,
        sent=SENT,
        ended=ENDED,
        wall=WALL,
        before=inventory(SMALL),
        after=inventory(replace(SMALL, expires_at=WALL + 301)),
    )
    return replace(default, **facts)


def failed(reason: ProbeReason, **facts: Any) -> ProbeResult:
    return result(error=ProbeError(reason, "words"), **facts)


def after(end: ProbeResult, state: OllamaState | None = None, settings: ProbeSettings = SETTINGS) -> OllamaState:
    return record_result(state or new_state(), end, settings, seeded(1))


def model_of(state: OllamaState) -> ModelState:
    return state.models[KEY]


def residency_of(state: OllamaState) -> Residency:
    residency = model_of(state).residency
    assert residency is not None
    return residency


def record_of(state: OllamaState) -> ProbeRecord:
    return state.records["a:latest"]


def counted(record: ProbeRecord) -> dict[str, int]:
    """All counters above 0."""
    tables = (record.failures, record.discarded, record.skipped)
    return {reason.value: count for table in tables for reason, count in table.items() if count}


def test_a_good_response_is_the_measurement_of_its_kind() -> None:
    timings = figures()
    state = after(result(timings))
    (measurement,) = model_of(state).measurements.values()
    assert (measurement.time, measurement.timings) == (ENDED, timings)
    assert model_of(state).tokens_per_word == pytest.approx(199 / 150)
    record = record_of(state)
    assert (record.probes, record.success, record.last_success) == (1, True, WALL)
    assert record.duration == pytest.approx(SECONDS)
    assert counted(record) == {}


def test_the_next_probe_is_due_after_an_interval_with_jitter() -> None:
    dues = {model_of(record_result(new_state(), result(figures()), SETTINGS, seeded(seed))).due for seed in range(50)}
    assert len(dues) == 50
    assert all(270 <= due - ENDED <= 330 for due in dues)


def test_probes_pause_until_their_share_of_the_time_is_kept() -> None:
    assert after(result(figures())).pause_until == pytest.approx(ENDED + 99 * SECONDS)
    assert after(result(figures()), settings=new_probe_settings(budget=0.5)).pause_until == pytest.approx(
        ENDED + SECONDS
    )
    slow = failed(ProbeReason.TIMEOUT, ended=SENT + 60)
    assert after(slow).pause_until == pytest.approx(SENT + 60 + 99 * 60)


def test_time_in_the_queue_does_not_count_towards_the_budget() -> None:
    queued = result(figures(unaccounted_seconds=30.002), ended=SENT + 30.2)
    state = after(queued, replace(new_state(), idle_overheads=(0.002,)))
    assert state.pause_until == pytest.approx(SENT + 30.2 + 99 * SECONDS)
    assert model_of(state).probe_seconds == {RequestKind.SHORT: pytest.approx(SECONDS)}


def test_a_probe_that_timed_out_counts_as_at_most_twice_the_others() -> None:
    state = after(failed(ProbeReason.TIMEOUT, ended=SENT + 60), new_state(probe_seconds={RequestKind.SHORT: 0.5}))
    assert state.pause_until == pytest.approx(SENT + 60 + 99 * 1.0)
    assert model_of(state).probe_seconds == {RequestKind.SHORT: 0.5}


def test_the_first_response_after_a_load_carries_its_pause_over_to_the_next() -> None:
    first = after(result(figures()), new_state(witnessed=True))
    assert first.pause_until == ENDED
    second = after(result(figures()), first)
    assert second.pause_until == pytest.approx(ENDED + 2 * 99 * SECONDS)
    assert second.pause_debt == 0


def test_a_pause_is_carried_over_once() -> None:
    in_debt = replace(new_state(witnessed=True), pause_debt=10.0)
    assert after(result(figures()), in_debt).pause_until == pytest.approx(ENDED + 10 + 99 * SECONDS)


def test_the_expiry_that_a_probe_caused_is_the_probes() -> None:
    residency = residency_of(after(result(figures())))
    assert (residency.probe_expires_at, residency.unsettled, residency.probes) == (WALL + 301, False, 1)
    assert residency.user_expires_at == WALL + 300


def test_a_probe_whose_end_was_not_observed_leaves_its_expiry_unsettled() -> None:
    for observed in (None, inventory(SMALL)):
        assert residency_of(after(failed(ProbeReason.TIMEOUT, after=observed))).unsettled, observed


def test_the_first_response_after_an_observed_load_is_discarded_and_repeated_soon() -> None:
    state = after(result(figures()), new_state(witnessed=True))
    assert counted(record_of(state)) == {"first_after_load": 1}
    assert record_of(state).success is True
    assert record_of(state).last_success is None
    assert model_of(state).measurements == {}
    assert model_of(state).due == ENDED + SOON_SECONDS
    assert model_of(state).tokens_per_word == pytest.approx(199 / 150)
    assert state.idle_overheads == (figures().unaccounted_seconds,)
    again = after(result(figures(), sent=SENT + 10, ended=ENDED + 10), state)
    assert RequestKind.SHORT in model_of(again).measurements


def test_an_output_too_short_is_discarded_and_repeated_soon_twice() -> None:
    state, dues = new_state(failures=2), []
    for _ in range(4):
        state = after(result(), state)
        dues.append(model_of(state).due - ENDED)
    assert dues[:2] == [pytest.approx(SOON_SECONDS)] * 2
    assert min(dues[2:]) > 200
    assert counted(record_of(state)) == {"too_few_tokens": 4}
    assert record_of(state).success is True
    assert (model_of(state).failures, model_of(state).measurements) == (0, {})
    assert model_of(after(result(figures()), state)).short_outputs == 0


def test_a_long_measurement_stands_beside_the_short_one_and_is_due_again_in_an_hour() -> None:
    state = after(
        result(figures(prompt_tokens=2000, computed_tokens=2000), kind=RequestKind.LONG), after(result(figures()))
    )
    assert model_of(state).measurements.keys() == {RequestKind.SHORT, RequestKind.LONG}
    assert model_of(state).long_due == ENDED + SETTINGS.long_interval
    assert model_of(state).probe_seconds == {
        RequestKind.SHORT: pytest.approx(SECONDS),
        RequestKind.LONG: pytest.approx(SECONDS),
    }


def test_the_first_long_probe_follows_the_first_short_one_soon_and_later_ones_do_not() -> None:
    small = new_state()
    large = replace(model_of(small), residency=replace(residency_of(small), model=loaded()))
    state = replace(small, models={KEY: large})
    both: dict[str, Any] = {"before": inventory(loaded()), "after": inventory(loaded())}
    first = after(result(figures(), **both), state)
    assert model_of(first).due == ENDED + SOON_SECONDS
    long = after(result(figures(), kind=RequestKind.LONG, **both), first)
    assert model_of(long).due > ENDED + 200
    later = after(result(figures(), **both), long)
    assert model_of(later).due > ENDED + 200


def test_queue_time_is_the_unaccounted_time_above_the_idle_baseline() -> None:
    state = replace(new_state(), idle_overheads=(0.003, 0.002, 0.02))
    queued = after(result(figures(unaccounted_seconds=1.002)), state)
    assert record_of(queued).queue_seconds == pytest.approx(1.0)
    quick = after(result(figures(unaccounted_seconds=0.001)), state)
    assert record_of(quick).queue_seconds == 0.0


def test_a_queued_probe_is_measured_and_each_makes_the_backoff_longer() -> None:
    state = replace(new_state(), idle_overheads=(0.002,))
    waits = []
    for _ in range(6):
        state = after(result(figures(unaccounted_seconds=0.01 + QUEUED_SECONDS)), state)
        waits.append((state.backoff_until - ENDED) / SETTINGS.interval)
    assert waits == pytest.approx([2, 4, 8, 16, 16, 16])
    assert RequestKind.SHORT in model_of(state).measurements
    assert after(result(figures()), state).backoffs == 0


def test_a_server_that_always_has_much_overhead_is_not_busy() -> None:
    slow = result(figures(unaccounted_seconds=0.8, total_seconds=1.8))
    first = after(slow)
    assert first.backoffs == 1
    second = after(slow, first)
    assert second.backoffs == 0
    assert record_of(second).queue_seconds == 0


def test_a_queued_probe_that_is_discarded_backs_off_as_well() -> None:
    state = after(result(figures(unaccounted_seconds=1.0)), new_state(witnessed=True))
    assert counted(record_of(state)) == {"first_after_load": 1}
    assert state.backoff_until == pytest.approx(ENDED + 2 * SETTINGS.interval)


def test_a_wait_below_a_quarter_of_a_second_is_no_queue() -> None:
    state = replace(new_state(), idle_overheads=(0.002,))
    later = after(result(figures(unaccounted_seconds=0.001 + QUEUED_SECONDS)), state)
    assert (later.backoffs, later.backoff_until) == (0, 0.0)
    assert later.idle_overheads == (0.002, 0.001 + QUEUED_SECONDS)


def test_only_the_newest_overheads_and_load_durations_are_kept() -> None:
    state = new_state()
    for number in range(50):
        state = after(result(figures(unaccounted_seconds=number / 1000, load_seconds=number / 1000)), state)
    assert state.idle_overheads == state.idle_loads == tuple(number / 1000 for number in range(30, 50))


def test_a_failure_is_counted_by_its_reason_and_measures_nothing() -> None:
    for reason in ProbeReason:
        state = after(failed(reason))
        record = record_of(state)
        assert counted(record) == {reason.value: 1}, reason
        assert (record.probes, record.success, record.last_success) == (1, False, None), reason
        assert record.queue_seconds is None, reason
        assert model_of(state).measurements == {}, reason
        assert model_of(state).due - ENDED >= SETTINGS.interval, reason


def test_a_failure_keeps_earlier_measurements() -> None:
    state = after(failed(ProbeReason.HTTP_STATUS), after(result(figures())))
    assert RequestKind.SHORT in model_of(state).measurements
    assert record_of(state).last_success == WALL


def test_consecutive_failures_delay_the_model_ever_longer_until_a_response() -> None:
    state, waits = new_state(), []
    for _ in range(7):
        state = after(failed(ProbeReason.HTTP_STATUS), state)
        waits.append((model_of(state).due - ENDED) / SETTINGS.interval)
    assert waits[0] == pytest.approx(1, abs=0.1)
    assert waits[1:] == pytest.approx([2, 4, 8, 16, 16, 16])
    assert model_of(after(result(figures()), state)).failures == 0


def test_a_busy_or_unresponsive_server_causes_a_backoff() -> None:
    causes = {reason for reason in ProbeReason if after(failed(reason)).backoff_until > ENDED}
    assert causes == {ProbeReason.BUSY, ProbeReason.TIMEOUT}


def test_a_model_that_does_not_complete_text_is_quarantined() -> None:
    assert model_of(after(failed(ProbeReason.UNSUPPORTED))).quarantine == "words"
    assert model_of(after(failed(ProbeReason.MODEL_GONE))).quarantine is None


RELOADS: Final[list[tuple[str, ProbeResult, str]]] = [
    (
        "another context",
        result(figures(), after=inventory(loaded(context_length=4096))),
        "its context went from 512 to 4096 tokens",
    ),
    (
        "another size",
        result(figures(), after=inventory(replace(SMALL, size=6e9))),
        "its size went from 5000000000 to 6000000000 bytes",
    ),
    ("the duration of a load", result(figures(load_seconds=2.0)), "it waited 2.0 s for the model"),
    (
        "a load, and the inventory could not be read",
        result(figures(load_seconds=2.0), after=None),
        "it waited 2.0 s for the model",
    ),
    (
        "another context and a short output",
        result(after=inventory(loaded())),
        "its context went from 512 to 4096 tokens",
    ),
]


def test_a_reload_caused_by_a_probe_is_counted_and_the_model_quarantined() -> None:
    for case, end, reason in RELOADS:
        state = after(end)
        assert model_of(state).quarantine == reason, case
        assert record_of(state).caused_reloads == 1, case
        assert counted(record_of(state)) == {DiscardReason.RELOADED.value: 1}, case
        assert model_of(state).measurements == {}, case
        load_seconds = end.overhead.load_seconds if end.overhead else 0.0
        assert record_of(state).load_seconds == (load_seconds if load_seconds > 1 else None), case


def mlx(size: float) -> Inventory:
    return inventory(replace(SMALL, size=size, details=replace(SMALL.details, format="safetensors")))


HARMLESS: Final[list[tuple[str, OllamaState, ProbeResult]]] = [
    ("the model was unloaded", new_state(), result(figures(), after=inventory())),
    ("the inventory could not be read", new_state(), result(figures(), after=None)),
    ("an MLX runner has another size", new_state(), result(figures(), before=mlx(5e9), after=mlx(6e9))),
    ("a size is not listed", new_state(), result(figures(), after=inventory(replace(SMALL, size=None)))),
    ("a quarter of a second", new_state(), result(figures(load_seconds=0.25))),
    (
        "usual load durations",
        replace(new_state(), idle_loads=(0.1, 0.3)),
        result(figures(load_seconds=0.99)),
    ),
]


def test_other_changes_are_not_taken_for_a_reload() -> None:
    for case, state, end in HARMLESS:
        later = after(end, state)
        assert model_of(later).quarantine is None, case
        assert record_of(later).caused_reloads == 0, case
        assert RequestKind.SHORT in model_of(later).measurements, case


OTHER: Final = loaded("b:latest", B)


def test_a_wait_for_another_model_is_no_reload_and_measures_nothing() -> None:
    for change, before, later in (
        ("loaded", inventory(SMALL), inventory(SMALL, OTHER)),
        ("unloaded", inventory(SMALL, OTHER), inventory(SMALL)),
        ("reloaded", inventory(SMALL, OTHER), inventory(SMALL, replace(OTHER, context_length=8192))),
    ):
        state = after(result(figures(load_seconds=20.0), before=before, after=later))
        assert model_of(state).quarantine is None, change
        assert record_of(state).caused_reloads == 0, change
        assert counted(record_of(state)) == {"first_after_load": 1}, change
        assert model_of(state).measurements == {}, change
        assert state.idle_loads == (), change


def test_another_model_that_did_not_change_does_not_excuse_a_load() -> None:
    both: dict[str, Any] = {
        "before": inventory(SMALL, OTHER),
        "after": inventory(SMALL, replace(OTHER, expires_at=WALL + 400)),
    }
    assert model_of(after(result(figures(load_seconds=20.0), **both))).quarantine


def absent() -> OllamaState:
    """A loadable model that is not in memory."""
    return OllamaState(inventory=inventory(), models={KEY: ModelState(due=999.0)})


def test_an_allowed_load_is_timed_by_our_clock_and_followed_by_a_probe() -> None:
    state = after(result(kind=RequestKind.LOAD, ended=SENT + 12.5), absent())
    record = record_of(state)
    assert (record.probes, record.success, record.load_seconds, record.caused_reloads) == (1, True, 12.5, 0)
    assert model_of(state).due == SENT + 12.5 + SOON_SECONDS
    assert state.pause_until == 0.0
    assert counted(record) == {}


def test_an_allowed_load_that_fails_is_counted_and_not_tried_again_at_once() -> None:
    state = after(failed(ProbeReason.HTTP_STATUS, kind=RequestKind.LOAD, after=inventory()), absent())
    assert counted(record_of(state)) == {"http_status": 1}
    assert record_of(state).load_seconds is None
    assert model_of(state).due - ENDED >= 0.9 * SETTINGS.interval


def test_an_allowed_load_that_is_refused_for_good_quarantines_the_model() -> None:
    state = after(failed(ProbeReason.UNSUPPORTED, kind=RequestKind.LOAD, after=inventory()), absent())
    assert model_of(state).quarantine == "words"


def test_counters_of_a_name_continue_when_its_digest_changes() -> None:
    state = after(result(figures()))
    renewed = replace(state, models={("a:latest", B): ModelState(due=0.0)})
    end = result(figures(), request=ProbeRequest(RequestKind.SHORT, ("a:latest", B), 150, {}))
    assert record_of(after(end, renewed)).probes == 2


def test_an_expiry_that_moves_after_the_response_is_still_the_probes() -> None:
    assert residency_of(after(result(figures(), after=inventory(SMALL)))).unsettled


def test_a_refused_probe_leaves_no_expiry_unsettled() -> None:
    for reason in (ProbeReason.HTTP_STATUS, ProbeReason.BUSY, ProbeReason.MODEL_GONE):
        assert not residency_of(after(failed(reason, after=inventory(SMALL)))).unsettled, reason


def test_an_output_too_short_for_timings_still_shows_the_queue() -> None:
    state = after(result(None, overhead=RequestOverhead(0.001, 76.5)))
    assert record_of(state).queue_seconds == pytest.approx(76.5)
    assert state.backoffs == 1
    assert counted(record_of(state)) == {"too_few_tokens": 1}


def test_an_output_too_short_for_timings_still_shows_a_load() -> None:
    state = after(result(None, overhead=RequestOverhead(3.9, 0.003)))
    assert record_of(state).caused_reloads == 1
    assert record_of(state).load_seconds == 3.9
    assert model_of(state).quarantine is not None


def test_a_reload_is_detected_after_a_failed_probe_too() -> None:
    state = after(failed(ProbeReason.NOT_DONE, after=inventory(loaded(context_length=4096))))
    assert record_of(state).caused_reloads == 1
    assert record_of(state).failures[ProbeReason.NOT_DONE] == 1
    assert model_of(state).quarantine is not None


def test_a_token_count_below_the_words_calibrates_nothing_and_gives_no_prefill() -> None:
    cut = figures(prompt_tokens=149, computed_tokens=149)
    state = after(result(cut))
    assert model_of(state).tokens_per_word is None
    assert model_of(state).measurements[RequestKind.SHORT].timings.prefill_tokens_per_second is None


def test_a_long_prompt_calibrates_nothing() -> None:
    long = figures(prompt_tokens=3000, computed_tokens=3000)
    assert model_of(after(result(long, kind=RequestKind.LONG))).tokens_per_word is None


def loading(**facts: Any) -> ProbeResult:
    return result(None, kind=RequestKind.LOAD, overhead=None, **facts)


def test_a_load_predicts_no_duration_and_the_next_one_waits_an_interval() -> None:
    state = after(loading(ended=SENT + 160))
    assert model_of(state).probe_seconds == {}
    assert model_of(state).due == SENT + 160 + SOON_SECONDS
    assert model_of(state).load_due == SENT + 160 + SETTINGS.interval
    again = after(loading(ended=SENT + 160), state)
    assert model_of(again).load_due == SENT + 160 + 2 * SETTINGS.interval
    assert model_of(after(result(figures()), again)).unmeasured_loads == 0


def test_a_refused_probe_does_not_count_as_the_first_after_a_load() -> None:
    refused = after(failed(ProbeReason.BUSY), new_state(witnessed=True))
    state = after(result(figures()), refused)
    assert counted(record_of(state)) == {"busy": 1, "first_after_load": 1}


def test_a_queue_that_never_shortens_is_still_a_queue() -> None:
    state = new_state()
    for _ in range(6):
        state = after(result(None, overhead=RequestOverhead(0.001, 76.5)), state)
    assert record_of(state).queue_seconds == pytest.approx(75.5)
    assert state.backoffs > 1
