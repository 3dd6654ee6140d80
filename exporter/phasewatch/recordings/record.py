"""`phasewatch record`: writes what a server shows of itself to a file."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from phasewatch import __version__
from phasewatch.backends import find_backend
from phasewatch.backends.backend import Clock, Recorder
from phasewatch.base.errors import ScrapeError
from phasewatch.base.units import format_duration
from phasewatch.config.settings import Target
from phasewatch.recordings.format import RecordingWriter


@dataclass(frozen=True)
class RecordingOutcome:
    """Result of a recording.

    Attributes:
        scrapes: scrapes made.
        failed: scrapes without a page.
        usable: scrapes with a page that can be parsed.
        last_error: the newest error.
    """

    scrapes: int = 0
    failed: int = 0
    usable: int = 0
    last_error: ScrapeError | None = None


async def record(target: Target, *, duration: float, interval: float, output: Path) -> RecordingOutcome:
    """Scrape a server at a fixed interval and write its pages; SIGINT or SIGTERM stops early and keeps the file.

    Args:
        target: the server, of a kind with a recorder.
        duration: length of the recording, seconds.
        interval: seconds between scrapes.
        output: file to write; an existing one is replaced once there is a page.

    Raises:
        RecordingError: the file cannot be written.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    create_recorder = find_backend(target.backend).create_recorder
    assert create_recorder is not None  # noqa: S101  # checked by the caller
    recorder = create_recorder(target)
    planned = max(1, round(duration / interval))
    outcome = RecordingOutcome()
    try:
        facts = await _fetch_header(recorder, stopped)
        wall_start, start = time.time(), time.monotonic()
        with RecordingWriter(output, _create_header(target, facts, interval, wall_start)) as writer:
            for index in range(planned):
                await _wait(stopped, start + index * interval - time.monotonic())
                if stopped.is_set():
                    break
                outcome = await _scrape(recorder, writer, lambda: time.monotonic() - start, outcome)
                _report_progress(outcome, planned, interval)
    finally:
        await recorder.close()
    return outcome


async def _fetch_header(recorder: Recorder, stopped: asyncio.Event) -> Mapping[str, object]:
    """Request the server's keys of the header; none if the user stops the recording first."""
    fetch, stop = asyncio.ensure_future(recorder.fetch_header()), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({fetch, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if fetch.done():
        return fetch.result()
    fetch.cancel()
    return {}


def _create_header(
    target: Target, facts: Mapping[str, object], interval: float, wall_start: float
) -> dict[str, object]:
    return {
        "engine": target.backend,
        **facts,
        "interval": interval,
        "wall_start": round(wall_start, 3),
        "recorded_by": f"phasewatch {__version__}",
    }


async def _wait(stopped: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        try:
            await asyncio.wait_for(stopped.wait(), seconds)
        except TimeoutError:
            return


async def _scrape(
    recorder: Recorder, writer: RecordingWriter, clock: Clock, outcome: RecordingOutcome
) -> RecordingOutcome:
    outcome = replace(outcome, scrapes=outcome.scrapes + 1)
    line = await recorder.fetch_line(clock)
    writer.write_line(line)
    if isinstance(line.outcome, ScrapeError):
        return replace(outcome, failed=outcome.failed + 1, last_error=line.outcome)
    try:
        recorder.check(line)
    except ScrapeError as error:
        return replace(outcome, last_error=error)
    return replace(outcome, usable=outcome.usable + 1)


def _report_progress(outcome: RecordingOutcome, planned: int, interval: float) -> None:
    """Print the progress: a line that is rewritten on a terminal; elsewhere a new line about every ten seconds."""
    is_terminal = sys.stderr.isatty()
    is_last = outcome.scrapes == planned
    if is_terminal or is_last or outcome.scrapes % max(1, round(10 / interval)) == 0:
        left = format_duration((planned - outcome.scrapes) * interval)
        line = f"recorded {outcome.scrapes} of {planned} scrapes, {outcome.failed} failed, {left} left"
        sys.stderr.write(f"\r{line}\033[K{chr(10) if is_last else ''}" if is_terminal else f"{line}\n")
        sys.stderr.flush()
