"""The recording format: JSON lines, plain, gzip or xz; a header, then one line per scrape.

    {"kind": "header", "engine": "vllm", "version": "0.32.0", ...}
    {"kind": "scrape", "t": 12.0, "took": 0.02, "status": 200, "body": "..."}
    {"kind": "scrape", "t": 13.0, "error": "connect"}

`t` is when the scrape was sent, in seconds since the start on a monotonic clock; `took` how long it lasted.
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
    # What other recorders call their errors; anything else broke the connection.
    "TimeoutError": Reason.TIMEOUT,
    "ServerTimeoutError": Reason.TIMEOUT,
    "ConnectTimeout": Reason.TIMEOUT,
    "ReadTimeout": Reason.TIMEOUT,
    "ClientConnectorSSLError": Reason.TLS,
    "ClientConnectorCertificateError": Reason.TLS,
}


_LARGEST_NUMBER: Final = 1e12


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """What a recording says of itself.

    Attributes:
        backend: which kind of server it is of; the key is called `engine` in the file.
        wall_start: Unix time of t = 0; None if it was not noted.
        keys: the whole first line.
    """

    backend: Any
    wall_start: float | None
    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedScrape:
    """One scrape: when it was sent, how many seconds it took, and the response or the error that ended it."""

    time: float
    took: float
    outcome: Response | ScrapeError

    @property
    def response(self) -> Response | None:
        """The response; None for a scrape that failed."""
        return self.outcome if isinstance(self.outcome, Response) else None


class RecordingReader:
    """A recording, read line by line.

    Args:
        path: ends in .jsonl, .jsonl.gz or .jsonl.xz.

    Raises:
        RecordingError: it cannot be read or is no recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = self._read()
        number, first = next(self._lines, (1, {}))
        if first.get("kind") != "header":
            raise RecordingError(f'{path}:{number}: no recording: expected a first line with "kind": "header"')
        # Recordings of other programs may leave the engine out: only vLLM had recordings then.
        self.header = RecordingHeader(
            backend=first.get("engine", "vllm"), wall_start=_parse_number(first.get("wall_start")), keys=first
        )

    def scrapes(self) -> Iterator[RecordedScrape]:
        """Every scrape, in order.

        Raises:
            RecordingError: a line is no scrape, or time does not go forward.
        """
        before = -1.0
        for number, line in self._lines:
            if line.get("kind") != "scrape":
                continue
            scrape = self._scrape(number, line)
            if scrape.time <= before:
                raise RecordingError(f"{self.path}:{number}: t must be above that of the scrape before")
            before = scrape.time
            yield scrape

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            with _open(self.path, "rt") as file:
                for number, text in enumerate(file, start=1):
                    yield number, self._object(number, text)
        except (OSError, EOFError, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or error
            where = f" after line {number}" if number else ""
            raise RecordingError(f"{self.path}: cannot be read{where}: {reason}") from error
        except UnicodeDecodeError as error:
            raise RecordingError(f"{self.path}: is not UTF-8 text after line {number}: {error.reason}") from error

    def _object(self, number: int, text: str) -> dict[str, Any]:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RecordingError(f"{self.path}:{number}: no valid JSON: {error}") from error
        if not isinstance(line, dict):
            raise RecordingError(f"{self.path}:{number}: expected an object")
        return line

    def _scrape(self, number: int, line: Mapping[str, Any]) -> RecordedScrape:
        time, took = _parse_number(line.get("t")), _parse_number(line.get("took", 0.0))
        if time is None or took is None or took < 0:
            raise RecordingError(f"{self.path}:{number}: expected numbers for t and took")
        if "error" in line:
            return RecordedScrape(time, took, _create_error(str(line["error"])))
        status, body = line.get("status"), line.get("body", "")
        if not isinstance(status, int) or not isinstance(body, str):
            raise RecordingError(f"{self.path}:{number}: expected an error, or a status and a body")
        response = Response(status, str(line.get("content_type", "")), _encode_body(body))
        return RecordedScrape(time, took, response)


def _parse_number(value: object) -> float | None:
    """A finite number of a sensible size."""
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER else None


def _encode_body(body: str) -> bytes:
    """The bytes of a body: those that were no UTF-8 are kept as `RecordingWriter` wrote them."""
    try:
        return body.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return body.encode("utf-8", "surrogatepass")


def _create_error(name: str) -> ScrapeError:
    reason = _ERROR_NAMES.get(name, Reason.CONNECT)
    return ScrapeError(reason, f"recorded as {name}")


class RecordingWriter:
    """Writes a recording; a context manager that leaves a readable file however it is left.

    It writes beside the file and takes its place at the end, so that a file of that name is not lost to a recording
    that holds not a single answer.

    Args:
        path: ends in .jsonl, .jsonl.gz or .jsonl.xz.
        header: facts for the first line.

    Raises:
        RecordingError: the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        special = path.exists() and not path.is_file()
        self._written = path if special else path.with_name(f".{path.name}")
        self._responses = 0
        try:
            self._file = _open(self._written, "wt")
        except OSError as error:
            raise RecordingError(f"{path}: cannot be written: {error.strerror}") from error
        self._write({"kind": "header", **header})

    def write_response(self, time: float, took: float, response: Response) -> None:
        """Keep a response."""
        body = response.body.decode("utf-8", "surrogateescape")
        line = {"t": time, "took": took, "status": response.status, "content_type": response.content_type, "body": body}
        self._write({"kind": "scrape", **line})
        self._responses += 1

    def write_error(self, time: float, took: float, error: ScrapeError) -> None:
        """Keep a failure."""
        self._write({"kind": "scrape", "t": time, "took": took, "error": error.reason.value})

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
            if self._written != self._path:
                self._written.replace(self._path) if self._responses else self._written.unlink()
        except OSError as failure:
            raise RecordingError(f"{self._path}: cannot be written: {failure.strerror}") from failure


def _open(path: Path, mode: str) -> TextIO:
    file: Any
    match path.suffix:
        case ".xz":
            file = lzma.open(path, mode, encoding="utf-8")  # noqa: SIM115  # closed by whoever opened it here
        case ".gz":
            file = gzip.open(path, mode, encoding="utf-8")  # noqa: SIM115  # same
        case _:
            file = path.open(mode, encoding="utf-8")
    opened: TextIO = file
    return opened
