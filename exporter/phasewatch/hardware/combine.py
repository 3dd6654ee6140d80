"""Combine the facts of a target's devices: configured figures first, then the table, then the driver's figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceLayout, DeviceSource
from phasewatch.hardware.reported import ReportedDevice
from phasewatch.hardware.resolve import MAX_NAME_LENGTH, ResolvedDevice, resolve_device
from phasewatch.hardware.wording import CPU, DEFAULT_ADVICE, describe_unresolved, is_this_machine

_BANDWIDTH_TOLERANCE: Final = 0.1
"""Relative difference between the driver's bandwidth and the table's from which the driver's is used: clocks of one
product differ by a few percent."""

_MEMORY_TOLERANCE: Final = 0.12
"""Relative difference in memory up to which devices of one name are the same product: less than between any two
products that share a name."""

_NO_RATES: Final = ComputeRates()


@dataclass(frozen=True, slots=True)
class _DeviceLookup:
    """Facts of one device from the table, its driver or a measurement, and a note on what is missing or ambiguous."""

    name: str | None = None
    memory_bandwidth: float | None = None
    bandwidth_source: DeviceSource | None = None
    compute: ComputeRates = _NO_RATES
    note: str | None = None


def combine_device_facts(
    *,
    name: str | None = None,
    memory: float | None = None,
    count: int | None = None,
    layout: DeviceLayout = DeviceLayout.TENSOR,
    memory_bandwidth: float | None = None,
    flops: float | None = None,
    cpu_memory_bandwidth: float | None = None,
    reported: Sequence[ReportedDevice] = (),
    measured: float | None = None,
) -> tuple[DeviceFacts, tuple[str, ...]]:
    """The facts of a target's devices, and notes for the operator about them.

    Args:
        name: configured name; `CPU` for this machine's memory.
        memory: configured memory of one device, bytes.
        count: configured number of devices; None if not configured.
        layout: configured layout.
        memory_bandwidth: configured bandwidth of one device, bytes per second.
        flops: configured compute rate of one device at the model's precision, operations per second; applies to every
            precision.
        cpu_memory_bandwidth: configured bandwidth of the host's memory, bytes per second.
        reported: the devices of the target's machine, as its drivers or a DCGM exporter report them.
        measured: measured bandwidth of this machine's memory, bytes per second; only for a target that runs on it.
    """
    lookup = _look_up_name(name, memory, measured) if name is not None else _look_up_reported(reported, count, memory)
    notes = (lookup.note,) if lookup.note and memory_bandwidth is None else ()
    compute_from_table = flops is None and lookup.compute != _NO_RATES
    facts = DeviceFacts(
        name=lookup.name,
        count=count or 1,
        layout=layout,
        memory_bandwidth=lookup.memory_bandwidth if memory_bandwidth is None else memory_bandwidth,
        bandwidth_source=lookup.bandwidth_source if memory_bandwidth is None else DeviceSource.CONFIG,
        compute=lookup.compute if flops is None else ComputeRates(flops, flops, flops),
        compute_source=DeviceSource.TABLE if compute_from_table else None if flops is None else DeviceSource.CONFIG,
        cpu_memory_bandwidth=measured if cpu_memory_bandwidth is None else cpu_memory_bandwidth,
    )
    return facts, notes


def _look_up_name(name: str, memory: float | None, measured: float | None) -> _DeviceLookup:
    if is_this_machine(name):
        if measured is None:
            return _DeviceLookup(CPU, note="this machine's memory is not measured: run `phasewatch devices --measure`")
        return _DeviceLookup(CPU, measured, DeviceSource.MEASURED)
    resolution = resolve_device(name, memory)
    if isinstance(resolution, ResolvedDevice):
        return _apply_table(resolution, None)
    return _DeviceLookup(_limit_length(name), note=f"device.name: {describe_unresolved(resolution)}")


def _look_up_reported(reported: Sequence[ReportedDevice], count: int | None, memory: float | None) -> _DeviceLookup:
    if not reported:
        return _DeviceLookup(note=f"no device is known: {DEFAULT_ADVICE}")
    if not _are_same_product(reported):
        return _DeviceLookup(note=f"{len(reported)} GPUs of different kinds found: set device.name and device.count")
    if len(reported) > 1 and count is None:
        return _DeviceLookup(note=f"{len(reported)} GPUs found: set device.count to how many this server uses")
    device = reported[0]
    resolution = resolve_device(device.name or "", device.memory if memory is None else memory, device.profile)
    if isinstance(resolution, ResolvedDevice):
        return _apply_table(resolution, device.memory_bandwidth)
    if device.memory_bandwidth is not None:
        return _DeviceLookup(_limit_length(device.name), device.memory_bandwidth, DeviceSource.DRIVER)
    return _DeviceLookup(_limit_length(device.name), note=describe_unresolved(resolution))


def _are_same_product(reported: Sequence[ReportedDevice]) -> bool:
    """Whether all devices are the same product, whatever names their drivers use."""
    sizes = [device.memory for device in reported if device.memory is not None]
    if sizes and min(sizes) < (1 - _MEMORY_TOLERANCE) * max(sizes):
        return False
    return len({_identify(device) for device in reported}) == 1


def _identify(device: ReportedDevice) -> tuple[str | None, str | None]:
    resolution = resolve_device(device.name or "", device.memory, device.profile)
    return (
        (resolution.device.name, resolution.profile)
        if isinstance(resolution, ResolvedDevice)
        else (device.name, device.profile)
    )


def _apply_table(resolved: ResolvedDevice, driver_bandwidth: float | None) -> _DeviceLookup:
    device = resolved.device.name
    name = f"{device} {resolved.profile}" if resolved.profile else device
    listed = resolved.memory_bandwidth
    if listed is None:
        if driver_bandwidth is None:
            return _DeviceLookup(
                name, compute=resolved.compute, note=f"the table has no bandwidth of {device}; {DEFAULT_ADVICE}"
            )
        return _DeviceLookup(name, driver_bandwidth, DeviceSource.DRIVER, resolved.compute)
    if driver_bandwidth is not None and abs(driver_bandwidth / listed - 1) > _BANDWIDTH_TOLERANCE:
        note = (
            f"the driver tells of {driver_bandwidth / 1e9:.4g} GB/s, which is used; "
            f"the table knows another variant of {device}, with {listed / 1e9:.4g} GB/s"
        )
        return _DeviceLookup(name, driver_bandwidth, DeviceSource.DRIVER, resolved.compute, note)
    shared_note = f"{resolved.name} takes turns on one {device} with other virtual GPUs: the ceiling is of its turns"
    return _DeviceLookup(name, listed, DeviceSource.TABLE, resolved.compute, shared_note if resolved.shared else None)


def _limit_length(name: str | None) -> str | None:
    """A name that is not in the table, unless it is too long for a device name."""
    return name if name is not None and len(name) <= MAX_NAME_LENGTH else None
