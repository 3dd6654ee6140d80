"""What `phasewatch devices` prints."""

from collections.abc import Sequence
from typing import Final

from phasewatch.hardware.measure import MemoryMeasurement
from phasewatch.hardware.measurement_file import StoredMeasurement
from phasewatch.hardware.resolve import AmbiguousDevice, ResolvedDevice, UnknownDevice, format_memory, resolve_device
from phasewatch.hardware.table import Device
from phasewatch.hardware.wording import CPU, explain_unresolved, means_this_machine

_HEADS: Final = ("NAME", "MEMORY", "GB/s", "16-BIT TFLOPS", "FP8 TFLOPS", "STATUS")
_LEFT: Final = (True, False, False, False, False, True)
_STATUS: Final = {
    "doc": "seen in a document",
    "db": "taken from a collection",
    "rule": "follows from a rule",
    "mem": "unconfirmed",
}


def format_table(devices: Sequence[Device], stored: StoredMeasurement) -> str:
    """The table of devices, and this machine's own memory."""
    rows = [_HEADS, *map(_row, devices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, _LEFT, strict=True)
        ).rstrip()
        for row in rows
    ]
    legend = "; ".join(f"{word}: {meaning}" for word, meaning in _STATUS.items())
    return "\n".join([*lines, "", f"Status of the bandwidth: {legend}.", format_this_machine(stored)])


def _row(device: Device) -> tuple[str, ...]:
    return (
        device.name,
        format_memory(device) or "-",
        _figure(device.memory_bandwidth, 1e9),
        _figure(device.compute.bits16, 1e12),
        _figure(device.compute.fp8, 1e12),
        device.bandwidth_status,
    )


def _figure(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.5g}"


def format_this_machine(stored: StoredMeasurement) -> str:
    """What was measured of this machine's memory."""
    if stored.memory_bandwidth is None:
        return f"This machine's memory ({CPU}): {stored.reason}; measure it with `phasewatch devices --measure`."
    return f"This machine's memory ({CPU}): {stored.memory_bandwidth / 1e9:.1f} GB/s, measured."


def describe_name(name: str, memory: float | None, stored: StoredMeasurement) -> tuple[bool, str]:
    """Whether a name means one device, and which, or why none and what to do.

    Args:
        name: as it was given.
        memory: bytes of the device, if they were given.
        stored: what was measured of this machine's memory.
    """
    if means_this_machine(name):
        return stored.memory_bandwidth is not None, format_this_machine(stored)
    found = resolve_device(name, memory)
    return (True, _resolved(found)) if isinstance(found, ResolvedDevice) else (False, _unresolved(found))


def _resolved(found: ResolvedDevice) -> str:
    device = found.device
    part = f", part {found.profile}" if found.profile else ", shared as a virtual GPU" if found.shared else ""
    lines = [
        f"{found.name.strip()}: {device.name}{part}",
        f"  memory bandwidth  {_figure(found.memory_bandwidth, 1e9)} GB/s ({_status(device.bandwidth_status)})",
        f"  dense compute     {_rates(found)}",
        f"  memory            {format_memory(device) or 'unknown'}{' (of the whole)' if part else ''}",
        f"  source            {device.source}",
    ]
    if device.notes:
        lines.append(f"  notes             {device.notes}")
    return "\n".join(lines)


def _status(status: str) -> str:
    return _STATUS.get(status, "status unknown")


def _rates(found: ResolvedDevice) -> str:
    rates = {"16 bit": found.compute.bits16, "fp8": found.compute.fp8, "int8": found.compute.int8}
    known = [
        f"{_figure(rate, 1e12)} T{'OPS' if name == 'int8' else 'FLOPS'} ({name})"
        for name, rate in rates.items()
        if rate
    ]
    return f"{', '.join(known)} ({_status(found.device.compute_status)})" if known else "unknown"


def _unresolved(found: AmbiguousDevice | UnknownDevice) -> str:
    if isinstance(found, AmbiguousDevice):
        lines = [f"{found.name!r} may be any of these; {found.decided_by} decides:"]
        lines += [
            f"  {device.name}: {format_memory(device) or '-'}, {_figure(device.memory_bandwidth, 1e9)} GB/s"
            for device in found.candidates
        ]
        differ = len({device.memory for device in found.candidates}) > 1
        advice = "Give --memory (device.memory), or one of these names." if differ else "Give one of these names."
        return "\n".join([*lines, advice])
    return f"{explain_unresolved(found)}\n{_advice(found)}"


def _advice(found: UnknownDevice) -> str:
    if found.processor:
        return "Measure it with `phasewatch devices --measure`, and set device: {name: CPU}."
    return "See `phasewatch devices` for all names, or set device.memory_bandwidth in the configuration."


def format_measurement(measurement: MemoryMeasurement, path: object) -> str:
    """A measurement, and how to use it."""
    figure = f"{measurement.memory_bandwidth / 1e9:.1f}"
    by_threads: dict[int, list[str]] = {}
    for run in measurement.runs:
        by_threads.setdefault(run.threads, []).append(f"{run.memory_bandwidth / 1e9:.1f}")
    over = f"{len(measurement.runs)} runs over {measurement.size / 2**20:.0f} MiB"
    lines = [
        f"{measurement.processor}: {figure} GB/s, the fastest of {over}",
        *(
            f"  {threads} thread{'s' if threads > 1 else ''}: {', '.join(runs)} GB/s"
            for threads, runs in by_threads.items()
        ),
        f"Kept in {path}; a target on this machine uses it with",
        "  device: {name: CPU}",
        "Elsewhere, or in a container, put the figure into the configuration:",
        f"  device: {{memory_bandwidth: {figure}GB/s}}      (vllm target)",
        f"  device: {{cpu_memory_bandwidth: {figure}GB/s}}  (ollama target)",
    ]
    return "\n".join(lines)
