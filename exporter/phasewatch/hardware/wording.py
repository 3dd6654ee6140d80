"""What to tell people of a name that means no device, and what to do about it."""

from typing import Final

from phasewatch.hardware.resolve import LONGEST_NAME, Ambiguous, Resolved, Unknown, resolve

CPU: Final = "CPU"
"""The configured name that means the memory of this machine, as measured."""

ADVICE: Final = "set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"


def means_this_machine(name: str) -> bool:
    """Whether a configured name means the memory of this machine."""
    return name.strip().upper() == CPU


def explained(found: Ambiguous | Unknown) -> str:
    """Why a name means no device, in words."""
    shown = repr(found.name if len(found.name) <= LONGEST_NAME else found.name[:LONGEST_NAME] + "...")
    if isinstance(found, Ambiguous):
        names = ", ".join(device.name for device in found.candidates)
        return f"{shown} may be any of {names}: {found.decided_by} decides"
    similar = f" (similar: {', '.join(found.similar)})" if found.similar else ""
    return f"{shown}: {found.why}{similar}"


def advice(found: Ambiguous | Unknown) -> str:
    """What to configure."""
    if isinstance(found, Ambiguous):
        memory = "device.memory, " if len({device.memory for device in found.candidates}) > 1 else ""
        return f"set {memory}one of these as device.name, or device.memory_bandwidth"
    if found.processor:
        return f"run `phasewatch devices --measure` and set device.name to {CPU}, or set device.memory_bandwidth"
    return ADVICE


def complaint(name: str, memory: float | None) -> str | None:
    """What is wrong with a configured name, and what to do; None if it means a device.

    Args:
        name: as configured.
        memory: bytes of one device, as configured.
    """
    found = resolve(name, memory)
    if isinstance(found, Resolved) or means_this_machine(name):
        return None
    return f"{explained(found)}; {advice(found)}"
