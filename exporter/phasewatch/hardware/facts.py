"""The devices of a target: what they are, how fast they are, and where each figure comes from."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MIN_MEMORY_BANDWIDTH: Final = 1e9
MAX_MEMORY_BANDWIDTH: Final = 1e14
"""Plausible memory bandwidth of one device, bytes per second. A value outside is in the wrong unit."""

MIN_COMPUTE_RATE: Final = 1e9
MAX_COMPUTE_RATE: Final = 1e17
"""Plausible compute rate of one device, operations per second."""

MAX_DEVICES: Final = 1024
"""Devices of one server. The largest have 16 GPUs of 7 MIG instances each, and several may form one server."""


class DeviceLayout(StrEnum):
    """How several devices share one model: the `layout` key of a target's devices."""

    TENSOR = "tensor"
    """Each device holds a slice of every layer and all work on the same step: bandwidths add up."""
    PIPELINE = "pipeline"
    """Each device holds some of the layers and a token visits them in turn: times add up."""
    REPLICA = "replica"
    """Each device holds the whole model and serves its own requests."""


class DeviceSource(StrEnum):
    """Where a figure of a device comes from: the `source` label of the device metrics."""

    CONFIG = "config"
    TABLE = "table"
    DRIVER = "driver"
    MEASURED = "measured"


class Precision(StrEnum):
    """Number format of the matrix multiplications."""

    BITS16 = "16bit"
    FP8 = "fp8"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """Dense operations per second of one device, by precision, as published by the vendor; None if unpublished."""

    bits16: float | None = None
    fp8: float | None = None
    int8: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The devices of one target. A figure is None if it is unknown.

    Attributes:
        name: name in the table, or the reported name if the table has none; None if only figures are known.
        count: number of devices.
        layout: how they share the model; meaningless for a single device.
        memory_bandwidth: memory bandwidth of one device, bytes per second.
        bandwidth_source: where the memory bandwidth comes from.
        compute: compute rates of one device.
        compute_source: where the compute rates come from.
        cpu_memory_bandwidth: bandwidth of the host's memory, bytes per second, for the part of a model that
            does not fit in device memory.
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
    """The value as bytes per second if it is a plausible memory bandwidth (1 GB/s to 100 TB/s); None otherwise."""
    if isinstance(value, int | float) and MIN_MEMORY_BANDWIDTH <= value <= MAX_MEMORY_BANDWIDTH:
        return float(value)
    return None
