"""Detect the GPUs of this machine through the vendors' drivers.

The vendors' libraries are optional, may be installed without a driver, and may refuse any single query (containers,
virtual GPUs, unified memory): what they do not report is None.
"""

import contextlib
import importlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from phasewatch.hardware.facts import MAX_DEVICES, parse_bandwidth
from phasewatch.hardware.partition import MIG_PROFILE
from phasewatch.hardware.reported import MIB, DetectedDevices, ReportedDevice, format_error, parse_memory
from phasewatch.hardware.resolve import UnknownDevice, resolve_device

_MAX_FACTOR: Final = 2.0**50
"""Upper bound of each figure that a driver reports; larger ones stand for an unknown value."""

_MIG_NAME: Final = re.compile(rf".* MIG ({MIG_PROFILE})", re.IGNORECASE)


def detect_nvidia_devices() -> DetectedDevices:
    """The GPUs that NVIDIA's driver reports, through nvidia-ml-py."""
    return _detect_devices("NVIDIA", "nvidia-ml-py", "pynvml", "nvmlInit", _query_nvidia_gpus, "nvmlShutdown")


def detect_amd_devices() -> DetectedDevices:
    """The GPUs that AMD's driver reports, through amdsmi."""
    return _detect_devices("AMD", "amdsmi", "amdsmi", "amdsmi_init", _query_amd_gpus, "amdsmi_shut_down")


def _detect_devices(
    vendor: str,
    package: str,
    module: str,
    start: str,
    query_gpus: Callable[[Any], Iterator[ReportedDevice]],
    stop: str,
) -> DetectedDevices:
    """The GPUs that a vendor's driver reports.

    Args:
        vendor: the vendor.
        package: name of its library on PyPI.
        module: the library's module.
        start: function of the module that opens the driver.
        query_gpus: lists the GPUs through the module.
        stop: function of the module that closes the driver.
    """
    library = _load_library(module)
    if isinstance(library, str):
        return DetectedDevices((), f"{package} cannot be used: {library}")
    try:
        getattr(library, start)()
    except Exception as error:  # noqa: BLE001  # an edge: drivers fail in ways of their own
        return DetectedDevices((), f"{vendor}'s driver cannot be asked: {format_error(error)}")
    try:
        devices = tuple(query_gpus(library))
    finally:
        _query(library, stop)
    return DetectedDevices(devices, None if devices else f"{vendor}'s driver shows no GPU")


def _query_nvidia_gpus(nvml: Any) -> Iterator[ReportedDevice]:
    count = _query(nvml, "nvmlDeviceGetCount") or 0
    for index in range(min(count, MAX_DEVICES)):
        handle = _query(nvml, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            yield from _query_nvidia_gpu(nvml, handle)


def _query_nvidia_gpu(nvml: Any, handle: Any) -> Iterator[ReportedDevice]:
    """The whole GPU, or its MIG instances if MIG is enabled."""
    name, memory = _to_text(_query(nvml, "nvmlDeviceGetName", handle)), _query_nvidia_memory(nvml, handle)
    bandwidth = _compute_nvidia_bandwidth(nvml, handle)
    mode = _query(nvml, "nvmlDeviceGetMigMode", handle)
    if not (isinstance(mode, list | tuple) and mode and mode[0] == 1):
        yield ReportedDevice(name, memory, None, bandwidth)
        return
    instance_count = _query(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for index in range(min(instance_count, MAX_DEVICES)):
        instance = _query(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if instance is None:
            continue
        attributes = _query(nvml, "nvmlDeviceGetAttributes_v2", instance)
        instance_memory = parse_memory(
            _multiply(getattr(attributes, "memorySizeMB", None), MIB)
        ) or _query_nvidia_memory(nvml, instance)
        profile = _determine_mig_profile(
            _to_text(_query(nvml, "nvmlDeviceGetName", instance)), attributes, instance_memory
        )
        yield ReportedDevice(name, instance_memory, profile, _scale_to_instance(bandwidth, instance_memory, memory))


def _query_nvidia_memory(nvml: Any, handle: Any) -> float | None:
    return parse_memory(getattr(_query(nvml, "nvmlDeviceGetMemoryInfo", handle), "total", None))


def _compute_nvidia_bandwidth(nvml: Any, handle: Any) -> float | None:
    """Memory bandwidth in bytes per second: 2 x memory clock (Hz) x bus width (bits) / 8.

    The factor 2 holds for every memory type with the clock that NVML reports. Source: NVIDIA, "How to Query Device
    Properties and Handle Errors in CUDA C/C++". The maximum clock is used, because the current one drops on an idle
    GPU.
    """
    megahertz = _query(nvml, "nvmlDeviceGetMaxClockInfo", handle, getattr(nvml, "NVML_CLOCK_MEM", 2))
    bits = _query(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    return parse_bandwidth(_multiply(megahertz, bits, 2 * 1e6 / 8))


def _determine_mig_profile(name: str | None, attributes: Any, memory: float | None) -> str:
    """The MIG profile in an instance's name (`NVIDIA A30 MIG 1g.6gb`), or one built from its slices and memory.

    Empty if neither is reported. No device of the table has an empty profile, so that an instance never counts as the
    whole GPU.
    """
    if name and (match := _MIG_NAME.fullmatch(name)):
        return match[1]
    slices = getattr(attributes, "gpuInstanceSliceCount", None)
    compute = getattr(attributes, "computeInstanceSliceCount", slices)
    if memory is None or not isinstance(slices, int):
        return ""
    profile = f"{slices}g.{memory / 2**30:.0f}gb"
    return profile if compute == slices else f"{compute}c.{profile}"


def _scale_to_instance(bandwidth: float | None, memory: float | None, whole: float | None) -> float | None:
    """The bandwidth of a MIG instance: proportional to its memory slices, which are eighths of the GPU."""
    if bandwidth is None or memory is None or whole is None:
        return None
    eighths = round(8 * memory / whole)
    return bandwidth * eighths / 8 if 1 <= eighths <= 8 else None  # noqa: PLR2004  # of 8 eighths


def _query_amd_gpus(smi: Any) -> Iterator[ReportedDevice]:
    handles = _query(smi, "amdsmi_get_processor_handles")
    for handle in handles if isinstance(handles, list | tuple) else ():
        yield _query_amd_gpu(smi, handle)


def _query_amd_gpu(smi: Any, handle: Any) -> ReportedDevice:
    asic = _to_mapping(_query(smi, "amdsmi_get_gpu_asic_info", handle))
    video_memory = _to_mapping(_query(smi, "amdsmi_get_gpu_vram_info", handle))
    memory = parse_memory(_multiply(video_memory.get("vram_size"), MIB))
    name, pci = _to_text(asic.get("market_name")), f"pci:{asic.get('device_id')}"
    # The market name of some consumer cards is just "AMD Radeon Graphics".
    if not _is_in_table(name or "", memory) and _is_in_table(pci, memory):
        name = pci
    mode = _to_text(_query(smi, "amdsmi_get_gpu_compute_partition", handle))
    if mode is not None and re.fullmatch("[DTQC]PX", mode):
        return ReportedDevice(name, memory, mode)
    bandwidth = _multiply(video_memory.get("vram_max_bandwidth"), 1e9)
    return ReportedDevice(name, memory, None, parse_bandwidth(bandwidth))


def _is_in_table(name: str, memory: float | None) -> bool:
    return not isinstance(resolve_device(name, memory), UnknownDevice)


def _load_library(name: str) -> Any:
    """A vendor's module, or the reason why it cannot be used.

    Without its driver, amdsmi prints and raises KeyError on import.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module(name)
    except ModuleNotFoundError:
        extra = "nvidia" if name == "pynvml" else "amd"
        return f"it is not installed (pip install 'phasewatch[{extra}]')"
    except Exception as error:  # noqa: BLE001  # an edge: it runs the vendor's code
        return f"it cannot be loaded: {format_error(error)}"


def _query(library: Any, function_name: str, *arguments: Any) -> Any:
    """The result of a function of a vendor's library; None if it has no such function or the call fails."""
    try:
        function: Callable[..., Any] = getattr(library, function_name)
        return function(*arguments)
    except Exception:  # noqa: BLE001  # NOT_SUPPORTED and whatever else drivers raise
        return None


def _to_text(value: object) -> str | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text.strip() or None if isinstance(text, str) else None


def _to_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _multiply(*factors: object) -> float | None:
    """The product; None if a factor is not a number above 0 of a plausible size."""
    product = 1.0
    for factor in factors:
        if not isinstance(factor, int | float) or not 0 < factor < _MAX_FACTOR:
            return None
        product *= factor
    return product
