"""What to tell people of a name that means no device, and what to do about it."""

from typing import Final

from phasewatch.hardware.resolve import MAX_NAME_LENGTH, AmbiguousDevice, ResolvedDevice, UnknownDevice, resolve_device

CPU: Final = "CPU"
"""The configured name that means the memory of this machine, as measured."""

ADVICE: Final = "set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"


def means_this_machine(name: str) -> bool:
    """Whether a configured name means the memory of this machine."""
    return name.strip().upper() == CPU


def explain_unresolved(found: AmbiguousDevice | UnknownDevice) -> str:
    """Why a name means no device, in words."""
    shown = repr(found.name if len(found.name) <= MAX_NAME_LENGTH else found.name[:MAX_NAME_LENGTH] + "...")
    if isinstance(found, AmbiguousDevice):
        names = ", ".join(device.name for device in found.candidates)
        return f"{shown} may be any of {names}: {found.decided_by} decides"
    similar = f" (similar: {', '.join(found.similar)})" if found.similar else ""
    return f"{shown}: {found.why}{similar}"


def advise_on_unresolved(found: AmbiguousDevice | UnknownDevice) -> str:
    """What to configure."""
    if isinstance(found, AmbiguousDevice):
        memory = "device.memory, " if len({device.memory for device in found.candidates}) > 1 else ""
        return f"set {memory}one of these as device.name, or device.memory_bandwidth"
    if found.processor:
        return f"run `phasewatch devices --measure` and set device.name to {CPU}, or set device.memory_bandwidth"
    return ADVICE


def describe_unknown_device(name: str, memory: float | None) -> str | None:
    """What is wrong with a configured name, and what to do; None if it means a device.

    Args:
        name: as configured.
        memory: bytes of one device, as configured.
    """
    found = resolve_device(name, memory)
    if isinstance(found, ResolvedDevice) or means_this_machine(name):
        return None
    return f"{explain_unresolved(found)}; {advise_on_unresolved(found)}"
