"""The measured memory bandwidth of this machine: kept in a file of the user's state folder, and read back."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from phasewatch.hardware.facts import parse_bandwidth
from phasewatch.hardware.measure import MeasurementError, MemoryMeasurement, read_processor_name

_LARGEST_FILE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """The bandwidth that was kept, in bytes per second; where there is none, `reason` says why, in words."""

    memory_bandwidth: float | None
    reason: str | None = None


def locate_measurement_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the measurement is kept (XDG base directories: a relative state home counts as none).

    Raises:
        MeasurementError: the user has no home.
    """
    told = Path(environment.get("XDG_STATE_HOME", ""))
    try:
        home = told if told.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise MeasurementError(f"there is no place to keep the measurement: {error}; set XDG_STATE_HOME") from error
    return home / "phasewatch" / "cpu-memory-bandwidth.json"


def store_measurement(measurement: MemoryMeasurement) -> Path:
    """Keep a measurement in place of the one before.

    Returns:
        The file.

    Raises:
        MeasurementError: it cannot be written.
    """
    path = locate_measurement_file()
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(asdict(measurement), indent=2) + "\n", encoding="utf-8")
        written.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            written.unlink()
        raise MeasurementError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def load_stored_measurement() -> StoredMeasurement:
    """The bandwidth of this machine's memory, if it was measured."""
    try:
        path = locate_measurement_file()
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            return StoredMeasurement(None, f"the measurement cannot be read: {path} is no regular file")
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        return StoredMeasurement(None, "not measured yet")
    except (MeasurementError, OSError) as error:
        return StoredMeasurement(None, f"the measurement cannot be read: {error}")
    kept = _object(content)
    if kept is None:
        return StoredMeasurement(None, f"{path}: is no measurement of this program")
    if kept.get("processor") != read_processor_name():
        return StoredMeasurement(None, f"{path}: was measured on another processor")
    bandwidth = parse_bandwidth(kept.get("memory_bandwidth"))
    return StoredMeasurement(bandwidth, None if bandwidth else f"{path}: memory_bandwidth: expected bytes per second")


def _object(content: bytes) -> Mapping[str, Any] | None:
    if len(content) > _LARGEST_FILE:
        return None
    try:
        kept = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return kept if isinstance(kept, dict) else None
