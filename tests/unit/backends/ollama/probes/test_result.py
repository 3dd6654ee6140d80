"""What each end of a probe changes: what is measured, counted, put off, and given up."""

from dataclasses import replace
from typing import Any, Final

import pytest

from phasewatch.backends.ollama.inventory import Inventory, ModelKey
from phasewatch.backends.ollama.probes.request import ProbeRequest, RequestKind
from phasewatch.backends.ollama.probes.response import ProbeError, ProbeTimings, RequestOverhead
from phasewatch.backends.ollama.probes.result import QUEUED_SECONDS, ProbeResult, record_result
from phasewatch.backends.ollama.probes.scheduling import SOON_SECONDS
from phasewatch.backends.ollama.state import ModelState, OllamaState, Residency
from phasewatch.config.probe_settings import ProbeSettings
from phasewatch.snapshot.probes import DiscardReason, ProbeReason, ProbeRecord
from tests.support.ollama_facts import WALL, A, B, figures, inventory, loaded, seeded

KEY: Final[ModelKey] = ("a:latest", A)
SENT: Final = 1000.0
SECONDS: Final = 0.2
ENDED: Final = SENT + SECONDS
SETTINGS: Final = ProbeSettings()
SMALL: Final = loaded(context_length=512)
"""A model whose context holds no long prompt, so that none follows."""


def known(*, witnessed: bool = False, **facts: Any) -> OllamaState:
    there = Residency(
        witnessed=witnessed, model=SMALL, user_expires_at=WALL + 300, probe_expires_at=None, changed_at=900.0
    )
    model = replace(ModelState(due=999.0, residency=there), **facts)
    return OllamaState(inventory=inventory(SMALL), models={KEY: model})


def went(sample: ProbeTimings | None) -> RequestOverhead:
    """How the request of a sample went; of an answer that is too short for one, as on an idle server."""
    return (
        RequestOverhead(sample.load_seconds, sample.unaccounted_seconds) if sample else RequestOverhead(0.0009, 0.0026)
    )


def result(
    sample: ProbeTimings | None = None,
    error: ProbeError | None = None,
    kind: RequestKind = RequestKind.SHORT,
    **facts: Any,
) -> ProbeResult:
    """A probe of 150 words that took 0.2 s and moved the expiry by a second."""
    usual = ProbeResult(
        request=ProbeRequest(kind, KEY, 150, {}),
        overhead=went(sample) if error is None else None,
        timings=sample,
        error=error,
        sent=SENT,
        ended=ENDED,
        wall=WALL,
        before=inventory(SMALL),
        after=inventory(replace(SMALL, expires_at=WALL + 301)),
    )
    return replace(usual, **facts)


def failed(reason: ProbeReason, **facts: Any) -> ProbeResult:
    return result(error=ProbeError(reason, "words"), **facts)


def after(end: ProbeResult, state: OllamaState | None = None, settings: ProbeSettings = SETTINGS) -> OllamaState:
    return record_result(state or known(), end, settings, seeded(1))


def model_of(state: OllamaState) -> ModelState:
    return state.models[KEY]


def record_of(state: OllamaState) -> ProbeRecord:
    return state.records["a:latest"]


def counted(record: ProbeRecord) -> dict[str, int]:
    """All counters that are not 0."""
    tables = (record.failures, record.discarded, record.skipped)
    return {reason.value: count for table in tables for reason, count in table.items() if count}


def test_a_good_answer_is_the_measurement_of_its_kind() -> None:
    sample = figures()
    state = after(result(sample))
    (measurement,) = model_of(state).measurements.values()
    assert (measurement.time, measurement.timings) == (ENDED, sample)
    assert model_of(state).tokens_per_word == pytest.approx(199 / 150)
    record = record_of(state)
    assert (record.probes, record.success, record.last_success) == (1, True, WALL)
    assert record.duration == pytest.approx(SECONDS)
    assert counted(record) == {}


def test_the_next_probe_comes_after_an_interval_more_or_less() -> None:
    dues = {model_of(record_result(known(), result(figures()), SETTINGS, seeded(seed))).due for seed in range(50)}
    assert len(dues) == 50
    assert all(270 <= due - ENDED <= 330 for due in dues)


def test_after_a_probe_none_comes_until_its_share_of_the_time_is_paid() -> None:
    assert after(result(figures())).pause_until == pytest.approx(ENDED + 99 * SECONDS)
    assert after(result(figures()), settings=ProbeSettings(budget=0.5)).pause_until == pytest.approx(ENDED + SECONDS)
    slow = failed(ProbeReason.TIMEOUT, ended=SENT + 60)
    assert after(slow).pause_until == pytest.approx(SENT + 60 + 99 * 60)


def test_time_that_a_probe_waited_behind_others_is_not_charged() -> None:
    queued = result(figures(unaccounted_seconds=30.002), ended=SENT + 30.2)
    state = after(queued, replace(known(), idle_overheads=(0.002,)))
    assert state.pause_until == pytest.approx(SENT + 30.2 + 99 * SECONDS)
    assert model_of(state).probe_seconds == {RequestKind.SHORT: pytest.approx(SECONDS)}


def test_a_probe_that_was_given_up_is_charged_no_more_than_twice_what_others_took() -> None:
    state = after(failed(ProbeReason.TIMEOUT, ended=SENT + 60), known(probe_seconds={RequestKind.SHORT: 0.5}))
    assert state.pause_until == pytest.approx(SENT + 60 + 99 * 1.0)
    assert model_of(state).probe_seconds == {RequestKind.SHORT: 0.5}


def test_the_first_sample_after_a_load_puts_its_rest_off_to_the_next() -> None:
    first = after(result(figures()), known(witnessed=True))
    assert first.pause_until == ENDED
    second = after(result(figures()), first)
    assert second.pause_until == pytest.approx(ENDED + 2 * 99 * SECONDS)
    assert second.pause_debt == 0


def test_a_rest_is_put_off_once() -> None:
    owing = replace(known(witnessed=True), pause_debt=10.0)
    assert after(result(figures()), owing).pause_until == pytest.approx(ENDED + 10 + 99 * SECONDS)


def test_the_expiry_that_a_probe_has_caused_is_its_own() -> None:
    residency = model_of(after(result(figures()))).residency
    assert residency is not None
    assert (residency.probe_expires_at, residency.unsettled, residency.probes) == (WALL + 301, False, 1)
    assert residency.user_expires_at == WALL + 300


@pytest.mark.parametrize("after_look", [None, inventory(SMALL)])
def test_a_probe_whose_end_was_not_seen_leaves_its_expiry_open(after_look: Inventory | None) -> None:
    residency = model_of(after(failed(ProbeReason.TIMEOUT, after=after_look))).residency
    assert residency is not None
    assert residency.unsettled


def test_the_first_sample_after_a_load_that_was_seen_is_discarded_and_soon_repeated() -> None:
    state = after(result(figures()), known(witnessed=True))
    assert counted(record_of(state)) == {"first_after_load": 1}
    assert record_of(state).success is True
    assert record_of(state).last_success is None
    assert model_of(state).measurements == {}
    assert model_of(state).due == ENDED + SOON_SECONDS
    assert model_of(state).tokens_per_word == pytest.approx(199 / 150)
    assert state.idle_overheads == (figures().unaccounted_seconds,)
    again = after(result(figures(), sent=SENT + 10, ended=ENDED + 10), state)
    assert RequestKind.SHORT in model_of(again).measurements


def test_an_output_that_is_too_short_is_discarded_and_repeated_thrice_at_most() -> None:
    state, dues = known(failures=2), []
    for _ in range(4):
        state = after(result(), state)
        dues.append(model_of(state).due - ENDED)
    assert dues[:2] == [pytest.approx(SOON_SECONDS)] * 2
    assert min(dues[2:]) > 200
    assert counted(record_of(state)) == {"too_few_tokens": 4}
    assert record_of(state).success is True
    assert (model_of(state).failures, model_of(state).measurements) == (0, {})
    assert model_of(after(result(figures()), state)).short_outputs == 0


def test_a_long_probe_is_measured_beside_the_short_one_and_is_not_due_for_an_hour() -> None:
    state = after(
        result(figures(prompt_tokens=2000, computed_tokens=2000), kind=RequestKind.LONG), after(result(figures()))
    )
    assert model_of(state).measurements.keys() == {RequestKind.SHORT, RequestKind.LONG}
    assert model_of(state).long_due == ENDED + SETTINGS.long_interval
    assert model_of(state).probe_seconds == {
        RequestKind.SHORT: pytest.approx(SECONDS),
        RequestKind.LONG: pytest.approx(SECONDS),
    }


def test_a_first_long_probe_follows_the_first_short_one_soon_and_later_ones_do_not() -> None:
    roomy = known()
    there = model_of(roomy).residency
    assert there is not None
    big = replace(model_of(roomy), residency=replace(there, model=loaded()))
    state = replace(roomy, models={KEY: big})
    both: dict[str, Any] = {"before": inventory(loaded()), "after": inventory(loaded())}
    first = after(result(figures(), **both), state)
    assert model_of(first).due == ENDED + SOON_SECONDS
    long = after(result(figures(), kind=RequestKind.LONG, **both), first)
    assert model_of(long).due > ENDED + 200
    later = after(result(figures(), **both), long)
    assert model_of(later).due > ENDED + 200


def test_the_wait_of_a_probe_is_what_is_left_over_beyond_an_idle_servers_rest() -> None:
    state = replace(known(), idle_overheads=(0.003, 0.002, 0.02))
    found = after(result(figures(unaccounted_seconds=1.002)), state)
    assert record_of(found).queue_seconds == pytest.approx(1.0)
    quick = after(result(figures(unaccounted_seconds=0.001)), state)
    assert record_of(quick).queue_seconds == 0.0


def test_a_probe_that_had_to_wait_is_measured_and_the_server_left_alone_for_longer_each_time() -> None:
    state = replace(known(), idle_overheads=(0.002,))
    waits = []
    for _ in range(6):
        state = after(result(figures(unaccounted_seconds=0.01 + QUEUED_SECONDS)), state)
        waits.append((state.backoff_until - ENDED) / SETTINGS.interval)
    assert waits == pytest.approx([2, 4, 8, 16, 16, 16])
    assert RequestKind.SHORT in model_of(state).measurements
    assert after(result(figures()), state).backoffs == 0


def test_a_server_that_always_has_much_left_over_is_not_taken_for_busy() -> None:
    slow = result(figures(unaccounted_seconds=0.8, total_seconds=1.8))
    first = after(slow)
    assert first.backoffs == 1
    second = after(slow, first)
    assert second.backoffs == 0
    assert record_of(second).queue_seconds == 0


def test_a_discarded_probe_that_had_to_wait_leaves_the_server_alone_as_well() -> None:
    state = after(result(figures(unaccounted_seconds=1.0)), known(witnessed=True))
    assert counted(record_of(state)) == {"first_after_load": 1}
    assert state.backoff_until == pytest.approx(ENDED + 2 * SETTINGS.interval)


def test_a_wait_of_less_than_a_quarter_of_a_second_is_none() -> None:
    state = replace(known(), idle_overheads=(0.002,))
    found = after(result(figures(unaccounted_seconds=0.001 + QUEUED_SECONDS)), state)
    assert (found.backoffs, found.backoff_until) == (0, 0.0)
    assert found.idle_overheads == (0.002, 0.001 + QUEUED_SECONDS)


def test_only_the_newest_rests_and_loads_of_an_idle_server_are_kept() -> None:
    state = known()
    for number in range(50):
        state = after(result(figures(unaccounted_seconds=number / 1000, load_seconds=number / 1000)), state)
    assert state.idle_overheads == state.idle_loads == tuple(number / 1000 for number in range(30, 50))


@pytest.mark.parametrize("reason", list(ProbeReason))
def test_a_failure_is_counted_by_its_reason_and_is_none_of_the_numbers(reason: ProbeReason) -> None:
    state = after(failed(reason))
    assert counted(record_of(state)) == {reason.value: 1}
    assert (record_of(state).probes, record_of(state).success, record_of(state).last_success) == (1, False, None)
    assert record_of(state).queue_seconds is None
    assert model_of(state).measurements == {}
    assert model_of(state).due - ENDED >= SETTINGS.interval


def test_what_was_measured_before_a_failure_still_counts() -> None:
    state = after(failed(ProbeReason.HTTP_STATUS), after(result(figures())))
    assert RequestKind.SHORT in model_of(state).measurements
    assert record_of(state).last_success == WALL


def test_failures_in_a_row_put_the_model_off_for_longer_each_time_and_an_answer_ends_that() -> None:
    state, waits = known(), []
    for _ in range(7):
        state = after(failed(ProbeReason.HTTP_STATUS), state)
        waits.append((model_of(state).due - ENDED) / SETTINGS.interval)
    assert waits[0] == pytest.approx(1, abs=0.1)
    assert waits[1:] == pytest.approx([2, 4, 8, 16, 16, 16])
    assert model_of(after(result(figures()), state)).failures == 0


@pytest.mark.parametrize("reason", list(ProbeReason))
def test_the_server_is_left_alone_when_it_is_busy_or_does_not_answer(reason: ProbeReason) -> None:
    leaves = after(failed(reason)).backoff_until > ENDED
    assert leaves is (reason in {ProbeReason.BUSY, ProbeReason.TIMEOUT})


def test_a_model_that_does_not_complete_text_is_given_up() -> None:
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
    ("the time of a load", result(figures(load_seconds=2.0)), "it waited 2.0 s for the model"),
    (
        "a load, and nothing could be seen",
        result(figures(load_seconds=2.0), after=None),
        "it waited 2.0 s for the model",
    ),
    (
        "another context of an answer too short",
        result(after=inventory(loaded())),
        "its context went from 512 to 4096 tokens",
    ),
]


@pytest.mark.parametrize(("end", "why"), [case[1:] for case in RELOADS], ids=[case[0] for case in RELOADS])
def test_a_reload_that_a_probe_has_caused_is_counted_and_the_model_given_up(end: ProbeResult, why: str) -> None:
    state = after(end)
    assert model_of(state).quarantine == why
    assert record_of(state).caused_reloads == 1
    assert counted(record_of(state)) == {DiscardReason.RELOADED.value: 1}
    assert model_of(state).measurements == {}
    loaded_for = end.overhead.load_seconds if end.overhead else 0.0
    assert record_of(state).load_seconds == (loaded_for if loaded_for > 1 else None)


def mlx(size: float) -> Inventory:
    return inventory(replace(SMALL, size=size, details=replace(SMALL.details, format="safetensors")))


HARMLESS: Final[list[tuple[str, OllamaState, ProbeResult]]] = [
    ("the model has left", known(), result(figures(), after=inventory())),
    ("nothing could be seen", known(), result(figures(), after=None)),
    ("an MLX runner has another size", known(), result(figures(), before=mlx(5e9), after=mlx(6e9))),
    ("a size is not told", known(), result(figures(), after=inventory(replace(SMALL, size=None)))),
    ("a quarter of a second is no load", known(), result(figures(load_seconds=0.25))),
    (
        "such loads are usual here",
        replace(known(), idle_loads=(0.1, 0.3)),
        result(figures(load_seconds=0.99)),
    ),
]


@pytest.mark.parametrize(("state", "end"), [case[1:] for case in HARMLESS], ids=[case[0] for case in HARMLESS])
def test_what_is_no_reload_is_not_taken_for_one(state: OllamaState, end: ProbeResult) -> None:
    found = after(end, state)
    assert model_of(found).quarantine is None
    assert record_of(found).caused_reloads == 0
    assert RequestKind.SHORT in model_of(found).measurements


OTHER: Final = loaded("b:latest", B)


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (inventory(SMALL), inventory(SMALL, OTHER)),
        (inventory(SMALL, OTHER), inventory(SMALL)),
        (inventory(SMALL, OTHER), inventory(SMALL, replace(OTHER, context_length=8192))),
    ],
    ids=["came", "went", "was loaded anew"],
)
def test_a_wait_for_another_model_that_came_or_went_is_no_reload_and_says_nothing_of_speed(
    before: Inventory, later: Inventory
) -> None:
    state = after(result(figures(load_seconds=20.0), before=before, after=later))
    assert model_of(state).quarantine is None
    assert record_of(state).caused_reloads == 0
    assert counted(record_of(state)) == {"first_after_load": 1}
    assert model_of(state).measurements == {}
    assert state.idle_loads == ()


def test_another_model_that_did_not_change_excuses_nothing() -> None:
    both: dict[str, Any] = {
        "before": inventory(SMALL, OTHER),
        "after": inventory(SMALL, replace(OTHER, expires_at=WALL + 400)),
    }
    assert model_of(after(result(figures(load_seconds=20.0), **both))).quarantine


def absent() -> OllamaState:
    """A model that may be loaded."""
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


def test_an_allowed_load_that_is_refused_for_good_is_given_up() -> None:
    state = after(failed(ProbeReason.UNSUPPORTED, kind=RequestKind.LOAD, after=inventory()), absent())
    assert model_of(state).quarantine == "words"


def test_counters_of_one_name_go_on_when_its_digest_changes() -> None:
    state = after(result(figures()))
    renewed = replace(state, models={("a:latest", B): ModelState(due=0.0)})
    end = result(figures(), request=ProbeRequest(RequestKind.SHORT, ("a:latest", B), 150, {}))
    assert record_of(after(end, renewed)).probes == 2


# What a breaker has found


def test_an_expiry_that_the_server_moves_a_moment_after_its_answer_is_still_the_probes() -> None:
    residency = model_of(after(result(figures(), after=inventory(SMALL)))).residency
    assert residency is not None
    assert residency.unsettled


@pytest.mark.parametrize("reason", [ProbeReason.HTTP_STATUS, ProbeReason.BUSY, ProbeReason.MODEL_GONE])
def test_a_refused_probe_leaves_no_expiry_open(reason: ProbeReason) -> None:
    residency = model_of(after(failed(reason, after=inventory(SMALL)))).residency
    assert residency is not None
    assert not residency.unsettled


def test_an_answer_that_is_too_short_for_speeds_tells_of_the_queue_all_the_same() -> None:
    state = after(result(None, overhead=RequestOverhead(0.001, 76.5)))
    assert record_of(state).queue_seconds == pytest.approx(76.5)
    assert state.backoffs == 1
    assert counted(record_of(state)) == {"too_few_tokens": 1}


def test_an_answer_that_is_too_short_for_speeds_tells_of_a_load_all_the_same() -> None:
    state = after(result(None, overhead=RequestOverhead(3.9, 0.003)))
    assert record_of(state).caused_reloads == 1
    assert record_of(state).load_seconds == 3.9
    assert model_of(state).quarantine is not None


def test_a_reload_is_seen_behind_a_failed_answer_too() -> None:
    state = after(failed(ProbeReason.NOT_DONE, after=inventory(loaded(context_length=4096))))
    assert record_of(state).caused_reloads == 1
    assert record_of(state).failures[ProbeReason.NOT_DONE] == 1
    assert model_of(state).quarantine is not None


def test_a_count_that_does_not_follow_the_prompt_calibrates_nothing_and_tells_no_prefill() -> None:
    cut = figures(prompt_tokens=149, computed_tokens=149)
    state = after(result(cut))
    assert model_of(state).tokens_per_word is None
    assert model_of(state).measurements[RequestKind.SHORT].timings.prefill_tokens_per_second is None


def test_a_long_prompt_calibrates_nothing() -> None:
    long = figures(prompt_tokens=3000, computed_tokens=3000)
    assert model_of(after(result(long, kind=RequestKind.LONG))).tokens_per_word is None


def loading(**facts: Any) -> ProbeResult:
    return result(None, kind=RequestKind.LOAD, overhead=None, **facts)


def test_a_load_says_nothing_of_what_probes_take_and_the_next_one_waits_an_interval() -> None:
    state = after(loading(ended=SENT + 160))
    assert model_of(state).probe_seconds == {}
    assert model_of(state).due == SENT + 160 + SOON_SECONDS
    assert model_of(state).load_due == SENT + 160 + SETTINGS.interval
    again = after(loading(ended=SENT + 160), state)
    assert model_of(again).load_due == SENT + 160 + 2 * SETTINGS.interval
    assert model_of(after(result(figures()), again)).unmeasured_loads == 0


def test_a_refused_probe_is_not_the_first_after_a_load() -> None:
    refused = after(failed(ProbeReason.BUSY), known(witnessed=True))
    state = after(result(figures()), refused)
    assert counted(record_of(state)) == {"busy": 1, "first_after_load": 1}


def test_a_queue_that_is_never_shorter_is_still_a_queue() -> None:
    state = known()
    for _ in range(6):
        state = after(result(None, overhead=RequestOverhead(0.001, 76.5)), state)
    assert record_of(state).queue_seconds == pytest.approx(75.5)
    assert state.backoffs > 1
