"""Recordings: they are read back as written, and errors name the place."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.recordings.format import RecordingReader, RecordingWriter
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import FetchedLine, RecordedScrape
from tests.support.answers import fetched

HEADER = {"kind": "header", "engine": "vllm", "version": "0.32.0", "wall_start": 1700000000.5}


def read_scrapes(path: Path) -> list[RecordedScrape]:
    return list(RecordingReader(path).read_scrapes())


def write_lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in objects))
    return path


def test_a_written_recording_is_read_back_the_same(tmp_path: Path) -> None:
    for ending in ("jsonl", "jsonl.gz", "jsonl.xz"):
        path = tmp_path / f"x.{ending}"
        good = Response(200, "text/plain", 'vllm:x{model_name="é"} 1\n'.encode())
        broken = Response(500, "text/html", b"\xff\xfe")
        with RecordingWriter(path, HEADER) as writer:
            writer.write_line(fetched(0.0, 0.01, good))
            writer.write_line(fetched(1.0, 4.0, ScrapeError(Reason.TIMEOUT, "too slow")))
            writer.write_line(fetched(2.0, 0.02, broken))
        first, second, third = read_scrapes(path)
        assert (first.time, first.took, first.outcome) == (0.0, 0.01, good), ending
        assert isinstance(second.outcome, ScrapeError), ending
        assert (second.time, second.took, second.response, second.outcome.reason) == (1.0, 4.0, None, Reason.TIMEOUT), (
            ending
        )
        assert third.response == broken, ending
        header = RecordingReader(path).header
        assert (header.backend, header.keys["version"], header.wall_start) == ("vllm", "0.32.0", 1700000000.5), ending


def test_the_file_extension_decides_the_compression(tmp_path: Path) -> None:
    for ending, opened in (("jsonl", open), ("jsonl.gz", gzip.open), ("jsonl.xz", lzma.open)):
        path = tmp_path / f"x.{ending}"
        with RecordingWriter(path, HEADER) as writer:
            writer.write_line(fetched(0.0, 0.01, Response(200, "", b"")))
        with opened(path, "rt") as file:
            assert json.loads(file.readline()) == HEADER


def test_a_recording_without_a_response_does_not_replace_another(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("precious")
    with RecordingWriter(path, HEADER) as writer:
        writer.write_line(fetched(0.0, 0.01, ScrapeError(Reason.CONNECT, "gone")))
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_recording_keeps_its_scrapes(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.xz"

    def interrupted() -> None:
        with RecordingWriter(path, HEADER) as writer:
            writer.write_line(fetched(0.0, 0.01, Response(200, "", b"")))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(read_scrapes(path)) == 1


def test_errors_of_other_recorders_are_mapped_to_reasons(tmp_path: Path) -> None:
    for name, reason in (
        *((reason.value, reason) for reason in Reason),
        ("ClientConnectorError", Reason.CONNECT),
        ("TimeoutError", Reason.TIMEOUT),
        ("SomethingElse", Reason.CONNECT),
    ):
        (scrape,) = read_scrapes(write_lines(tmp_path / "x.jsonl", HEADER, {"kind": "scrape", "t": 0, "error": name}))
        assert isinstance(scrape.outcome, ScrapeError), (name, reason)
        assert scrape.outcome.reason is reason, (name, reason)


def test_a_recording_keeps_whether_a_connection_was_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with RecordingWriter(path, HEADER) as writer:
        writer.write_line(fetched(0.0, 0.01, Response(200, "", b"")))
        writer.write_line(fetched(1.0, 0.01, ScrapeError(Reason.CONNECT, "gone", refused=True)))
        writer.write_line(fetched(2.0, 0.01, ScrapeError(Reason.CONNECT, "reset")))
    outcomes = [scrape.outcome for scrape in read_scrapes(path)[1:]]
    assert [(error.reason, error.refused) for error in outcomes if isinstance(error, ScrapeError)] == [
        (Reason.CONNECT, True),
        (Reason.CONNECT, False),
    ]
    # A reader that does not know the key still has the reason.
    assert [json.loads(line).get("error") for line in path.read_text().splitlines()] == [
        None,
        None,
        "connect",
        "connect",
    ]


def test_a_refused_connection_is_recognised_by_the_names_of_other_recorders(tmp_path: Path) -> None:
    broken = (
        "connect",
        "ClientError",
        "ClientOSError",
        "ServerDisconnectedError",
        "ClientConnectorDNSError",
        "ReadError",
    )
    for name, refused in (
        ("ClientConnectorError", True),
        ("ConnectionRefusedError", True),
        *((name, False) for name in (*broken, "ClientConnectorSSLError", "TimeoutError")),
    ):
        (scrape,) = read_scrapes(write_lines(tmp_path / "x.jsonl", HEADER, {"kind": "scrape", "t": 0, "error": name}))
        assert isinstance(scrape.outcome, ScrapeError), name
        assert scrape.outcome.refused is refused, name


def test_lines_of_other_kinds_are_skipped(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "x.jsonl", HEADER, {"kind": "note"}, {"kind": "scrape", "t": 0, "status": 200, "body": ""}
    )
    assert len(read_scrapes(path)) == 1


def test_a_broken_recording_is_reported_with_its_line(tmp_path: Path) -> None:
    rows: list[tuple[list[object], str]] = [
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
    ]
    for objects, message in rows:
        path = write_lines(tmp_path / "x.jsonl", *objects)
        with pytest.raises(RecordingError) as caught:
            read_scrapes(path)
        assert str(caught.value) == f"{path}:{message}", objects


def test_an_unreadable_recording_is_reported_with_the_cause(tmp_path: Path) -> None:
    for name, content, message in (
        ("none.jsonl", None, "cannot be read: No such file or directory"),
        ("x.jsonl.xz", b"no xz", "cannot be read: Input format not supported"),
        ("x.jsonl.gz", gzip.compress(b'{"kind":"header"}\n' * 9, mtime=0)[:30], "cannot be read after line"),
        ("x.jsonl", b'{"kind":"header"}\n{', "2: no valid JSON"),
        ("x.jsonl", b"\xff\n", "is not UTF-8 text after line 0"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(RecordingError) as caught:
            read_scrapes(path)
        assert message in str(caught.value), (name, content)


def test_an_unwritable_recording_is_reported_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be written: No such file or directory"):
        RecordingWriter(tmp_path / "none" / "x.jsonl", HEADER)


def test_a_full_disk_is_reported() -> None:
    link = Path("/dev/full")

    def fill() -> None:
        with RecordingWriter(link, HEADER) as writer:
            for second in range(1000):
                writer.write_line(fetched(float(second), 0.01, Response(200, "", b"x" * 1000)))

    with pytest.raises(RecordingError, match="/dev/full: cannot be written: No space left on device"):
        fill()


def test_a_body_with_a_lone_surrogate_is_kept_as_invalid_utf8(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", HEADER, {"kind": "scrape", "t": 0, "status": 200, "body": "\ud800"})
    (scrape,) = read_scrapes(path)
    assert scrape.response is not None
    with pytest.raises(UnicodeDecodeError):
        scrape.response.body.decode()


def test_a_line_may_hold_answers_under_names_instead_of_one_of_its_own(tmp_path: Path) -> None:
    part = {"t": 0.1, "took": 0.01, "status": 200, "body": "x"}
    for parts in ({"ps": part, "children": []}, {"children": [{"pid": 7, "metrics": part}]}):
        line = {"kind": "scrape", "t": 0, **parts}
        (scrape,) = read_scrapes(write_lines(tmp_path / "x.jsonl", HEADER, line))
        assert (scrape.outcome, scrape.response, scrape.keys) == (None, None, line), parts


def test_what_stands_beside_an_answer_or_an_error_is_kept(tmp_path: Path) -> None:
    health = {"status": 200, "took": 0.002, "body": '{"status":"ok"}'}
    path = write_lines(
        tmp_path / "x.jsonl",
        HEADER,
        {"kind": "scrape", "t": 0, "status": 200, "body": "y", "start": "17", "slots": {"t": 0.1, "error": "timeout"}},
        {"kind": "scrape", "t": 1, "took": 4.0, "error": "TimeoutError", "health": health},
    )
    answered, hung = read_scrapes(path)
    assert answered.response == Response(200, "", b"y", start="17")
    assert answered.keys["slots"] == {"t": 0.1, "error": "timeout"}
    assert isinstance(hung.outcome, ScrapeError)
    assert (hung.outcome.reason, hung.keys["health"]) == (Reason.TIMEOUT, health)


def test_lines_of_further_kinds_are_read_in_their_order_if_asked_for(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "x.jsonl",
        HEADER,
        {"kind": "scrape", "t": 0, "status": 200, "body": ""},
        {"kind": ["props"], "t": 0},
        {"kind": "props", "t": 1, "status": 200, "body": True},
        {"kind": "scrape", "t": 2, "error": "timeout"},
    )
    read = [
        (scrape.kind, scrape.number) for scrape in RecordingReader(path).read_scrapes(frozenset({"scrape", "props"}))
    ]
    assert read == [("scrape", 2), ("props", 4), ("scrape", 5)]
    assert [scrape.number for scrape in read_scrapes(path)] == [2, 5]


def test_times_grow_across_all_kinds_that_are_read(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "x.jsonl",
        HEADER,
        {"kind": "scrape", "t": 1, "error": "timeout"},
        {"kind": "props", "t": 1, "status": 200, "body": False},
    )
    assert len(read_scrapes(path)) == 1
    with pytest.raises(RecordingError, match=r"x\.jsonl:3: t must be above that of the scrape before"):
        list(RecordingReader(path).read_scrapes(frozenset({"scrape", "props"})))


def test_a_line_of_another_kind_is_written_and_counts_as_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    keys = {"t": 0.5, "took": 0.01, "status": 200, "body": True}
    with RecordingWriter(path, HEADER) as writer:
        writer.write_line(FetchedLine(keys, Response(200, "", b"true"), kind="props"))
    (scrape,) = RecordingReader(path).read_scrapes(frozenset({"props"}))
    assert scrape == RecordedScrape(0.5, 0.01, Response(200, "", b"true"), {"kind": "props", **keys}, "props", 2)
