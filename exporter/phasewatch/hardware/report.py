"""Text output of `phasewatch devices`."""

from collections.abc import Sequence
from typing import Final

from phasewatch.hardware.measure import MemoryMeasurement
from phasewatch.hardware.measurement_file import StoredMeasurement
from phasewatch.hardware.resolve import (
    AmbiguousDevice,
    ResolvedDevice,
    UnknownDevice,
    UnresolvedDevice,
    format_memory,
    resolve_device,
)
from phasewatch.hardware.table import Device
from phasewatch.hardware.wording import CPU, explain_unresolved, is_this_machine

_COLUMNS: Final = ("NAME", "MEMORY", "GB/s", "16-BIT TFLOPS", "FP8 TFLOPS", "STATUS")
_LEFT_ALIGNED: Final = (True, False, False, False, False, True)
_STATUS: Final = {
    "doc": "seen in a document",
    "db": "taken from a collection",
    "rule": "follows from a rule",
    "mem": "unconfirmed",
}


def format_table(devices: Sequence[Device], stored: StoredMeasurement) -> str:
    """The table of devices, followed by this machine's measured memory bandwidth."""
    rows = [_COLUMNS, *map(_format_row, devices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, _LEFT_ALIGNED, strict=True)
        ).rstrip()
        for row in rows
    ]
    legend = "; ".join(f"{word}: {meaning}" for word, meaning in _STATUS.items())
    return "\n".join([*lines, "", f"Status of the bandwidth: {legend}.", format_this_machine(stored)])


def _format_row(device: Device) -> tuple[str, ...]:
    return (
        device.name,
        format_memory(device) or "-",
        _format_figure(device.memory_bandwidth, 1e9),
        _format_figure(device.compute.bits16, 1e12),
        _format_figure(device.compute.fp8, 1e12),
        device.bandwidth_status,
    )


def _format_figure(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.5g}"


def format_this_machine(stored: StoredMeasurement) -> str:
    """The measured memory bandwidth of this machine, or why there is none."""
    if stored.memory_bandwidth is None:
        return f"This machine's memory ({CPU}): {stored.reason}; measure it with `phasewatch devices --measure`."
    return f"This machine's memory ({CPU}): {stored.memory_bandwidth / 1e9:.1f} GB/s, measured."


def describe_name(name: str, memory: float | None, stored: StoredMeasurement) -> tuple[bool, str]:
    """Whether a name resolves to one device, and a description of that device or of what is wrong with the name.

    Args:
        name: device name as given on the command line.
        memory: memory of the device, bytes; None if not given.
        stored: measured memory bandwidth of this machine.
    """
    if is_this_machine(name):
        return stored.memory_bandwidth is not None, format_this_machine(stored)
    result = resolve_device(name, memory)
    if isinstance(result, ResolvedDevice):
        return True, _describe_resolved(result)
    return False, _describe_unresolved(result)


def _describe_resolved(resolved: ResolvedDevice) -> str:
    device = resolved.device
    bandwidth = _format_figure(resolved.memory_bandwidth, 1e9)
    part = f", part {resolved.profile}" if resolved.profile else ", shared as a virtual GPU" if resolved.shared else ""
    lines = [
        f"{resolved.name.strip()}: {device.name}{part}",
        f"  memory bandwidth  {bandwidth} GB/s ({_describe_status(device.bandwidth_status)})",
        f"  dense compute     {_describe_rates(resolved)}",
        f"  memory            {format_memory(device) or 'unknown'}{' (of the whole)' if part else ''}",
        f"  source            {device.source}",
    ]
    if device.notes:
        lines.append(f"  notes             {device.notes}")
    return "\n".join(lines)


def _describe_status(status: str) -> str:
    return _STATUS.get(status, "status unknown")


def _describe_rates(resolved: ResolvedDevice) -> str:
    rates = {"16 bit": resolved.compute.bits16, "fp8": resolved.compute.fp8, "int8": resolved.compute.int8}
    parts = [
        f"{_format_figure(rate, 1e12)} T{'OPS' if name == 'int8' else 'FLOPS'} ({name})"
        for name, rate in rates.items()
        if rate
    ]
    return f"{', '.join(parts)} ({_describe_status(resolved.device.compute_status)})" if parts else "unknown"


def _describe_unresolved(unresolved: UnresolvedDevice) -> str:
    if isinstance(unresolved, AmbiguousDevice):
        lines = [f"{unresolved.name!r} may be any of these; {unresolved.decided_by} decides:"]
        lines += [
            f"  {device.name}: {format_memory(device) or '-'}, {_format_figure(device.memory_bandwidth, 1e9)} GB/s"
            for device in unresolved.candidates
        ]
        differ = len({device.memory for device in unresolved.candidates}) > 1
        advice = "Give --memory (device.memory), or one of these names." if differ else "Give one of these names."
        return "\n".join([*lines, advice])
    return f"{explain_unresolved(unresolved)}\n{_advise(unresolved)}"


def _advise(unresolved: UnknownDevice) -> str:
    if unresolved.processor:
        return "Measure it with `phasewatch devices --measure`, and set device: {name: CPU}."
    return "See `phasewatch devices` for all names, or set device.memory_bandwidth in the configuration."


def format_measurement(measurement: MemoryMeasurement, path: object) -> str:
    """A measurement and how to configure it.

    Args:
        measurement: the memory bandwidth that was measured.
        path: file that it was stored in.
    """
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
