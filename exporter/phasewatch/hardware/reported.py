"""Devices as a vendor's driver or a DCGM exporter reports them, before the table is consulted."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 2.0**20

_MAX_MEMORY: Final = 2.0**50
"""Bytes; DCGM reports a blank value as a number near 2**63."""

_MAX_ERROR_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """One device, or one partition that works as a device. A figure is None if it is not reported.

    Attributes:
        name: name of the whole device, as its driver reports it.
        memory: memory of the device or partition, bytes.
        profile: profile of the partition, such as `3g.40gb` (MIG) or `CPX` (AMD); None for a whole device.
        memory_bandwidth: memory bandwidth of the device or partition, bytes per second, from the driver's figures.
    """

    name: str | None
    memory: float | None = None
    profile: str | None = None
    memory_bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class DetectedDevices:
    """The reported devices. If there are none, `reason` explains why in one line."""

    devices: tuple[ReportedDevice, ...]
    reason: str | None = None


def parse_memory(value: object) -> float | None:
    """The value as bytes if it is a plausible memory size (1 MiB to 1 PiB); None otherwise."""
    return float(value) if isinstance(value, int | float) and MIB <= value <= _MAX_MEMORY else None


def format_error(error: Exception) -> str:
    """The message of an error in one line, shortened; its class if it has no message."""
    return " ".join(str(error).split())[:_MAX_ERROR_LENGTH] or type(error).__name__
