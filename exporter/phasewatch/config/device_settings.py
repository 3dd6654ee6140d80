"""What the operator says of a target's devices."""

from dataclasses import dataclass

from phasewatch.hardware.facts import DeviceLayout


@dataclass(frozen=True)
class DeviceSettings:
    """The devices of a target, as configured; None where nothing is said. Sizes in bytes, rates per second.

    Attributes:
        name: as `phasewatch devices` lists it or a driver reports it; `CPU` for the memory of this machine.
        memory: of one device.
        count: how many the server uses.
        layout: how they share the model; None for the usual one of the server.
        memory_bandwidth: of one device.
        flops: of one device, at the precision of the model.
        cpu_memory_bandwidth: of the host, for a model that is partly in its memory.
        page: address of a DCGM exporter's metrics that tell the device.
    """

    name: str | None = None
    memory: float | None = None
    count: int | None = None
    layout: DeviceLayout | None = None
    memory_bandwidth: float | None = None
    flops: float | None = None
    cpu_memory_bandwidth: float | None = None
    page: str | None = None
