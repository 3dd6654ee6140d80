"""What a target runs on and what its models cost, put together from configuration, drivers and files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from phasewatch.config.settings import Target
from phasewatch.hardware.combine import combine_device_facts
from phasewatch.hardware.detect import detect_amd_devices, detect_nvidia_devices
from phasewatch.hardware.facts import DeviceFacts, DeviceLayout
from phasewatch.hardware.measurement_file import load_stored_measurement
from phasewatch.hardware.reported import DetectedDevices, ReportedDevice
from phasewatch.models.costs import ModelCosts
from phasewatch.models.errors import shorten
from phasewatch.models.settings import ModelSettings
from phasewatch.models.shape.cache_types import apply_cache_dtype, is_known_cache_dtype
from phasewatch.models.sources.configured import apply_model_settings, describe_unfit_parameters
from phasewatch.models.sources.folder import read_folder_costs
from phasewatch.models.sources.hub import find_in_hub_cache


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a target runs on and what its models cost, as far as it is known.

    Attributes:
        device: the devices.
        configured: the model in the configured folder; None where there is none.
        models: found out for single models, by name.
    """

    device: DeviceFacts = field(default_factory=DeviceFacts)
    configured: ModelCosts | None = None
    models: Mapping[str, ModelCosts] = field(default_factory=dict)


def combine_model_costs(
    equipment: Equipment, settings: ModelSettings, model_name: str, cache_dtype: str | None
) -> ModelCosts:
    """What one model costs, with the operator's figures in place of those found out.

    Args:
        equipment: what was found out.
        settings: the operator's word.
        model_name: as the server calls it.
        cache_dtype: number format of its KV cache, if the server tells.
    """
    known = equipment.configured or equipment.models.get(model_name) or ModelCosts()
    if known.kv_cache is not None and cache_dtype is not None and settings.kv_cache_dtype is None:
        known = replace(known, kv_cache=apply_cache_dtype(known.kv_cache, cache_dtype))
    return apply_model_settings(known, settings)


def describe_unused_settings(found: ModelCosts, settings: ModelSettings, cache_dtype: str | None) -> tuple[str, ...]:
    """What the operator and the server say of a model and is not used, in plain words.

    Args:
        found: what was found out of the model.
        settings: the operator's word.
        cache_dtype: number format of its KV cache, if the server tells.
    """
    parameters = describe_unfit_parameters(found, settings)
    told = (parameters,) if parameters else ()
    decided = settings.kv_cache_dtype is not None or settings.kv_cache_bytes_per_token is not None
    if cache_dtype is None or is_known_cache_dtype(cache_dtype) or decided:
        return told
    unknown = (
        f"the server keeps its KV cache as {shorten(cache_dtype)}, of which it is not known how wide it is: "
        "set model.kv_cache_bytes_per_token"
    )
    return (*told, unknown)


def is_local(url: str) -> bool:
    """Whether an address is on this machine: what its drivers tell is then true of the server."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def detect_local_devices() -> DetectedDevices:
    """The GPUs of this machine, as their drivers tell."""
    nvidia = detect_nvidia_devices()
    if nvidia.devices:
        return nvidia
    amd = detect_amd_devices()
    return amd if amd.devices else DetectedDevices((), f"{nvidia.reason}; {amd.reason}")


def resolve_devices(
    target: Target, reported: tuple[ReportedDevice, ...], *, usual_layout: DeviceLayout
) -> tuple[DeviceFacts, tuple[str, ...]]:
    """The devices of a target, and notes about them for the operator.

    Args:
        target: with the operator's settings.
        reported: by drivers or a DCGM exporter.
        usual_layout: how this kind of server divides a model among several devices.
    """
    device = target.device
    return combine_device_facts(
        name=device.name,
        memory=device.memory,
        count=device.count,
        layout=device.layout or usual_layout,
        memory_bandwidth=device.memory_bandwidth,
        flops=device.flops,
        cpu_memory_bandwidth=device.cpu_memory_bandwidth,
        reported=reported,
        measured=load_stored_measurement().memory_bandwidth if is_local(target.url) else None,
    )


def read_root_costs(root: str | None, cache_dtype: str) -> tuple[ModelCosts, tuple[str, ...]]:
    """What a model costs by where the server has loaded it from, and in plain words why the rest is not known.

    Args:
        root: path or hub id, as the server tells.
        cache_dtype: see `read_folder_costs`.
    """
    folder = find_in_hub_cache(root) if root else None
    if folder is None:
        return ModelCosts(), ("its files are not on this machine: set model.path, or model.weights",)
    return read_folder_costs(folder, cache_dtype)
