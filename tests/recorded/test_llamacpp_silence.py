"""A llama-server that gives no page: when it is taken to work, when it is stuck, and what its rates are afterwards."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import create_target, format_json
from tests.support.pages import Metrics, replayed, value, values
from tests.support.paths import CASES
from tests.support.scripted_llama_server import Job, ScriptedLlamaServer, hang_line, record_line, write_recording

THROUGHPUT = "llm_decode_throughput_tokens_per_second"
RATES = (THROUGHPUT, "llm_decode_tokens_per_second", "llm_prefill_throughput_tokens_per_second")

DECODING = ScriptedLlamaServer((Job(0.0, 1.0, 4000, 0.05), Job(0.0, 1.0, 4000, 0.05, slot=1)))
"""Two streams of 20 tokens per second each for 200 s."""


def play(folder: Path, lines: Iterable[dict[str, Any]]) -> dict[float, Metrics]:
    """What is shown after each line."""
    path = folder / "recording.jsonl"
    path.write_text(write_recording(lines))
    recording = RecordingReader(path)
    return {
        document["t"]: {
            (metric["name"], tuple(sorted(metric["labels"].items()))): metric["value"] for metric in document["metrics"]
        }
        for document in map(json.loads, format_json(recording, create_target(recording, "recording")))
    }


def find_state(metrics: Metrics) -> str | None:
    states = [dict(labels)["state"] for (name, labels), on in metrics.items() if name == "llm_saturation_state" and on]
    return states[0] if states else None


def has_rates(metrics: Metrics) -> bool:
    return any(values(metrics, name) for name in RATES)


def test_a_server_that_stops_amid_decoding_is_stuck_after_a_minute_although_its_health_is_ok() -> None:
    shown = dict(replayed("llamacpp-wedged", folder=CASES))
    assert value(shown[40.0], THROUGHPUT) == pytest.approx(80, rel=0.01)
    stalls = []
    for time, metrics in shown.items():
        up = value(metrics, "llm_target_up")
        if time <= 40:
            assert (up, find_state(metrics)) == (1, "healthy"), time
        elif time < 56:
            assert (up, find_state(metrics) in {None, "healthy"}, has_rates(metrics)) == (1, True, False), time
        elif time < 200:
            assert not has_rates(metrics), time
            assert find_state(metrics) in {None, "stuck"}, time
            assert time < 105 or find_state(metrics) == "stuck", time
            stalls += values(metrics, "llm_token_stall_seconds")
        elif time < 215:
            assert up == 0, time
            assert value(metrics, "llm_target_scrape_errors_total", reason="connect"), time
            assert find_state(metrics) is None, time
            assert not values(metrics, "llm_token_stall_seconds"), time
        else:
            assert up == 1
            rates = [found for name in RATES for found in values(metrics, name)]
            assert all(0 <= rate < 101 for rate in rates), (time, rates)
            if time >= 245:
                assert value(metrics, "llm_decode_tokens_per_second") == pytest.approx(50, rel=0.02), time
    assert stalls == sorted(stalls)
    assert stalls[-1] > 150
    assert len(stalls) > 10


@pytest.mark.parametrize("alive", [True, False])
def test_a_silence_that_began_in_a_prompt_is_never_stuck(tmp_path: Path, alive: bool) -> None:
    server = ScriptedLlamaServer((Job(5.0, 1805.0, 100, 0.1, prompt=60_000),))
    times = [float(t) for t in range(7)]
    silent = [hang_line(float(t), alive=alive) for t in range(7, 1800, 5)]
    after = [record_line(server, float(t)) for t in range(1806, 1815)]
    shown = play(tmp_path, [*(record_line(server, t) for t in times), *silent, *after])
    for time, metrics in shown.items():
        assert find_state(metrics) not in {"stuck", "deferred", "prefill_limited"}, time
        if 7 <= time < 1800:
            assert not has_rates(metrics), time
            assert value(metrics, "llm_target_up") == 1, time
    assert value(shown[1814.0], THROUGHPUT) == pytest.approx(10, rel=0.15)


def test_a_page_behind_requests_in_the_pool_for_ten_seconds_is_no_failure_and_costs_no_token(tmp_path: Path) -> None:
    lines = [record_line(DECODING, float(t)) for t in range(1, 41)]
    lines += [hang_line(41.0, alive=False), hang_line(46.0, alive=True)]
    lines += [record_line(DECODING, float(t)) for t in range(51, 70)]
    shown = play(tmp_path, lines)
    assert all(value(metrics, "llm_target_up") == 1 for metrics in shown.values())
    assert all(find_state(metrics) in {None, "healthy", "idle"} for metrics in shown.values())
    for time, metrics in shown.items():
        if time in {41.0, 46.0}:
            assert not has_rates(metrics)
        elif time > 5:
            assert value(metrics, THROUGHPUT) == pytest.approx(40, rel=0.02), time
            assert value(metrics, "llm_decode_tokens_per_second") == pytest.approx(20, rel=0.03), time


def test_after_a_gap_rates_are_divided_by_the_whole_gap(tmp_path: Path) -> None:
    lines = [record_line(DECODING, float(t)) for t in (*range(10, 41), *range(80, 100))]
    for time, metrics in play(tmp_path, lines).items():
        if time > 10:
            assert value(metrics, THROUGHPUT) == pytest.approx(40, rel=0.02), time


def test_a_server_that_nothing_has_answered_for_an_hour_is_down_whatever_it_did(tmp_path: Path) -> None:
    server = ScriptedLlamaServer((Job(5.0, 9005.0, 100, 0.1, prompt=60_000),))
    silent = [hang_line(float(t), alive=False) for t in range(7, 4000, 60)]
    shown = play(tmp_path, [*(record_line(server, float(t)) for t in range(7)), *silent])
    assert value(shown[3967.0], "llm_target_up") == 0


def test_an_idle_server_that_falls_silent_is_down_and_not_stuck(tmp_path: Path) -> None:
    idle = ScriptedLlamaServer((Job(1.0, 2.0, 50, 0.1),))
    lines = [record_line(idle, float(t)) for t in range(40)]
    lines += [hang_line(float(t), alive=False) for t in range(40, 200, 5)]
    for time, metrics in play(tmp_path, lines).items():
        assert find_state(metrics) in {None, "healthy", "idle"}, time
        if time >= 40:
            assert value(metrics, "llm_target_up") == 0
            assert not values(metrics, "llm_token_stall_seconds")


def test_a_crash_amid_decoding_is_down_at_once_and_leaves_nothing_of_the_old_counters(tmp_path: Path) -> None:
    refused = [{"kind": "scrape", "t": float(t), "took": 0.0, "error": "connect", "refused": True} for t in (41, 42)]
    new = ScriptedLlamaServer((Job(45.0, 46.0, 600, 0.1),), start="2000")
    lines = [*(record_line(DECODING, float(t)) for t in range(1, 41)), *refused]
    shown = play(tmp_path, [*lines, *(record_line(new, float(t)) for t in range(43, 80))])
    for time, metrics in shown.items():
        if time in {41.0, 42.0}:
            assert value(metrics, "llm_target_up") == 0
            assert find_state(metrics) is None
        elif time > 43:
            assert 0 <= (value(metrics, THROUGHPUT) or 0.0) <= 10.5, time
    assert value(shown[79.0], "llm_decode_tokens_per_second") == pytest.approx(10, rel=0.02)


def test_a_crash_during_a_silence_is_seen_by_the_start_header_alone(tmp_path: Path) -> None:
    new = ScriptedLlamaServer((Job(45.0, 46.0, 600, 0.1),), start="2000", before=1_000_000)
    lines = [*(record_line(DECODING, float(t)) for t in range(1, 41)), hang_line(41.0, alive=True)]
    for time, metrics in play(tmp_path, [*lines, *(record_line(new, float(t)) for t in range(46, 80))]).items():
        if time >= 46:
            assert 0 <= (value(metrics, THROUGHPUT) or 0.0) <= 11, time


def test_streams_that_stop_while_the_page_still_answers_are_a_stall_and_then_stuck(tmp_path: Path) -> None:
    frozen = [{**record_line(DECODING, 30.0), "t": float(t), "slots": frozen_slots(float(t))} for t in range(31, 130)]
    shown = play(tmp_path, [*(record_line(DECODING, float(t)) for t in range(1, 31)), *frozen])
    assert value(shown[40.0], "llm_token_stall_seconds") == pytest.approx(10, abs=1.1)
    assert find_state(shown[129.0]) == "stuck"


def frozen_slots(time: float) -> dict[str, Any]:
    return {"t": time + 0.002, "took": 0.001, "status": 200, "body": DECODING.render_slots(30.0).decode()}
