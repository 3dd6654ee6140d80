"""What the machine itself, or a DCGM exporter beside it, tells of its GPUs.

The libraries of the vendors are optional, may be there without a driver, and may refuse any single question
(containers, virtual GPUs, unified memory): whatever they do not tell is None.
"""

import contextlib
import importlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from phasewatch.hardware.facts import MAX_DEVICES, parse_bandwidth
from phasewatch.hardware.partition import MIG_PROFILE
from phasewatch.hardware.resolve import UnknownDevice, resolve_device

_MIB: Final = 2.0**20
_MOST_MEMORY: Final = 2.0**50
_MIG_NAME: Final = re.compile(rf".* MIG ({MIG_PROFILE})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """One device, or one part of a device that stands for itself.

    Attributes:
        name: of the whole device, as its driver calls it.
        memory: bytes, of a part its own.
        profile: of a part, such as `3g.40gb` (MIG) or `CPX` (AMD); None for a whole device.
        memory_bandwidth: bytes per second that the driver's figures give; of a part its share.
    """

    name: str | None
    memory: float | None = None
    profile: str | None = None
    memory_bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class DetectedDevices:
    """What was found; where that is nothing, `reason` says why, in words for one line of a log."""

    devices: tuple[ReportedDevice, ...]
    reason: str | None = None


def detect_nvidia_devices() -> DetectedDevices:
    """What NVIDIA's driver tells, through nvidia-ml-py."""
    nvml = _library("pynvml")
    if isinstance(nvml, str):
        return DetectedDevices((), f"nvidia-ml-py cannot be used: {nvml}")
    try:
        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  # an edge: drivers fail in ways of their own
        return DetectedDevices((), f"NVIDIA's driver cannot be asked: {_in_a_line(error)}")
    try:
        count = _answer(nvml, "nvmlDeviceGetCount") or 0
        handles = [_answer(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(min(count, MAX_DEVICES))]
        found = tuple(device for handle in handles if handle is not None for device in _nvidia(nvml, handle))
    finally:
        _answer(nvml, "nvmlShutdown")
    return DetectedDevices(found, None if found else "NVIDIA's driver shows no GPU")


def detect_amd_devices() -> DetectedDevices:
    """What AMD's driver tells, through amdsmi."""
    smi = _library("amdsmi")
    if isinstance(smi, str):
        return DetectedDevices((), f"amdsmi cannot be used: {smi}")
    try:
        smi.amdsmi_init()
    except Exception as error:  # noqa: BLE001  # an edge: drivers fail in ways of their own
        return DetectedDevices((), f"AMD's driver cannot be asked: {_in_a_line(error)}")
    try:
        handles = _answer(smi, "amdsmi_get_processor_handles")
        found = tuple(_amd(smi, handle) for handle in (handles if isinstance(handles, list | tuple) else ()))
    finally:
        _answer(smi, "amdsmi_shut_down")
    return DetectedDevices(found, None if found else "AMD's driver shows no GPU")


def parse_dcgm_page(page: str) -> DetectedDevices:
    """What a DCGM exporter's page tells.

    Args:
        page: in the text format. Each of its series names a GPU by `UUID`, `gpu` or `device` and its kind by
            `modelName`; those of a MIG instance have `GPU_I_ID` and `GPU_I_PROFILE` as well.
    """
    found: dict[tuple[str, str], _DcgmDevice] = {}
    try:
        for labels, name, value in _dcgm_samples(page):
            gpu = labels.get("UUID") or labels.get("gpu") or labels.get("device") or ""
            key = (gpu, labels.get("GPU_I_ID", ""))
            device = found.setdefault(key, _DcgmDevice(labels["modelName"], labels.get("GPU_I_PROFILE") or None))
            device.memory[name] = value
            if len(found) > MAX_DEVICES:
                return DetectedDevices(
                    (), f"the page shows more than {MAX_DEVICES} devices; it is no single DCGM exporter's"
                )
    except Exception as error:  # noqa: BLE001  # the parser raises whatever a broken line leads it to
        return DetectedDevices((), f"the page is not in the text format of Prometheus: {_in_a_line(error)}")
    split = {gpu for gpu, instance in found if instance}
    devices = tuple(device.reported() for (gpu, instance), device in found.items() if instance or gpu not in split)
    return DetectedDevices(devices, None if devices else "the page has no DCGM_FI_ metrics with a modelName")


@dataclass(frozen=True, slots=True)
class _DcgmDevice:
    """A GPU or MIG instance of a page, and those of its figures that tell its memory, in MiB."""

    name: str
    profile: str | None
    memory: dict[str, float] = field(default_factory=dict)

    def reported(self) -> ReportedDevice:
        total = self.memory.get("DCGM_FI_DEV_FB_TOTAL")
        used, free = self.memory.get("DCGM_FI_DEV_FB_USED"), self.memory.get("DCGM_FI_DEV_FB_FREE")
        if total is None and used is not None and free is not None:
            total = used + free + self.memory.get("DCGM_FI_DEV_FB_RESERVED", 0.0)
        return ReportedDevice(self.name, None if total is None else _memory(total * _MIB), self.profile)


def _dcgm_samples(page: str) -> Iterator[tuple[Mapping[str, str], str, float]]:
    """Only its own lines: whatever else a proxy adds to the page may be large, and need not be understood."""
    own = "".join(f"{line}\n" for line in page.split("\n") if line.startswith("DCGM_FI_"))
    for family in text_string_to_metric_families(own):
        for sample in family.samples:
            if sample.labels.get("modelName"):
                yield sample.labels, sample.name, sample.value


def _nvidia(nvml: Any, handle: Any) -> Iterator[ReportedDevice]:
    """A GPU as one device, or as its instances if it is split."""
    name, memory = _text(_answer(nvml, "nvmlDeviceGetName", handle)), _nvidia_memory(nvml, handle)
    bandwidth = _nvidia_bandwidth(nvml, handle)
    mode = _answer(nvml, "nvmlDeviceGetMigMode", handle)
    if not (isinstance(mode, list | tuple) and mode and mode[0] == 1):
        yield ReportedDevice(name, memory, None, bandwidth)
        return
    most = _answer(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for index in range(min(most, MAX_DEVICES)):
        instance = _answer(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if instance is None:
            continue
        attributes = _answer(nvml, "nvmlDeviceGetAttributes_v2", instance)
        own = _memory(_times(getattr(attributes, "memorySizeMB", None), _MIB)) or _nvidia_memory(nvml, instance)
        profile = _mig_profile(_text(_answer(nvml, "nvmlDeviceGetName", instance)), attributes, own)
        yield ReportedDevice(name, own, profile, _part(bandwidth, own, memory))


def _nvidia_memory(nvml: Any, handle: Any) -> float | None:
    return _memory(getattr(_answer(nvml, "nvmlDeviceGetMemoryInfo", handle), "total", None))


def _nvidia_bandwidth(nvml: Any, handle: Any) -> float | None:
    """2 x memory clock x bus width / 8, right for every kind of memory with the clock that NVML reports.

    Source: NVIDIA, "How to Query Device Properties and Handle Errors in CUDA C/C++". The highest clock, because the
    present one falls when the GPU idles.
    """
    megahertz = _answer(nvml, "nvmlDeviceGetMaxClockInfo", handle, getattr(nvml, "NVML_CLOCK_MEM", 2))
    bits = _answer(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    return parse_bandwidth(_times(megahertz, bits, 2 * 1e6 / 8))


def _mig_profile(name: str | None, attributes: Any, memory: float | None) -> str:
    """The profile in an instance's name (`NVIDIA A30 MIG 1g.6gb`), or one made of what it has.

    An empty one, where neither tells, is that of no device of the table: a part must not count as the whole.
    """
    if name and (told := _MIG_NAME.fullmatch(name)):
        return told[1]
    slices = getattr(attributes, "gpuInstanceSliceCount", None)
    compute = getattr(attributes, "computeInstanceSliceCount", slices)
    if memory is None or not isinstance(slices, int):
        return ""
    part = f"{slices}g.{memory / 2**30:.0f}gb"
    return part if compute == slices else f"{compute}c.{part}"


def _part(bandwidth: float | None, memory: float | None, whole: float | None) -> float | None:
    """The share of a MIG instance by its memory slices, eighths of the whole."""
    if bandwidth is None or memory is None or whole is None:
        return None
    eighths = round(8 * memory / whole)
    return bandwidth * eighths / 8 if 1 <= eighths <= 8 else None  # noqa: PLR2004  # of 8 eighths


def _amd(smi: Any, handle: Any) -> ReportedDevice:
    asic = _mapping(_answer(smi, "amdsmi_get_gpu_asic_info", handle))
    video_memory = _mapping(_answer(smi, "amdsmi_get_gpu_vram_info", handle))
    memory = _memory(_times(video_memory.get("vram_size"), _MIB))
    name, pci = _text(asic.get("market_name")), f"pci:{asic.get('device_id')}"
    # Consumer cards may be called just "AMD Radeon Graphics".
    if isinstance(resolve_device(name or "", memory), UnknownDevice) and not isinstance(
        resolve_device(pci, memory), UnknownDevice
    ):
        name = pci
    mode = _text(_answer(smi, "amdsmi_get_gpu_compute_partition", handle))
    if mode is not None and re.fullmatch("[DTQC]PX", mode):
        return ReportedDevice(name, memory, mode)
    bandwidth = _times(video_memory.get("vram_max_bandwidth"), 1e9)
    return ReportedDevice(name, memory, None, parse_bandwidth(bandwidth))


def _library(name: str) -> Any:
    """A vendor's module, or why there is none. Without its driver, amdsmi prints and raises KeyError on import."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module(name)
    except ModuleNotFoundError:
        extra = "nvidia" if name == "pynvml" else "amd"
        return f"it is not installed (pip install 'phasewatch[{extra}]')"
    except Exception as error:  # noqa: BLE001  # an edge: it runs the vendor's code
        return f"it cannot be loaded: {_in_a_line(error)}"


def _answer(library: Any, question: str, *arguments: Any) -> Any:
    """What a function of a vendor's library answers; None if it has no such function or refuses."""
    try:
        function: Callable[..., Any] = getattr(library, question)
        return function(*arguments)
    except Exception:  # noqa: BLE001  # NOT_SUPPORTED and anything else: then it is not known
        return None


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _text(value: object) -> str | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text.strip() or None if isinstance(text, str) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _memory(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and _MIB <= value <= _MOST_MEMORY else None


def _times(*factors: object) -> float | None:
    """A product; None if a factor is no number above 0 of a sensible size."""
    product = 1.0
    for factor in factors:
        if not isinstance(factor, int | float) or not 0 < factor < _MOST_MEMORY:
            return None
        product *= factor
    return product
