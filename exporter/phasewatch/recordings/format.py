"""The format of recordings: JSON lines, plain or compressed with gzip or xz; a header, then one line per scrape.

    {"kind": "header", "engine": "vllm", "version": "0.32.0", ...}
    {"kind": "scrape", "t": 12.0, "took": 0.02, "status": 200, "body": "..."}
    {"kind": "scrape", "t": 13.0, "error": "connect", "refused": true}
    {"kind": "scrape", "t": 14.0, "took": 0.02, "status": 200, "body": "...", "slots": {"t": 14.02, ...}}

A line holds an answer (`scrape.recorded`), answers as parts under names, or both.
"""

import gzip
import json
import lzma
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from phasewatch.base.errors import RecordingError, ScrapeError
from phasewatch.scrape.recorded import SCRAPE, FetchedLine, RecordedScrape, parse_answer, parse_number, parse_times


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
            backend=first.get("engine", "vllm"), wall_start=parse_number(first.get("wall_start")), keys=first
        )

    def read_scrapes(self, kinds: frozenset[str] = frozenset({SCRAPE})) -> Iterator[RecordedScrape]:
        """Read every scrape, in order.

        Args:
            kinds: kinds of lines to read; others are skipped.

        Raises:
            RecordingError: a line is not valid, or the times do not increase.
        """
        previous = -1.0
        for number, line in self._lines:
            kind = line.get("kind")
            if not isinstance(kind, str) or kind not in kinds:
                continue
            with self.locate(number):
                scrape = _parse_scrape(kind, number, line)
                if scrape.time <= previous:
                    raise RecordingError("t must be above that of the scrape before")
            previous = scrape.time
            yield scrape

    @contextmanager
    def locate(self, number: int) -> Iterator[None]:
        """Put file and line in front of the message of a `RecordingError` that a line causes."""
        try:
            yield
        except RecordingError as error:
            raise RecordingError(f"{self.path}:{number}: {error}") from error

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


def _parse_scrape(kind: str, number: int, line: Mapping[str, Any]) -> RecordedScrape:
    time, took = parse_times(line)
    has_answer = not line.keys().isdisjoint({"error", "status", "body"})
    has_parts = any(isinstance(value, dict | list) for value in line.values())
    outcome = parse_answer(line) if has_answer or not has_parts else None
    return RecordedScrape(time, took, outcome, line, kind, number)


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

    def write_line(self, line: FetchedLine) -> None:
        """Write a scrape, or what else was read.

        Raises:
            RecordingError: the file cannot be written.
        """
        self._write({"kind": line.kind, **line.keys})
        self._responses += not isinstance(line.outcome, ScrapeError)

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
