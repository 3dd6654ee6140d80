"""What a target's devices are: the configuration first, then the table, then what the driver tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from phasewatch.hardware.detect import Reported, plausible_bandwidth
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, Layout, Source
from phasewatch.hardware.resolve import LONGEST_NAME, Ambiguous, Resolved, Unknown, resolve

CPU: Final = "CPU"
"""The configured name that means the memory of this machine, as measured."""

MOST_DEVICES: Final = 100_000
_SLOWEST_COMPUTE: Final = 1e9
_FASTEST_COMPUTE: Final = 1e17
_NO_RATES: Final = ComputeRates()
_ADVICE: Final = "set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"


@dataclass(frozen=True, slots=True)
class _Named:
    """What is known of one device without the configured figures, and why something is not known."""

    name: str | None = None
    memory_bandwidth: float | None = None
    bandwidth_source: Source | None = None
    compute: ComputeRates = _NO_RATES
    note: str | None = None


def device_facts(
    *,
    name: str | None = None,
    memory: float | None = None,
    count: int | None = None,
    layout: Layout = Layout.TENSOR,
    memory_bandwidth: float | None = None,
    flops: float | None = None,
    cpu_memory_bandwidth: float | None = None,
    reported: Sequence[Reported] = (),
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
    notes: list[str] = []
    bandwidth = _checked("device.memory_bandwidth", memory_bandwidth, plausible_bandwidth(memory_bandwidth), notes)
    rate = _checked("device.flops", flops, _plausible_compute(flops), notes)
    host = _checked("cpu_memory_bandwidth", cpu_memory_bandwidth, plausible_bandwidth(cpu_memory_bandwidth), notes)
    host = measured if host is None else host
    if count is not None and not 1 <= count <= MOST_DEVICES:
        notes.append(f"device.count: expected 1 to {MOST_DEVICES:,}, found {count}; there is no ceiling")
        return DeviceFacts(layout=layout, cpu_memory_bandwidth=host), tuple(notes)
    found = _configured(name, memory, measured) if name is not None else _reported(reported, count)
    if bandwidth is None and found.note:
        notes.append(found.note)
    known_compute = rate is None and found.compute != _NO_RATES
    facts = DeviceFacts(
        name=found.name,
        count=count or 1,
        layout=layout,
        memory_bandwidth=found.memory_bandwidth if bandwidth is None else bandwidth,
        bandwidth_source=found.bandwidth_source if bandwidth is None else Source.CONFIG,
        compute=found.compute if rate is None else ComputeRates(rate, rate, rate),
        compute_source=Source.TABLE if known_compute else None if rate is None else Source.CONFIG,
        cpu_memory_bandwidth=host,
    )
    return facts, tuple(notes)


def _checked(key: str, told: float | None, plausible: float | None, notes: list[str]) -> float | None:
    if told is not None and plausible is None:
        notes.append(f"{key}: {told:.3g} per second is not possible and not used; is the unit right?")
    return plausible


def _plausible_compute(flops: float | None) -> float | None:
    return flops if flops is not None and _SLOWEST_COMPUTE <= flops <= _FASTEST_COMPUTE else None


def _configured(name: str, memory: float | None, measured: float | None) -> _Named:
    if name.strip().upper() == CPU:
        if measured is None:
            return _Named(CPU, note="this machine's memory is not measured: run `phasewatch devices --measure`")
        return _Named(CPU, measured, Source.MEASURED)
    found = resolve(name, memory)
    if isinstance(found, Resolved):
        return _from_table(found, None)
    return _Named(_kept(name), note=f"device.name: {explained(found)}; {_advice(found)}")


def _reported(reported: Sequence[Reported], count: int | None) -> _Named:
    kinds = {(device.name, device.profile) for device in reported}
    if not kinds:
        return _Named(note=f"no device is known: {_ADVICE}")
    if len(kinds) > 1:
        return _Named(note=f"{len(reported)} GPUs of different kinds found: set device.name and device.count")
    if len(reported) > 1 and count is None:
        return _Named(note=f"{len(reported)} GPUs found: set device.count to how many this server uses")
    device = reported[0]
    found = resolve(device.name or "", device.memory, device.profile)
    if isinstance(found, Resolved):
        return _from_table(found, device.memory_bandwidth)
    if device.memory_bandwidth is not None:
        return _Named(_kept(device.name), device.memory_bandwidth, Source.DRIVER)
    return _Named(_kept(device.name), note=f"{explained(found)}; {_advice(found)}")


def _from_table(found: Resolved, driver: float | None) -> _Named:
    name = f"{found.device.name} {found.profile}" if found.profile else found.device.name
    note = None
    if found.shared:
        note = (
            f"{found.name} takes turns on one {found.device.name} with other virtual GPUs: the ceiling is of its turns"
        )
    if found.memory_bandwidth is not None:
        return _Named(name, found.memory_bandwidth, Source.TABLE, found.compute, note)
    if driver is not None:
        return _Named(name, driver, Source.DRIVER, found.compute, note)
    return _Named(name, compute=found.compute, note=f"the table has no bandwidth of {found.device.name}; {_ADVICE}")


def _kept(name: str | None) -> str | None:
    """A name that the table does not have, unless it is too long to be one."""
    return name if name is not None and len(name) <= LONGEST_NAME else None


def _advice(found: Ambiguous | Unknown) -> str:
    if isinstance(found, Unknown) and found.processor:
        return f"run `phasewatch devices --measure` and set device.name to {CPU}, or set device.memory_bandwidth"
    return _ADVICE


def explained(found: Ambiguous | Unknown) -> str:
    """Why a name means no device, in words."""
    shown = repr(found.name if len(found.name) <= LONGEST_NAME else found.name[:LONGEST_NAME] + "...")
    if isinstance(found, Ambiguous):
        names = ", ".join(device.name for device in found.candidates)
        return f"{shown} may be any of {names}: {found.decided_by} decides"
    similar = f" (similar: {', '.join(found.similar)})" if found.similar else ""
    return f"{shown}: {found.why}{similar}"
