"""Replaying: one object for each scrape, and a text that Prometheus takes as its own history."""

import json
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from phasewatch import backends
from phasewatch.base.errors import RecordingError
from phasewatch.recordings.format import RecordingReader
from phasewatch.recordings.replay import create_target, format_json, format_openmetrics
from tests.support.pages import replayed, value
from tests.support.paths import RECORDINGS
from tests.support.plain_counters import PLAIN_COUNTERS
from tests.support.processes import needs
from tests.support.targets import new_target

TARGET = new_target("chat", "vllm", "http://a.invalid")
RESTART = RECORDINGS / "restart.jsonl.xz"


def test_every_scrape_has_an_object_failed_ones_too() -> None:
    documents = [json.loads(line) for line in format_json(RecordingReader(RESTART), TARGET)]
    assert [one["t"] for one in documents] == [scrape.time for scrape in RecordingReader(RESTART).read_scrapes()]
    assert all(set(one) == {"t", "metrics"} for one in documents)
    assert all(set(metric) == {"name", "labels", "value"} for one in documents for metric in one["metrics"])
    assert all(metric["labels"]["target"] == "chat" for one in documents for metric in one["metrics"])


def test_a_recording_of_another_kind_of_server_is_refused_with_its_name(tmp_path: Path) -> None:
    for engine, text in (("sglang", "'sglang'"), (["vllm"], r"\['vllm'\]"), (7, "7")):
        path = tmp_path / "x.jsonl"
        path.write_text(json.dumps({"kind": "header", "engine": engine}))
        message = rf"x.jsonl:1: a recording of {text}; this version replays vllm, llamacpp, ollama only"
        with pytest.raises(RecordingError, match=message):
            list(format_json(RecordingReader(path), TARGET))


def test_a_recording_plays_a_target_of_any_name() -> None:
    for name in ("chat", " ", "a\tb"):
        assert create_target(RecordingReader(RESTART), name).name == name


def test_a_failed_scrape_has_only_the_metrics_of_the_target() -> None:
    down = [metrics for _, metrics in replayed("restart") if value(metrics, "llm_target_up") == 0]
    assert len(down) > 20
    for metrics in down:
        assert {name for name, _ in metrics} <= {
            "llm_target_up",
            "llm_target_scrape_duration_seconds",
            "llm_target_last_success_timestamp_seconds",
            "llm_target_scrape_errors_total",
        }
    assert value(down[-1], "llm_target_scrape_errors_total", reason="connect") == len(down)


def test_the_time_of_success_is_that_of_the_recording() -> None:
    start = RecordingReader(RESTART).header.wall_start
    assert start is not None
    _, metrics = next(replayed("restart"))
    success = value(metrics, "llm_target_last_success_timestamp_seconds")
    assert success is not None
    assert start < success < start + 1


@needs("promtool")
def test_promtool_imports_the_openmetrics_text(tmp_path: Path) -> None:
    text, data = tmp_path / "history.om", tmp_path / "data"
    text.write_text(format_openmetrics(RecordingReader(RESTART), TARGET))
    (data / "wal").mkdir(parents=True)  # what promtool dumps from must look like a whole database
    promtool("tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    dumped = promtool("tsdb", "dump", "--match={__name__='llm_target_up'}", str(data))
    assert len(dumped.splitlines()) == len(list(RecordingReader(RESTART).read_scrapes()))


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scrapes_that_overlap_are_replayed_in_their_order(tmp_path: Path) -> None:
    with lzma.open(RECORDINGS / "two-api-servers.jsonl.xz", "rt") as file:
        header, first, second, *_ = map(json.loads, file)
    scrapes = [{**first, "t": 1.0, "took": 2.0}, {**second, "t": 2.0, "took": 1.0}, {**second, "t": 2.5, "took": 0.1}]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *scrapes)))
    assert [json.loads(line)["t"] for line in format_json(RecordingReader(path), TARGET)] == [1.0, 2.0, 2.5]


def write_recording(path: Path, *lines: dict[str, object], engine: str = "vllm") -> RecordingReader:
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"kind": "header", "engine": engine}, *lines)))
    return RecordingReader(path)


def test_a_recording_does_not_play_a_target_of_another_kind(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "x.jsonl")
    with pytest.raises(RecordingError) as caught:
        list(format_json(recording, new_target("chat", "ollama", "http://a.invalid")))
    assert str(caught.value) == (
        f"{tmp_path}/x.jsonl:1: a recording with the engine vllm, but the target 'chat' has the backend ollama: "
        "name a target of the same kind, or leave the configuration out"
    )


def test_a_line_without_the_page_that_its_player_needs_is_reported_with_its_place(tmp_path: Path) -> None:
    failed = {"kind": "scrape", "t": 0, "error": "timeout"}
    recording = write_recording(tmp_path / "x.jsonl", failed, {"kind": "note"}, {"kind": "scrape", "t": 1, "ps": {}})
    with pytest.raises(RecordingError) as caught:
        list(format_json(recording, TARGET))
    assert str(caught.value) == f"{tmp_path}/x.jsonl:4: expected an error, or a status and a body"


def test_each_kind_of_line_that_a_backend_plays_has_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        {"kind": "scrape", "t": 0, "error": "timeout"},
        {"kind": "props", "t": 1, "status": 200, "body": True},
        {"kind": "scrape", "t": 2, "error": "timeout"},
    )
    for kinds, played in ((PLAIN_COUNTERS.played_kinds, [0, 2]), (frozenset({"scrape", "props"}), [0, 1, 2])):
        monkeypatch.setattr(backends, "BACKENDS", (replace(PLAIN_COUNTERS, played_kinds=kinds),))
        recording = write_recording(tmp_path / "x.jsonl", *lines, engine=PLAIN_COUNTERS.name)
        documents = map(json.loads, format_json(recording, create_target(recording, "kettle")))
        assert [document["t"] for document in documents] == played, kinds
