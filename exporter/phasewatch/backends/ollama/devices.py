"""What an Ollama runs on: llama.cpp gives each device some of the layers, and the host's memory the rest."""

from dataclasses import replace

from phasewatch.backends.equipment import resolve_devices
from phasewatch.config.settings import DeviceSettings, Target
from phasewatch.hardware.facts import DeviceFacts, DeviceLayout
from phasewatch.hardware.reported import ReportedDevice
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device


def resolve_ollama_devices(target: Target, reported: tuple[ReportedDevice, ...]) -> tuple[DeviceFacts, tuple[str, ...]]:
    """The devices of an Ollama with the bandwidth of the host's memory, and notes about them for the operator.

    An Ollama reports for each model how much of it is in the host's memory, so a host whose bandwidth is known is
    enough for a ceiling.

    Args:
        target: the target, with the operator's settings.
        reported: devices that drivers or a DCGM exporter report.
    """
    facts, notes = resolve_devices(target, reported, usual_layout=DeviceLayout.PIPELINE)
    device = target.device
    host = device.cpu_memory_bandwidth or _find_processor_bandwidth(device) or facts.cpu_memory_bandwidth
    unnamed = device.name is None and device.memory_bandwidth is None and not reported
    return replace(facts, cpu_memory_bandwidth=host), () if unnamed and host is not None else notes


def _find_processor_bandwidth(device: DeviceSettings) -> float | None:
    """Bytes per second of the host's memory where the configured device is a processor of the table."""
    result = resolve_device(device.name) if device.name else None
    return result.memory_bandwidth if isinstance(result, ResolvedDevice) and result.device.kind == "cpu" else None
