"""Recording: what the recorder of a kind of server reads is what stands in the file."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from phasewatch import backends
from phasewatch.backends.backend import Clock
from phasewatch.base.errors import Reason, ScrapeError
from phasewatch.recordings.record import RecordingOutcome, record
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import FetchedLine
from tests.support.plain_counters import PLAIN_COUNTERS
from tests.support.targets import new_target

TARGET = new_target("kettle", "vllm", "http://a.invalid")
TIMEOUT = ScrapeError(Reason.TIMEOUT, "no complete answer within 4s")
UNUSABLE = ScrapeError(Reason.NO_METRICS, "the page has none of the four counters")


class ScriptedRecorder:
    """Returns prepared lines, with `t` from the clock, and takes those with status 200 for usable."""

    def __init__(self, *lines: FetchedLine) -> None:
        self._lines = list(lines)
        self.closed = False

    async def fetch_header(self) -> Mapping[str, object]:
        return {"version": "1.2", "props": {"total_slots": 4}}

    async def fetch_line(self, clock: Clock) -> FetchedLine:
        line = self._lines.pop(0)
        return replace(line, keys={"t": clock(), **line.keys})

    def check(self, line: FetchedLine) -> None:
        if isinstance(line.outcome, Response) and line.outcome.status != 200:
            raise UNUSABLE

    async def close(self) -> None:
        self.closed = True


def run(
    monkeypatch: pytest.MonkeyPatch, output: Path, *lines: FetchedLine
) -> tuple[RecordingOutcome, list[dict[str, object]]]:
    recorder = ScriptedRecorder(*lines)
    kettle = replace(PLAIN_COUNTERS, create_recorder=lambda _: recorder)
    monkeypatch.setattr(backends, "BACKENDS", (kettle,))
    target = replace(TARGET, backend=kettle.name)
    outcome = asyncio.run(record(target, duration=0.01 * len(lines), interval=0.01, output=output))
    assert recorder.closed
    return outcome, [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def answered(kind: str = "scrape", status: int = 200, **keys: object) -> FetchedLine:
    return FetchedLine(keys, Response(status, "", b""), kind)


def test_header_and_lines_have_the_keys_of_the_recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    health = {"status": 200, "took": 0.1, "body": "ok"}
    outcome, (header, *lines) = run(
        monkeypatch,
        tmp_path / "x.jsonl",
        answered(slots={"t": 0.2}),
        answered("props", body=True),
        FetchedLine({"error": "timeout", "health": health}, TIMEOUT),
    )
    assert list(header) == ["kind", "engine", "version", "props", "interval", "wall_start", "recorded_by"]
    assert (header["engine"], header["version"], header["props"]) == ("plain_counters", "1.2", {"total_slots": 4})
    assert [{key: value for key, value in line.items() if key != "t"} for line in lines] == [
        {"kind": "scrape", "slots": {"t": 0.2}},
        {"kind": "props", "body": True},
        {"kind": "scrape", "error": "timeout", "health": health},
    ]
    assert outcome == RecordingOutcome(scrapes=3, failed=1, usable=2, last_error=TIMEOUT)


def test_an_answer_that_cannot_be_used_is_kept_and_is_not_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome, lines = run(monkeypatch, tmp_path / "x.jsonl", answered(status=501))
    assert len(lines) == 2
    assert outcome == RecordingOutcome(scrapes=1, failed=0, usable=0, last_error=UNUSABLE)


def test_nothing_is_written_if_every_scrape_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = FetchedLine({"error": "timeout"}, TIMEOUT)
    outcome, lines = run(monkeypatch, tmp_path / "x.jsonl", failed, failed)
    assert not lines
    assert not list(tmp_path.iterdir())
    assert outcome == RecordingOutcome(scrapes=2, failed=2, usable=0, last_error=TIMEOUT)
