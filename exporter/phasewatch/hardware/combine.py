"""What a target's devices are: the configuration first, then the table, then what the driver tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.detect import ReportedDevice
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceLayout, DeviceSource
from phasewatch.hardware.resolve import MAX_NAME_LENGTH, ResolvedDevice, resolve_device
from phasewatch.hardware.wording import ADVICE, CPU, advise_on_unresolved, explain_unresolved, means_this_machine

_DISAGREEMENT: Final = 0.1
"""Share by which the driver's figure may differ from the table's: clocks of one product differ by a few percent."""

_ALIKE: Final = 0.12
"""Share by which the memory of devices of one kind may differ: less than any two products of one name do."""

_NO_RATES: Final = ComputeRates()


@dataclass(frozen=True, slots=True)
class _Named:
    """What is known of one device without the configured figures, and why something is not known."""

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
    """The facts of a target's devices, and what to tell the operator about them, in plain words.

    Args:
        name: as configured; `CPU` for this machine's memory.
        memory: bytes of one device, as configured.
        count: of devices, as configured; None if it is not.
        layout: as configured.
        memory_bandwidth: bytes per second of one device, as configured.
        flops: operations per second of one device at the model's precision, as configured; stands for all precisions.
        cpu_memory_bandwidth: bytes per second of the host's memory, as configured.
        reported: the devices of the target's machine, as it tells them.
        measured: bytes per second of this machine's memory, as measured; only for a target that runs on it.
    """
    found = _configured(name, memory, measured) if name is not None else _reported(reported, count, memory)
    notes = (found.note,) if found.note and memory_bandwidth is None else ()
    known_compute = flops is None and found.compute != _NO_RATES
    facts = DeviceFacts(
        name=found.name,
        count=count or 1,
        layout=layout,
        memory_bandwidth=found.memory_bandwidth if memory_bandwidth is None else memory_bandwidth,
        bandwidth_source=found.bandwidth_source if memory_bandwidth is None else DeviceSource.CONFIG,
        compute=found.compute if flops is None else ComputeRates(flops, flops, flops),
        compute_source=DeviceSource.TABLE if known_compute else None if flops is None else DeviceSource.CONFIG,
        cpu_memory_bandwidth=measured if cpu_memory_bandwidth is None else cpu_memory_bandwidth,
    )
    return facts, notes


def _configured(name: str, memory: float | None, measured: float | None) -> _Named:
    if means_this_machine(name):
        if measured is None:
            return _Named(CPU, note="this machine's memory is not measured: run `phasewatch devices --measure`")
        return _Named(CPU, measured, DeviceSource.MEASURED)
    found = resolve_device(name, memory)
    if isinstance(found, ResolvedDevice):
        return _from_table(found, None)
    return _Named(_kept(name), note=f"device.name: {explain_unresolved(found)}; {advise_on_unresolved(found)}")


def _reported(reported: Sequence[ReportedDevice], count: int | None, memory: float | None) -> _Named:
    if not reported:
        return _Named(note=f"no device is known: {ADVICE}")
    if not _are_alike(reported):
        return _Named(note=f"{len(reported)} GPUs of different kinds found: set device.name and device.count")
    if len(reported) > 1 and count is None:
        return _Named(note=f"{len(reported)} GPUs found: set device.count to how many this server uses")
    device = reported[0]
    found = resolve_device(device.name or "", device.memory if memory is None else memory, device.profile)
    if isinstance(found, ResolvedDevice):
        return _from_table(found, device.memory_bandwidth)
    if device.memory_bandwidth is not None:
        return _Named(_kept(device.name), device.memory_bandwidth, DeviceSource.DRIVER)
    return _Named(_kept(device.name), note=f"{explain_unresolved(found)}; {advise_on_unresolved(found)}")


def _are_alike(reported: Sequence[ReportedDevice]) -> bool:
    """Whether all devices are of one kind, whatever their drivers call it."""
    sizes = [device.memory for device in reported if device.memory is not None]
    if sizes and min(sizes) < (1 - _ALIKE) * max(sizes):
        return False
    return len({_kind(device) for device in reported}) == 1


def _kind(device: ReportedDevice) -> tuple[str | None, str | None]:
    found = resolve_device(device.name or "", device.memory, device.profile)
    return (found.device.name, found.profile) if isinstance(found, ResolvedDevice) else (device.name, device.profile)


def _from_table(found: ResolvedDevice, driver: float | None) -> _Named:
    device = found.device.name
    name = f"{device} {found.profile}" if found.profile else device
    listed = found.memory_bandwidth
    if listed is None:
        if driver is None:
            return _Named(name, compute=found.compute, note=f"the table has no bandwidth of {device}; {ADVICE}")
        return _Named(name, driver, DeviceSource.DRIVER, found.compute)
    if driver is not None and abs(driver / listed - 1) > _DISAGREEMENT:
        note = (
            f"the driver tells of {driver / 1e9:.4g} GB/s, which is used; the table knows another variant of {device}, "
            f"with {listed / 1e9:.4g} GB/s"
        )
        return _Named(name, driver, DeviceSource.DRIVER, found.compute, note)
    turns = f"{found.name} takes turns on one {device} with other virtual GPUs: the ceiling is of its turns"
    return _Named(name, listed, DeviceSource.TABLE, found.compute, turns if found.shared else None)


def _kept(name: str | None) -> str | None:
    """A name that the table does not have, unless it is too long to be one."""
    return name if name is not None and len(name) <= MAX_NAME_LENGTH else None
