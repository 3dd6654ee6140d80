"""The format of recordings: JSON lines, plain or compressed with gzip or xz; a header, then one line per scrape.

    {"kind": "header", "engine": "vllm", "version": "0.32.0", ...}
    {"kind": "scrape", "t": 12.0, "took": 0.02, "status": 200, "body": "..."}
    {"kind": "scrape", "t": 13.0, "error": "connect", "refused": true}

`t` is the time at which the scrape was sent, in monotonic seconds since the start; `took` its duration in seconds.
`refused` stands beside the error of a connection that was refused (see `ScrapeError`).
"""

import gzip
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from phasewatch.base.errors import Reason, RecordingError, ScrapeError
from phasewatch.scrape.http import Response

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
class RecordingHeader:
    """The header of a recording.

    Attributes:
        backend: kind of the recorded server; the key `engine` of the file.
        wall_start: Unix time of t = 0; None if it was not recorded.
        keys: all keys of the first line.
    """

    backend: Any
    wall_start: float | None
    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedScrape:
    """One recorded scrape.

    Attributes:
        time: time at which it was sent, seconds since the start.
        took: duration, seconds.
        outcome: the response, or the error.
    """

    time: float
    took: float
    outcome: Response | ScrapeError

    @property
    def response(self) -> Response | None:
        """The response; None for a failed scrape."""
        return self.outcome if isinstance(self.outcome, Response) else None


class RecordingReader:
    """Reads a recording line by line.

    Args:
        path: file that ends in .jsonl, .jsonl.gz or .jsonl.xz.

    Raises:
        RecordingError: the file cannot be read or is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._read()
        number, first = next(self._lines, (1, {}))
        if first.get("kind") != "header":
            raise RecordingError(f'{path}:{number}: no recording: expected a first line with "kind": "header"')
        # Recordings by other tools, all of them of vLLM, may lack the key.
        self.header = RecordingHeader(
            backend=first.get("engine", "vllm"), wall_start=_parse_number(first.get("wall_start")), keys=first
        )

    def read_scrapes(self) -> Iterator[RecordedScrape]:
        """Read every scrape, in order.

        Raises:
            RecordingError: a line is not valid, or the times do not increase.
        """
        previous = -1.0
        for number, line in self._lines:
            if line.get("kind") != "scrape":
                continue
            scrape = self._parse_scrape(number, line)
            if scrape.time <= previous:
                raise RecordingError(f"{self.path}:{number}: t must be above that of the scrape before")
            previous = scrape.time
            yield scrape

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            with _open(self.path, "rt") as file:
                for number, text in enumerate(file, start=1):
                    yield number, self._parse_line(number, text)
        except (OSError, EOFError, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or error
            where = f" after line {number}" if number else ""
            raise RecordingError(f"{self.path}: cannot be read{where}: {reason}") from error
        except UnicodeDecodeError as error:
            raise RecordingError(f"{self.path}: is not UTF-8 text after line {number}: {error.reason}") from error

    def _parse_line(self, number: int, text: str) -> dict[str, Any]:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RecordingError(f"{self.path}:{number}: no valid JSON: {error}") from error
        if not isinstance(line, dict):
            raise RecordingError(f"{self.path}:{number}: expected an object")
        return line

    def _parse_scrape(self, number: int, line: Mapping[str, Any]) -> RecordedScrape:
        time, took = _parse_number(line.get("t")), _parse_number(line.get("took", 0.0))
        if time is None or took is None or took < 0:
            raise RecordingError(f"{self.path}:{number}: expected numbers for t and took")
        if "error" in line:
            return RecordedScrape(time, took, _create_error(str(line["error"]), refused=line.get("refused") is True))
        status, body = line.get("status"), line.get("body", "")
        if not isinstance(status, int) or not isinstance(body, str):
            raise RecordingError(f"{self.path}:{number}: expected an error, or a status and a body")
        response = Response(status, str(line.get("content_type", "")), _encode_body(body))
        return RecordedScrape(time, took, response)


def _parse_number(value: object) -> float | None:
    """Parse a finite number of a plausible size; None for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER else None


def _encode_body(body: str) -> bytes:
    """Encode a body as the original bytes; `RecordingWriter` keeps bytes that are not UTF-8 as surrogates."""
    try:
        return body.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return body.encode("utf-8", "surrogatepass")


def _create_error(name: str, *, refused: bool) -> ScrapeError:
    reason = _ERROR_NAMES.get(name, Reason.CONNECT)
    return ScrapeError(reason, f"recorded as {name}", refused=refused or name in _REFUSALS)


class RecordingWriter:
    """Writes a recording; a context manager that leaves a readable file in every case.

    It writes to a temporary file beside `path` and replaces `path` at the end, but only if there was a response: an
    existing file is not lost to an empty recording.

    Args:
        path: file that ends in .jsonl, .jsonl.gz or .jsonl.xz.
        header: keys of the first line.

    Raises:
        RecordingError: the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        is_special = path.exists() and not path.is_file()
        self._temporary = path if is_special else path.with_name(f".{path.name}")
        self._responses = 0
        try:
            self._file = _open(self._temporary, "wt")
        except OSError as error:
            raise RecordingError(f"{path}: cannot be written: {error.strerror}") from error
        self._write({"kind": "header", **header})

    def write_response(self, time: float, took: float, response: Response) -> None:
        """Write a response.

        Args:
            time: time at which the scrape was sent, seconds since the start.
            took: duration, seconds.
            response: the response.

        Raises:
            RecordingError: the file cannot be written.
        """
        body = response.body.decode("utf-8", "surrogateescape")
        line = {"t": time, "took": took, "status": response.status, "content_type": response.content_type, "body": body}
        self._write({"kind": "scrape", **line})
        self._responses += 1

    def write_error(self, time: float, took: float, error: ScrapeError) -> None:
        """Write a failure; arguments and errors as in `write_response`."""
        refused = {"refused": True} if error.refused else {}
        self._write({"kind": "scrape", "t": time, "took": took, "error": error.reason.value, **refused})

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RecordingError(f"{self._path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
            if self._temporary != self._path:
                self._temporary.replace(self._path) if self._responses else self._temporary.unlink()
        except OSError as failure:
            raise RecordingError(f"{self._path}: cannot be written: {failure.strerror}") from failure


def _open(path: Path, mode: str) -> TextIO:
    file: Any
    match path.suffix:
        case ".xz":
            file = lzma.open(path, mode, encoding="utf-8")  # noqa: SIM115  # closed by the caller
        case ".gz":
            file = gzip.open(path, mode, encoding="utf-8")  # noqa: SIM115  # same
        case _:
            file = path.open(mode, encoding="utf-8")
    opened: TextIO = file
    return opened
