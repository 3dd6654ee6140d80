"""Answers of a server as they stand in a recording: an object that is a line, or a part of one under a name.

    {"t": 12.0, "took": 0.02, "status": 200, "content_type": "text/plain", "body": "..."}
    {"t": 13.0, "took": 4.0, "error": "timeout"}
    {"t": 14.0, "took": 0.0, "error": "connect", "refused": true}

`t` is the time at which the request was sent, in monotonic seconds since the start of the recording; `took` the seconds
to the end of the answer. `start` beside a status is the header `Process-Start-Time-Unix`, where the server sends it.
`refused` stands beside the error of a connection that was refused (see `ScrapeError`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.scrape.http import Response

SCRAPE: Final = "scrape"
"""The usual kind of a line."""

_DECIMALS: Final = 4
"""Decimal places of recorded seconds."""

_ERROR_NAMES: Final[Mapping[str, Reason]] = {
    **{reason.value: reason for reason in Reason},
    # Names used by other recorders; any other error counts as a broken connection.
    "TimeoutError": Reason.TIMEOUT,
    "ServerTimeoutError": Reason.TIMEOUT,
    "ConnectTimeout": Reason.TIMEOUT,
    "ReadTimeout": Reason.TIMEOUT,
    "ClientConnectorSSLError": Reason.TLS,
    "ClientConnectorCertificateError": Reason.TLS,
}

_REFUSALS: Final = frozenset({"ClientConnectorError", "ConnectionRefusedError"})
"""Names by which other recorders record a refused connection. aiohttp has other names for failures of name resolution
and TLS, and for connections that broke."""

_LARGEST_NUMBER: Final = 1e12
"""Numbers from here on are not accepted as times, seconds."""


@dataclass(frozen=True, slots=True)
class RecordedScrape:
    """One line of a recording.

    Attributes:
        time: time at which the scrape was sent, seconds since the start.
        took: duration, seconds.
        outcome: the answer that the line itself holds, or the error; None if it consists of named parts only.
        keys: all keys of the line.
        kind: what was read: "scrape", or another kind of line that the backend has.
        number: number of the line in its file, from 1; 0 outside of one.
    """

    time: float
    took: float
    outcome: Response | ScrapeError | None
    keys: Mapping[str, Any]
    kind: str = SCRAPE
    number: int = 0

    @property
    def response(self) -> Response | None:
        """The response; None for a failed scrape and for a line without an answer of its own."""
        return self.outcome if isinstance(self.outcome, Response) else None


@dataclass(frozen=True, slots=True)
class FetchedLine:
    """One line for a recording, fresh from a server.

    Attributes:
        keys: keys of the line except `kind`: `t` and `took`, and the answers, each as `record_answer` formats it.
        outcome: the answer that decides whether the scrape has failed.
        kind: see `RecordedScrape`.
    """

    keys: Mapping[str, object]
    outcome: Response | ScrapeError
    kind: str = SCRAPE


async def record_answer(
    request: Awaitable[Response], clock: Callable[[], float]
) -> tuple[dict[str, object], Response | ScrapeError]:
    """Await an answer and format it for a recording. A failed request is an answer too.

    Args:
        request: the request, not yet sent.
        clock: seconds since the start of the recording.

    Returns:
        The keys of the answer, and the answer.
    """
    sent = clock()
    try:
        outcome: Response | ScrapeError = await request
    except ScrapeError as error:
        outcome = error
    times = {"t": round(sent, _DECIMALS), "took": round(clock() - sent, _DECIMALS)}
    return {**times, **_format_outcome(outcome)}, outcome


def parse_answer(keys: Any) -> Response | ScrapeError:
    """Parse a recorded answer.

    Raises:
        RecordingError: it is not one. The message does not name the place.
    """
    if not isinstance(keys, Mapping):
        raise RecordingError("expected an object")
    if "error" in keys:
        return _create_error(str(keys["error"]), refused=keys.get("refused") is True)
    status, body, start = keys.get("status"), keys.get("body", ""), keys.get("start")
    # A boolean is all that is kept of a body that is large and has no other figure of interest, such as /props.
    if not isinstance(status, int) or not isinstance(body, str | bool):
        raise RecordingError("expected an error, or a status and a body")
    return Response(
        status,
        str(keys.get("content_type", "")),
        _encode_body(body) if isinstance(body, str) else str(body).lower().encode(),
        start=None if start is None else str(start),
    )


def parse_times(keys: Mapping[str, Any]) -> tuple[float, float]:
    """Parse `t` and `took` of a recorded answer, seconds; a missing duration is 0.

    Raises:
        RecordingError: they are not plausible numbers. The message does not name the place.
    """
    time, took = parse_number(keys.get("t")), parse_number(keys.get("took", 0.0))
    if time is None or took is None or took < 0:
        raise RecordingError("expected numbers for t and took")
    return time, took


def parse_number(value: object) -> float | None:
    """Parse a finite number of a plausible size; None for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER else None


def _format_outcome(outcome: Response | ScrapeError) -> dict[str, object]:
    """Format an answer without its times."""
    if isinstance(outcome, ScrapeError):
        return {"error": outcome.reason.value, **({"refused": True} if outcome.refused else {})}
    body = outcome.body.decode("utf-8", "surrogateescape")
    start = {} if outcome.start is None else {"start": outcome.start}
    return {"status": outcome.status, "content_type": outcome.content_type, **start, "body": body}


def _encode_body(body: str) -> bytes:
    """Encode a body as the original bytes; bytes that are not UTF-8 were kept as surrogates."""
    try:
        return body.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return body.encode("utf-8", "surrogatepass")


def _create_error(name: str, *, refused: bool) -> ScrapeError:
    reason = _ERROR_NAMES.get(name, Reason.CONNECT)
    return ScrapeError(reason, f"recorded as {name}", refused=refused or name in _REFUSALS)
