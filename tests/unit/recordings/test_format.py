"""Recordings: what is written is read again, and a broken file says where."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.recordings.format import RecordedScrape, RecordingReader, RecordingWriter
from phasewatch.scrape.http import Response

HEADER = {"kind": "header", "engine": "vllm", "version": "0.32.0", "wall_start": 1700000000.5}


def read(path: Path) -> list[RecordedScrape]:
    return list(RecordingReader(path).read_scrapes())


def lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(found) + "\n" for found in objects))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.xz"])
def test_what_is_written_is_read_again(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    answer = Response(200, "text/plain", 'vllm:x{model_name="é"} 1\n'.encode())
    broken = Response(500, "text/html", b"\xff\xfe")
    with RecordingWriter(path, HEADER) as writer:
        writer.write_response(0.0, 0.01, answer)
        writer.write_error(1.0, 4.0, ScrapeError(Reason.TIMEOUT, "too slow"))
        writer.write_response(2.0, 0.02, broken)
    first, second, third = read(path)
    assert (first.time, first.took, first.outcome) == (0.0, 0.01, answer)
    assert isinstance(second.outcome, ScrapeError)
    assert (second.time, second.took, second.response, second.outcome.reason) == (1.0, 4.0, None, Reason.TIMEOUT)
    assert third.response == broken
    header = RecordingReader(path).header
    assert (header.backend, header.keys["version"], header.wall_start) == ("vllm", "0.32.0", 1700000000.5)


def test_the_ending_decides_the_compression(tmp_path: Path) -> None:
    for ending, opened in (("jsonl", open), ("jsonl.gz", gzip.open), ("jsonl.xz", lzma.open)):
        path = tmp_path / f"x.{ending}"
        with RecordingWriter(path, HEADER) as writer:
            writer.write_response(0.0, 0.01, Response(200, "", b""))
        with opened(path, "rt") as file:
            assert json.loads(file.readline()) == HEADER


def test_a_recording_without_a_single_answer_does_not_take_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("precious")
    with RecordingWriter(path, HEADER) as writer:
        writer.write_error(0.0, 0.01, ScrapeError(Reason.CONNECT, "gone"))
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_a_recording_that_is_interrupted_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.xz"

    def interrupted() -> None:
        with RecordingWriter(path, HEADER) as writer:
            writer.write_response(0.0, 0.01, Response(200, "", b""))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(read(path)) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((reason.value, reason) for reason in Reason),
        ("ClientConnectorError", Reason.CONNECT),
        ("TimeoutError", Reason.TIMEOUT),
        ("SomethingElse", Reason.CONNECT),
    ],
)
def test_errors_of_other_recorders_find_their_reason(name: str, reason: Reason, tmp_path: Path) -> None:
    (scrape,) = read(lines(tmp_path / "x.jsonl", HEADER, {"kind": "scrape", "t": 0, "error": name}))
    assert isinstance(scrape.outcome, ScrapeError)
    assert scrape.outcome.reason is reason


def test_lines_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", HEADER, {"kind": "note"}, {"kind": "scrape", "t": 0, "status": 200, "body": ""})
    assert len(read(path)) == 1


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([], '1: no recording: expected a first line with "kind": "header"'),
        ([{"kind": "scrape"}], '1: no recording: expected a first line with "kind": "header"'),
        ([[1]], "1: expected an object"),
        ([HEADER, {"kind": "scrape", "t": "x"}], "2: expected numbers for t and took"),
        ([HEADER, {"kind": "scrape", "t": 0, "took": -1}], "2: expected numbers for t and took"),
        ([HEADER, {"kind": "scrape", "t": 10**400}], "2: expected numbers for t and took"),
        ([HEADER, {"kind": "scrape", "t": float("nan")}], "2: expected numbers for t and took"),
        ([HEADER, {"kind": "scrape", "t": 0}], "2: expected an error, or a status and a body"),
        (
            [HEADER, {"kind": "scrape", "t": 1, "error": "connect"}, {"kind": "scrape", "t": 1, "error": "connect"}],
            "3: t must be above that of the scrape before",
        ),
    ],
)
def test_a_broken_recording_says_where(objects: list[object], message: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", *objects)
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert str(caught.value) == f"{path}:{message}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "cannot be read: No such file or directory"),
        ("x.jsonl.xz", b"no xz", "cannot be read: Input format not supported"),
        ("x.jsonl.gz", gzip.compress(b'{"kind":"header"}\n' * 9, mtime=0)[:30], "cannot be read after line"),
        ("x.jsonl", b'{"kind":"header"}\n{', "2: no valid JSON"),
        ("x.jsonl", b"\xff\n", "is not UTF-8 text after line 0"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be written: No such file or directory"):
        RecordingWriter(tmp_path / "none" / "x.jsonl", HEADER)


def test_a_disk_that_is_full_says_so() -> None:
    link = Path("/dev/full")

    def fill() -> None:
        with RecordingWriter(link, HEADER) as writer:
            for second in range(1000):
                writer.write_response(float(second), 0.01, Response(200, "", b"x" * 1000))

    with pytest.raises(RecordingError, match="/dev/full: cannot be written: No space left on device"):
        fill()


def test_a_body_that_no_text_can_hold_is_read_as_what_it_is(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", HEADER, {"kind": "scrape", "t": 0, "status": 200, "body": "\ud800"})
    (scrape,) = read(path)
    assert scrape.response is not None
    with pytest.raises(UnicodeDecodeError):
        scrape.response.body.decode()
