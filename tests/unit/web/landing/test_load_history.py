from dataclasses import replace
from math import inf, isnan, nan

import pytest

from phasewatch.analysis.queue import Load
from phasewatch.analysis.samples import EngineKey
from phasewatch.snapshot.engine import EngineSnapshot
from phasewatch.snapshot.health import Health
from phasewatch.snapshot.target import TargetSnapshot, create_snapshot
from phasewatch.web.landing.load_history import HISTORY_SLOTS, HISTORY_SPAN_SECONDS, SLOT_SECONDS, LoadHistory, Track
from tests.support.targets import new_target

KEY = EngineKey("tiny", "0")
START = 1_000_000.0


def snapshot(waiting: float | None, *, name: str = "chat", key: EngineKey = KEY) -> TargetSnapshot:
    load = Load(requests_running=2.0, requests_waiting=waiting, kv_cache_usage_ratio=0.5)
    return replace(down(name), engines=(EngineSnapshot(key, load=load),))


def down(name: str = "chat") -> TargetSnapshot:
    return create_snapshot(new_target(name, "vllm", "http://h"), Health())


def track(history: LoadHistory, now: float, name: str = "chat") -> Track:
    found = history.get_track(name, KEY, now)
    assert found is not None
    return found


def test_the_newest_slot_is_the_last_and_slots_before_the_first_record_are_unknown() -> None:
    history = LoadHistory()
    history.record([snapshot(3.0)], START)
    points = track(history, START)
    assert (points.running[-1], points.waiting[-1], points.kv_cache[-1]) == (2.0, 3.0, 0.5)
    assert [len(series) for series in (points.running, points.waiting, points.kv_cache)] == [HISTORY_SLOTS] * 3
    assert all(map(isnan, points.waiting[:-1]))


def test_a_slot_keeps_its_peak() -> None:
    history = LoadHistory()
    for second, waiting in enumerate((5.0, 9.0, 1.0, 2.0)):
        history.record([snapshot(waiting)], START + second * SLOT_SECONDS / 4)
    assert track(history, START).waiting[-1] == 9.0


def test_values_move_left_as_time_passes() -> None:
    history = LoadHistory()
    for slot in range(HISTORY_SLOTS):
        history.record([snapshot(float(slot))], START + slot * SLOT_SECONDS)
    points = track(history, START + (HISTORY_SLOTS + 9) * SLOT_SECONDS)
    assert points.waiting[:-10] == list(range(10, HISTORY_SLOTS))
    assert all(map(isnan, points.waiting[-10:]))


def test_slots_without_an_answer_stay_gaps() -> None:
    history = LoadHistory()
    for slot, target in enumerate((snapshot(1.0), down(), down(), snapshot(4.0))):
        history.record([target], START + slot * SLOT_SECONDS)
    assert track(history, START + 3 * SLOT_SECONDS).waiting[-4:] == pytest.approx([1.0, nan, nan, 4.0], nan_ok=True)


def seen(*looks: tuple[float, TargetSnapshot]) -> list[float]:
    """The last three slots of what waits, after looks at seconds of the first of them."""
    history = LoadHistory()
    for second, target in looks:
        history.record([target], START + second)
    return list(track(history, START + 2 * SLOT_SECONDS).waiting[-3:])


def test_a_late_record_fills_the_slot_before_it_if_the_target_was_up() -> None:
    assert seen((1.9, snapshot(1.0)), (4.01, snapshot(3.0))) == [1.0, 3.0, 3.0]


def test_a_slot_without_a_record_stays_a_gap_unless_the_target_is_known_to_have_been_up() -> None:
    for case, looks in {
        "down between the looks": ((1.9, snapshot(1.0)), (2.9, down()), (4.01, snapshot(3.0))),
        "too late a look": ((0.5, snapshot(1.0)), (4.5, snapshot(3.0))),
        "another target": ((1.9, snapshot(1.0)), (4.01, replace(snapshot(3.0), name="another"))),
        "unknown before": ((1.9, snapshot(None)), (4.01, snapshot(3.0))),
    }.items():
        assert isnan(seen(*looks)[1]), case


def test_a_record_in_time_leaves_earlier_slots_unchanged() -> None:
    assert seen((1.0, snapshot(1.0)), (2.5, snapshot(5.0)), (3.5, snapshot(2.0)), (4.5, snapshot(3.0))) == [1, 5, 3]


def test_an_unknown_or_infinite_value_is_a_gap_in_its_own_series_alone() -> None:
    history = LoadHistory()
    for slot, waiting in enumerate((None, nan, inf)):
        history.record([snapshot(waiting)], START + slot * SLOT_SECONDS)
    points = track(history, START + 2 * SLOT_SECONDS)
    assert all(map(isnan, points.waiting))
    assert points.running[-3:] == [2.0, 2.0, 2.0]


def test_values_are_kept_for_the_whole_span_and_no_longer() -> None:
    history = LoadHistory()
    for slot in range(3 * HISTORY_SLOTS):
        history.record([snapshot(float(slot))], START + slot * SLOT_SECONDS)
    assert track(history, START + (3 * HISTORY_SLOTS - 1) * SLOT_SECONDS).waiting == list(
        range(2 * HISTORY_SLOTS, 3 * HISTORY_SLOTS)
    )


def test_slots_that_are_reused_show_no_old_value() -> None:
    history = LoadHistory()
    for slot in range(HISTORY_SLOTS):
        history.record([snapshot(1.0)], START + slot * SLOT_SECONDS)
    later = START + (2 * HISTORY_SLOTS - 2) * SLOT_SECONDS
    history.record([snapshot(7.0)], later)
    points = track(history, later)
    assert [value for value in points.waiting if not isnan(value)] == [1.0, 7.0]


def test_history_is_kept_by_target_model_and_engine() -> None:
    history = LoadHistory()
    other = EngineKey("tiny", "1")
    history.record([snapshot(1.0), snapshot(2.0, name="b"), snapshot(3.0, name="c", key=other)], START)
    assert (track(history, START).waiting[-1], track(history, START, "b").waiting[-1]) == (1.0, 2.0)
    assert history.get_track("c", KEY, START) is None


def test_an_engine_without_queue_metrics_has_no_history() -> None:
    history = LoadHistory()
    history.record([replace(down(), engines=(EngineSnapshot(KEY),))], START)
    assert history.get_track("chat", KEY, START) is None


def test_an_engine_that_has_gone_is_forgotten_after_the_span() -> None:
    history = LoadHistory()
    history.record([snapshot(1.0)], START)
    history.record([down()], START + HISTORY_SPAN_SECONDS - SLOT_SECONDS)
    assert history.get_track("chat", KEY, START) is not None
    history.record([down()], START + HISTORY_SPAN_SECONDS)
    assert history.get_track("chat", KEY, START) is None


def test_targets_that_are_not_kept_are_forgotten_at_once() -> None:
    history = LoadHistory()
    history.record([snapshot(1.0), snapshot(2.0, name="b")], START)
    history.keep({"b"})
    assert history.get_track("chat", KEY, START) is None
    assert track(history, START, "b").waiting[-1] == 2.0
