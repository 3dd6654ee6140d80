"""Devices of a target and costs of its models, from the configuration, drivers and files."""

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
    """Devices of a target and costs of its models, as far as known.

    Attributes:
        device: the devices.
        configured: costs of the model in the configured folder; None without one.
        models: costs of single models by name, from the files that the server has loaded.
        gpu_share: share of the model in device memory, 0 to 1; the rest is in host memory. None for all of it.
    """

    device: DeviceFacts = field(default_factory=DeviceFacts)
    configured: ModelCosts | None = None
    models: Mapping[str, ModelCosts] = field(default_factory=dict)
    gpu_share: float | None = None


def combine_model_costs(
    equipment: Equipment, settings: ModelSettings, model_name: str, cache_dtype: str | None
) -> ModelCosts:
    """The costs of one model, with configured figures in place of discovered ones.

    Args:
        equipment: the discovered costs.
        settings: the configured figures.
        model_name: name of the model, as the server reports it.
        cache_dtype: number format of its KV cache; None if the server does not report it.
    """
    costs = equipment.configured or equipment.models.get(model_name) or ModelCosts()
    if costs.kv_cache is not None and cache_dtype is not None and settings.kv_cache_dtype is None:
        costs = replace(costs, kv_cache=apply_cache_dtype(costs.kv_cache, cache_dtype))
    return apply_model_settings(costs, settings)


def describe_unused_settings(costs: ModelCosts, settings: ModelSettings, cache_dtype: str | None) -> tuple[str, ...]:
    """Notes about configured or reported figures of a model that are not used.

    Args:
        costs: the discovered costs of the model.
        settings: the configured figures.
        cache_dtype: number format of its KV cache; None if the server does not report it.
    """
    unfit_parameters = describe_unfit_parameters(costs, settings)
    notes = (unfit_parameters,) if unfit_parameters else ()
    is_configured = settings.kv_cache_dtype is not None or settings.kv_cache_bytes_per_token is not None
    if cache_dtype is None or is_known_cache_dtype(cache_dtype) or is_configured:
        return notes
    unknown_dtype = (
        f"the server keeps its KV cache as {shorten(cache_dtype)}, of which it is not known how wide it is: "
        "set model.kv_cache_bytes_per_token"
    )
    return (*notes, unknown_dtype)


def is_local(url: str) -> bool:
    """Whether an address is on this machine, so that its drivers report the server's devices."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def detect_local_devices() -> DetectedDevices:
    """The GPUs of this machine, as their drivers report them."""
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
        target: the target, with its configured devices.
        reported: devices reported by drivers or a DCGM exporter.
        usual_layout: how this kind of server divides a model among several devices by default.
    """
    settings = target.device
    return combine_device_facts(
        name=settings.name,
        memory=settings.memory,
        count=settings.count,
        layout=settings.layout or usual_layout,
        memory_bandwidth=settings.memory_bandwidth,
        flops=settings.flops,
        cpu_memory_bandwidth=settings.cpu_memory_bandwidth,
        reported=reported,
        measured=load_stored_measurement().memory_bandwidth if is_local(target.url) else None,
    )


def read_root_costs(root: str | None, cache_dtype: str) -> tuple[ModelCosts, tuple[str, ...]]:
    """The costs of a model from the files that the server has loaded, and notes on why other costs are unknown.

    Args:
        root: path or hub id of the model, as the server reports it; None if it does not.
        cache_dtype: see `read_folder_costs`.
    """
    folder = find_in_hub_cache(root) if root else None
    if folder is None:
        return ModelCosts(), ("its files are not on this machine: set model.path, or model.weights",)
    return read_folder_costs(folder, cache_dtype)
