"""What is known of the devices behind a target, wherever it comes from."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MIN_MEMORY_BANDWIDTH: Final = 1e9
MAX_MEMORY_BANDWIDTH: Final = 1e14
"""Bytes per second that the memory of a device can have: what is beyond is a slip of the unit."""

MIN_COMPUTE_RATE: Final = 1e9
MAX_COMPUTE_RATE: Final = 1e17
"""Operations per second of a device, likewise."""

MAX_DEVICES: Final = 1024
"""Of one server; the largest have 16 GPUs of 7 instances each, and a few of them may work together."""


class DeviceLayout(StrEnum):
    """How several devices share one model."""

    TENSOR = "tensor"
    """Each holds a slice of every layer and all work on the same step: bandwidths add."""
    PIPELINE = "pipeline"
    """Each holds some of the layers and a token visits one after the other: times add."""
    REPLICA = "replica"
    """Each holds the whole model and serves requests of its own."""


class DeviceSource(StrEnum):
    """Where a figure comes from: the `source` label of the device metrics."""

    CONFIG = "config"
    TABLE = "table"
    DRIVER = "driver"
    MEASURED = "measured"


class Precision(StrEnum):
    """The number format that matrix products are computed in."""

    BITS16 = "16bit"
    FP8 = "fp8"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """Dense operations per second of one device by precision, as the vendor publishes them; None where it does not."""

    bits16: float | None = None
    fp8: float | None = None
    int8: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The devices of one target.

    Attributes:
        name: as in the table, or as reported where the table has none; None if only figures are known.
        count: how many.
        layout: how they share the model; without meaning for one.
        memory_bandwidth: bytes per second of one device.
        bandwidth_source: where that comes from.
        compute: of one device.
        compute_source: where that comes from.
        cpu_memory_bandwidth: bytes per second of the host's memory, for the part of a model that does not fit.
    """

    name: str | None = None
    count: int = 1
    layout: DeviceLayout = DeviceLayout.TENSOR
    memory_bandwidth: float | None = None
    bandwidth_source: DeviceSource | None = None
    compute: ComputeRates = ComputeRates()
    compute_source: DeviceSource | None = None
    cpu_memory_bandwidth: float | None = None


def parse_bandwidth(value: object) -> float | None:
    """Bytes per second, if that can be the bandwidth of a device's memory: 1 GB/s to 100 TB/s."""
    if isinstance(value, int | float) and MIN_MEMORY_BANDWIDTH <= value <= MAX_MEMORY_BANDWIDTH:
        return float(value)
    return None
