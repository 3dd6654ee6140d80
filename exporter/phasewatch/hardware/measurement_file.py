"""The file in the user's state folder that keeps the measured memory bandwidth of this machine."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from phasewatch.hardware.facts import parse_bandwidth
from phasewatch.hardware.measure import MeasurementError, MemoryMeasurement, read_processor_name

_MAX_FILE_SIZE: Final = 64 * 1024
"""Bytes; a measurement takes a few kilobytes."""


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """The stored memory bandwidth, bytes per second. If it is None, `reason` explains why."""

    memory_bandwidth: float | None
    reason: str | None = None


def locate_measurement_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the measurement file, below XDG_STATE_HOME (a relative one is ignored, as the XDG specification asks).

    Raises:
        MeasurementError: the user has no home folder.
    """
    state_home = Path(environment.get("XDG_STATE_HOME", ""))
    try:
        folder = state_home if state_home.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise MeasurementError(f"there is no place to keep the measurement: {error}; set XDG_STATE_HOME") from error
    return folder / "phasewatch" / "cpu-memory-bandwidth.json"


def store_measurement(measurement: MemoryMeasurement) -> Path:
    """Store a measurement, replacing the previous one.

    Returns:
        The file it was written to.

    Raises:
        MeasurementError: the file cannot be written.
    """
    path = locate_measurement_file()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(measurement), indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise MeasurementError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def load_stored_measurement() -> StoredMeasurement:
    """The stored memory bandwidth of this machine, if it was measured on this processor."""
    try:
        path = locate_measurement_file()
        if path.exists() and not path.is_file():  # opening a pipe would block until it has a writer
            return StoredMeasurement(None, f"the measurement cannot be read: {path} is no regular file")
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_SIZE + 1)
    except FileNotFoundError:
        return StoredMeasurement(None, "not measured yet")
    except (MeasurementError, OSError) as error:
        return StoredMeasurement(None, f"the measurement cannot be read: {error}")
    document = _parse_object(content)
    if document is None:
        return StoredMeasurement(None, f"{path}: is no measurement of this program")
    if document.get("processor") != read_processor_name():
        return StoredMeasurement(None, f"{path}: was measured on another processor")
    bandwidth = parse_bandwidth(document.get("memory_bandwidth"))
    return StoredMeasurement(bandwidth, None if bandwidth else f"{path}: memory_bandwidth: expected bytes per second")


def _parse_object(content: bytes) -> Mapping[str, Any] | None:
    if len(content) > _MAX_FILE_SIZE:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
