"""Recorded answers: what is written is read back the same, and what is not an answer is refused."""

import asyncio
from typing import Any

import pytest

from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.scrape.http import Response
from phasewatch.scrape.recorded import parse_answer, parse_times, record_answer
from tests.support.answers import fetched


def test_a_recorded_answer_is_read_back_the_same() -> None:
    for answer in (
        Response(200, "text/plain", "x 1 é\n".encode()),
        Response(200, "text/plain", b"\xff\xfe", start="1370475630"),
        Response(501, "", b""),
    ):
        line = fetched(1.5, 0.25, answer)
        assert parse_answer(line.keys) == line.outcome == answer
        assert parse_times(line.keys) == (1.5, 0.25), answer


def test_a_recorded_error_keeps_its_reason_and_whether_the_connection_was_refused() -> None:
    for error in (
        ScrapeError(Reason.CONNECT, "gone", refused=True),
        ScrapeError(Reason.CONNECT, "reset"),
        ScrapeError(Reason.TIMEOUT, "no answer"),
    ):
        line = fetched(0.0, 4.0, error)
        assert line.outcome is error
        parsed = parse_answer(line.keys)
        assert isinstance(parsed, ScrapeError), error
        assert (parsed.reason, parsed.refused) == (error.reason, error.refused), error
        assert "status" not in line.keys, error


def test_a_start_that_the_server_did_not_send_is_not_recorded() -> None:
    keys = fetched(0.0, 0.0, Response(200, "", b"")).keys
    assert "start" not in keys
    parsed = parse_answer(keys)
    assert isinstance(parsed, Response)
    assert parsed.start is None


def test_a_defect_is_not_recorded_as_an_answer() -> None:
    async def request() -> Response:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(record_answer(request(), lambda: 0.0))


def test_a_body_that_is_a_truth_value_is_read_as_json() -> None:
    for value, body in ((True, b"true"), (False, b"false")):
        assert parse_answer({"status": 200, "body": value}) == Response(200, "", body)


def test_what_is_not_an_answer_is_refused() -> None:
    rows: list[tuple[Any, str]] = [
        (None, "expected an object"),
        ([], "expected an object"),
        ("x", "expected an object"),
        ({}, "expected an error, or a status and a body"),
        ({"body": "x"}, "expected an error, or a status and a body"),
        ({"status": "200"}, "expected an error, or a status and a body"),
        ({"status": 200, "body": 1}, "expected an error, or a status and a body"),
        ({"status": 200, "body": None}, "expected an error, or a status and a body"),
    ]
    for keys, message in rows:
        with pytest.raises(RecordingError) as caught:
            parse_answer(keys)
        assert str(caught.value) == message, keys


def test_times_that_are_not_plausible_are_refused() -> None:
    for keys in ({}, {"t": "1"}, {"t": None}, {"t": 1, "took": -0.1}, {"t": float("inf")}, {"t": 1, "took": "x"}):
        with pytest.raises(RecordingError, match=r"^expected numbers for t and took$"):
            parse_times(keys)
    assert parse_times({"t": 3}) == (3.0, 0.0)
