"""Messages about names that do not resolve to a device, and what to configure instead."""

from typing import Final

from phasewatch.hardware.resolve import (
    MAX_NAME_LENGTH,
    AmbiguousDevice,
    ResolvedDevice,
    UnresolvedDevice,
    resolve_device,
)

CPU: Final = "CPU"
"""The configured name for this machine's memory, whose bandwidth is measured."""

DEFAULT_ADVICE: Final = "set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"


def is_this_machine(name: str) -> bool:
    """Whether a configured name stands for this machine's memory."""
    return name.strip().upper() == CPU


def explain_unresolved(unresolved: UnresolvedDevice) -> str:
    """Why a name does not resolve to one device, in words."""
    name = unresolved.name
    quoted = repr(name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "...")
    if isinstance(unresolved, AmbiguousDevice):
        names = ", ".join(device.name for device in unresolved.candidates)
        return f"{quoted} may be any of {names}: {unresolved.decided_by} decides"
    similar = f" (similar: {', '.join(unresolved.similar)})" if unresolved.similar else ""
    return f"{quoted}: {unresolved.why}{similar}"


def advise_on_unresolved(unresolved: UnresolvedDevice) -> str:
    """What to configure for a name that does not resolve to one device."""
    if isinstance(unresolved, AmbiguousDevice):
        memory = "device.memory, " if len({device.memory for device in unresolved.candidates}) > 1 else ""
        return f"set {memory}one of these as device.name, or device.memory_bandwidth"
    if unresolved.processor:
        return f"run `phasewatch devices --measure` and set device.name to {CPU}, or set device.memory_bandwidth"
    return DEFAULT_ADVICE


def describe_unresolved(unresolved: UnresolvedDevice) -> str:
    """Why a name does not resolve to one device, and what to configure, in words."""
    return f"{explain_unresolved(unresolved)}; {advise_on_unresolved(unresolved)}"


def describe_unknown_device(name: str, memory: float | None) -> str | None:
    """What is wrong with a configured name, and what to configure instead; None if it resolves to one device.

    Args:
        name: device name as configured.
        memory: memory of one device as configured, bytes.
    """
    resolved = resolve_device(name, memory)
    if isinstance(resolved, ResolvedDevice) or is_this_machine(name):
        return None
    return describe_unresolved(resolved)
