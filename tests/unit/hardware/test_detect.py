import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from phasewatch.hardware.detect import detect_amd_devices, detect_nvidia_devices
from phasewatch.hardware.reported import DetectedDevices, ReportedDevice

MIB = 2**20


class NotSupportedError(Exception):
    """The error of a driver for an unsupported query."""


class Gpu:
    """A GPU of a fake driver; None stands for an unsupported query."""

    def __init__(
        self,
        name: str | bytes | None = "NVIDIA L40S",
        mebibytes: float | None = 46068,
        megahertz: Any = 9001,
        bits: Any = 384,
        instances: list["Gpu | None"] | None = None,
        attributes: Any = None,
    ) -> None:
        self.name, self.mebibytes, self.megahertz, self.bits = name, mebibytes, megahertz, bits
        self.instances, self.attributes = instances, attributes


def require(value: Any) -> Any:
    """The value, or the driver's error if it is None."""
    if value is None:
        raise NotSupportedError("Not Supported")
    return value


class Nvml(ModuleType):
    """Fake pynvml with the functions and results of nvidia-ml-py 13."""

    NVML_CLOCK_MEM = 2

    def __init__(self, *gpus: Gpu, failure: str | None = None) -> None:
        super().__init__("pynvml")
        self.gpus, self.failure, self.open = gpus, failure, 0
        for name in [name for name in dir(type(self)) if name.startswith("query_")]:
            setattr(self, "nvml" + name.removeprefix("query_"), getattr(self, name))

    def query_Init(self) -> None:  # noqa: N802  # pynvml's own names, and below
        if self.failure is not None:
            raise NotSupportedError(self.failure)
        self.open += 1

    def query_Shutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def query_DeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def query_DeviceGetHandleByIndex(self, index: int) -> Gpu:  # noqa: N802
        return self.gpus[index]

    def query_DeviceGetName(self, gpu: Gpu) -> Any:  # noqa: N802
        return require(gpu.name)

    def query_DeviceGetMemoryInfo(self, gpu: Gpu) -> Any:  # noqa: N802
        return SimpleNamespace(total=require(gpu.mebibytes) * MIB)

    def query_DeviceGetMaxClockInfo(self, gpu: Gpu, kind: int) -> Any:  # noqa: N802
        assert kind == self.NVML_CLOCK_MEM
        return require(gpu.megahertz)

    def query_DeviceGetMemoryBusWidth(self, gpu: Gpu) -> Any:  # noqa: N802
        return require(gpu.bits)

    def query_DeviceGetMigMode(self, gpu: Gpu) -> list[int]:  # noqa: N802
        return [int(require(gpu.instances) is not None), 1]

    def query_DeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:  # noqa: N802
        return len(require(gpu.instances))

    def query_DeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:  # noqa: N802
        instance: Gpu = require(require(gpu.instances)[index])
        return instance

    def query_DeviceGetAttributes_v2(self, gpu: Gpu) -> Any:  # noqa: N802
        return require(gpu.attributes)


class AmdSmi(ModuleType):
    """Fake amdsmi with the functions and results of amdsmi 7.0."""

    def __init__(self, *gpus: dict[str, Any], failure: str | None = None) -> None:
        super().__init__("amdsmi")
        self.gpus, self.failure, self.open = gpus, failure, 0

    def amdsmi_init(self) -> None:
        if self.failure is not None:
            raise NotSupportedError(self.failure)
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[dict[str, Any]]:
        return list(self.gpus)

    def amdsmi_get_gpu_asic_info(self, gpu: dict[str, Any]) -> Any:
        return require(gpu.get("asic"))

    def amdsmi_get_gpu_vram_info(self, gpu: dict[str, Any]) -> Any:
        return require(gpu.get("vram"))

    def amdsmi_get_gpu_compute_partition(self, gpu: dict[str, Any]) -> Any:
        return require(gpu.get("partition"))


MI300X = {
    "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"},
    "vram": {"vram_size": 196592, "vram_bit_width": 8192, "vram_max_bandwidth": 5325},
    "partition": "SPX",
}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    return lambda module: monkeypatch.setitem(sys.modules, module.__name__, module)


def mig(name: str | None, mebibytes: float, slices: int, compute: int | None = None) -> Gpu:
    attributes = SimpleNamespace(
        memorySizeMB=mebibytes, gpuInstanceSliceCount=slices, computeInstanceSliceCount=compute or slices
    )
    return Gpu(name, None, None, None, attributes=attributes)


def test_nvidia_bandwidth_is_twice_the_memory_clock_times_the_bus_width(use: Callable[[ModuleType], None]) -> None:
    nvml = Nvml(Gpu(), Gpu(b"NVIDIA H100 80GB HBM3", 81559, 2619, 5120))
    use(nvml)
    detected = detect_nvidia_devices()
    assert detected.reason is None
    assert detected.devices == (
        ReportedDevice("NVIDIA L40S", 46068 * MIB, None, 864.096e9),
        ReportedDevice("NVIDIA H100 80GB HBM3", 81559 * MIB, None, 3352.32e9),
    )
    assert nvml.open == 0


def test_an_unsupported_query_leaves_its_figure_unknown_and_the_rest_known(use: Callable[[ModuleType], None]) -> None:
    for missing in ("name", "mebibytes", "megahertz", "bits"):
        use(Nvml(Gpu(**{missing: None})))
        (device,) = detect_nvidia_devices().devices
        assert (device.name is None) == (missing == "name"), missing
        assert (device.memory is None) == (missing == "mebibytes"), missing
        assert (device.memory_bandwidth is None) == (missing in {"megahertz", "bits"}), missing


def test_an_implausible_figure_of_a_driver_is_unknown(use: Callable[[ModuleType], None]) -> None:
    cases: list[Any] = [0, -1, 1e30, float("nan"), float("inf"), "9001", [], 2**70]
    for nonsense in cases:
        use(Nvml(Gpu(megahertz=nonsense), Gpu(bits=nonsense)))
        assert [device.memory_bandwidth for device in detect_nvidia_devices().devices] == [None, None], nonsense


def test_a_gpu_with_mig_is_reported_as_its_instances_with_their_shares(use: Callable[[ModuleType], None]) -> None:
    instances = [
        mig("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968, 3),
        None,
        mig("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, 1),
        mig("NVIDIA A100-SXM4-40GB", 19968, 3),
        mig(None, 19968, 3, 1),
    ]
    use(Nvml(Gpu("NVIDIA A100-SXM4-40GB", 40960, 1215, 5120, instances), Gpu()))
    devices = detect_nvidia_devices().devices
    assert [device.name for device in devices] == ["NVIDIA A100-SXM4-40GB"] * 4 + ["NVIDIA L40S"]
    assert [device.profile for device in devices[:4]] == ["3g.20gb", "1g.5gb", "3g.20gb", "1c.3g.20gb"]
    whole = 2 * 1215e6 * 5120 / 8
    assert [device.memory_bandwidth for device in devices[:4]] == pytest.approx(
        [whole / 2, whole / 8, whole / 2, whole / 2]
    )
    assert devices[0].memory == 19968 * MIB


def test_an_instance_without_any_figures_does_not_count_as_the_whole_gpu(use: Callable[[ModuleType], None]) -> None:
    use(Nvml(Gpu("NVIDIA A100-SXM4-40GB", 40960, 1215, 5120, [Gpu(None, None, None, None)])))
    assert detect_nvidia_devices().devices == (ReportedDevice("NVIDIA A100-SXM4-40GB", None, "", None),)


def test_a_gpu_with_mig_but_without_instances_is_not_a_device(use: Callable[[ModuleType], None]) -> None:
    use(Nvml(Gpu(instances=[])))
    assert detect_nvidia_devices() == DetectedDevices((), "NVIDIA's driver shows no GPU")


def test_a_driver_that_does_not_start_gives_a_reason(use: Callable[[ModuleType], None]) -> None:
    use(Nvml(failure="NVML Shared\nLibrary Not Found"))
    assert detect_nvidia_devices() == DetectedDevices(
        (), "NVIDIA's driver cannot be asked: NVML Shared Library Not Found"
    )
    use(AmdSmi(failure=""))
    assert detect_amd_devices() == DetectedDevices((), "AMD's driver cannot be asked: NotSupportedError")


def test_a_driver_without_gpus_gives_a_reason(use: Callable[[ModuleType], None]) -> None:
    nvml, smi = Nvml(), AmdSmi()
    use(nvml)
    use(smi)
    assert detect_nvidia_devices() == DetectedDevices((), "NVIDIA's driver shows no GPU")
    assert detect_amd_devices() == DetectedDevices((), "AMD's driver shows no GPU")
    assert (nvml.open, smi.open) == (0, 0)


def test_libraries_that_are_not_installed_give_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, name, None)
    assert detect_nvidia_devices().devices == detect_amd_devices().devices == ()
    assert "pip install 'phasewatch[nvidia]'" in (detect_nvidia_devices().reason or "")
    assert "pip install 'phasewatch[amd]'" in (detect_amd_devices().reason or "")


def test_a_library_that_prints_and_breaks_while_loading_gives_a_reason(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "amdsmi.py").write_text("print('Unable to find libamd_smi.so')\nraise KeyError('libamd_smi.so')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    assert detect_amd_devices() == DetectedDevices((), "amdsmi cannot be used: it cannot be loaded: 'libamd_smi.so'")
    assert capsys.readouterr().out == ""


def test_a_library_without_its_functions_shows_no_gpu(use: Callable[[ModuleType], None]) -> None:
    old = ModuleType("pynvml")
    vars(old)["nvmlInit"] = lambda: None
    use(old)
    assert detect_nvidia_devices() == DetectedDevices((), "NVIDIA's driver shows no GPU")


def test_amds_driver_reports_name_memory_and_bandwidth(use: Callable[[ModuleType], None]) -> None:
    smi = AmdSmi(MI300X)
    use(smi)
    assert detect_amd_devices() == DetectedDevices((ReportedDevice("AMD Instinct MI300X", 196592 * MIB, None, 5325e9),))
    assert smi.open == 0


def test_a_generic_name_is_replaced_by_the_pci_id(use: Callable[[ModuleType], None]) -> None:
    plain = {"market_name": "AMD Radeon Graphics"}
    use(
        AmdSmi(
            {"asic": plain | {"device_id": "0x744c"}, "vram": {"vram_size": 24560, "vram_max_bandwidth": "N/A"}},
            {"asic": plain | {"device_id": "0xffff"}},
            {"asic": {"market_name": "N/A", "device_id": "0x7550"}},
        )
    )
    assert detect_amd_devices().devices == (
        ReportedDevice("pci:0x744c", 24560 * MIB),
        ReportedDevice("AMD Radeon Graphics"),
        ReportedDevice("pci:0x7550"),
    )


def test_an_amd_partition_has_its_mode_and_not_the_bandwidth_of_the_whole_gpu(
    use: Callable[[ModuleType], None],
) -> None:
    use(AmdSmi(MI300X | {"partition": "CPX"}, MI300X | {"partition": "N/A"}))
    whole = ReportedDevice("AMD Instinct MI300X", 196592 * MIB, None, 5325e9)
    assert detect_amd_devices().devices == (ReportedDevice("AMD Instinct MI300X", 196592 * MIB, "CPX"), whole)


def test_an_amd_gpu_without_any_figures_is_still_reported(use: Callable[[ModuleType], None]) -> None:
    use(AmdSmi({}, {"asic": "no mapping", "vram": []}))
    assert detect_amd_devices().devices == (ReportedDevice(None), ReportedDevice(None))
