import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.hardware.detect import (
    DetectedDevices,
    ReportedDevice,
    detect_amd_devices,
    detect_nvidia_devices,
    parse_dcgm_page,
)
from phasewatch.hardware.facts import MAX_DEVICES, parse_bandwidth

MIB = 2**20


class NotSupportedError(Exception):
    """What a driver answers to a question that it does not like."""


class Gpu:
    """A GPU of a fake driver. What is None is not supported."""

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


def told(value: Any) -> Any:
    if value is None:
        raise NotSupportedError("Not Supported")
    return value


class Nvml(ModuleType):
    """Stands for pynvml, with the functions and the answers of nvidia-ml-py 13."""

    NVML_CLOCK_MEM = 2

    def __init__(self, *gpus: Gpu, failure: str | None = None) -> None:
        super().__init__("pynvml")
        self.gpus, self.failure, self.open = gpus, failure, 0
        for name in [name for name in dir(type(self)) if name.startswith("ask_")]:
            setattr(self, "nvml" + name.removeprefix("ask_"), getattr(self, name))

    def ask_Init(self) -> None:  # noqa: N802  # pynvml's own names, and below
        if self.failure is not None:
            raise NotSupportedError(self.failure)
        self.open += 1

    def ask_Shutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def ask_DeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def ask_DeviceGetHandleByIndex(self, index: int) -> Gpu:  # noqa: N802
        return self.gpus[index]

    def ask_DeviceGetName(self, gpu: Gpu) -> Any:  # noqa: N802
        return told(gpu.name)

    def ask_DeviceGetMemoryInfo(self, gpu: Gpu) -> Any:  # noqa: N802
        return SimpleNamespace(total=told(gpu.mebibytes) * MIB)

    def ask_DeviceGetMaxClockInfo(self, gpu: Gpu, kind: int) -> Any:  # noqa: N802
        assert kind == self.NVML_CLOCK_MEM
        return told(gpu.megahertz)

    def ask_DeviceGetMemoryBusWidth(self, gpu: Gpu) -> Any:  # noqa: N802
        return told(gpu.bits)

    def ask_DeviceGetMigMode(self, gpu: Gpu) -> list[int]:  # noqa: N802
        return [int(told(gpu.instances) is not None), 1]

    def ask_DeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:  # noqa: N802
        return len(told(gpu.instances))

    def ask_DeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:  # noqa: N802
        instance: Gpu = told(told(gpu.instances)[index])
        return instance

    def ask_DeviceGetAttributes_v2(self, gpu: Gpu) -> Any:  # noqa: N802
        return told(gpu.attributes)


class AmdSmi(ModuleType):
    """Stands for amdsmi, with the functions and the answers of amdsmi 7.0."""

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
        return told(gpu.get("asic"))

    def amdsmi_get_gpu_vram_info(self, gpu: dict[str, Any]) -> Any:
        return told(gpu.get("vram"))

    def amdsmi_get_gpu_compute_partition(self, gpu: dict[str, Any]) -> Any:
        return told(gpu.get("partition"))


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


def test_nvidias_driver_tells_name_memory_and_twice_clock_times_bus(use: Callable[[ModuleType], None]) -> None:
    nvml = Nvml(Gpu(), Gpu(b"NVIDIA H100 80GB HBM3", 81559, 2619, 5120))
    use(nvml)
    found = detect_nvidia_devices()
    assert found.reason is None
    assert found.devices == (
        ReportedDevice("NVIDIA L40S", 46068 * MIB, None, 864.096e9),
        ReportedDevice("NVIDIA H100 80GB HBM3", 81559 * MIB, None, 3352.32e9),
    )
    assert nvml.open == 0


@pytest.mark.parametrize("missing", ["name", "mebibytes", "megahertz", "bits"])
def test_what_the_driver_does_not_support_is_unknown_and_the_rest_is_kept(
    missing: str, use: Callable[[ModuleType], None]
) -> None:
    use(Nvml(Gpu(**{missing: None})))
    (device,) = detect_nvidia_devices().devices
    assert (device.name is None) == (missing == "name")
    assert (device.memory is None) == (missing == "mebibytes")
    assert (device.memory_bandwidth is None) == (missing in {"megahertz", "bits"})


@pytest.mark.parametrize("nonsense", [0, -1, 1e30, float("nan"), float("inf"), "9001", [], 2**70])
def test_nonsense_of_a_driver_is_unknown(nonsense: Any, use: Callable[[ModuleType], None]) -> None:
    use(Nvml(Gpu(megahertz=nonsense), Gpu(bits=nonsense)))
    assert [device.memory_bandwidth for device in detect_nvidia_devices().devices] == [None, None]


def test_a_split_gpu_is_its_instances_with_their_shares(use: Callable[[ModuleType], None]) -> None:
    instances = [
        mig("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19968, 3),
        None,
        mig("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, 1),
        mig("NVIDIA A100-SXM4-40GB", 19968, 3),
        mig(None, 19968, 3, 1),
    ]
    use(Nvml(Gpu("NVIDIA A100-SXM4-40GB", 40960, 1215, 5120, instances), Gpu()))
    found = detect_nvidia_devices().devices
    assert [device.name for device in found] == ["NVIDIA A100-SXM4-40GB"] * 4 + ["NVIDIA L40S"]
    assert [device.profile for device in found[:4]] == ["3g.20gb", "1g.5gb", "3g.20gb", "1c.3g.20gb"]
    whole = 2 * 1215e6 * 5120 / 8
    assert [device.memory_bandwidth for device in found[:4]] == pytest.approx(
        [whole / 2, whole / 8, whole / 2, whole / 2]
    )
    assert found[0].memory == 19968 * MIB


def test_an_instance_of_which_nothing_is_told_does_not_count_as_the_whole(use: Callable[[ModuleType], None]) -> None:
    use(Nvml(Gpu("NVIDIA A100-SXM4-40GB", 40960, 1215, 5120, [Gpu(None, None, None, None)])))
    assert detect_nvidia_devices().devices == (ReportedDevice("NVIDIA A100-SXM4-40GB", None, "", None),)


def test_a_split_gpu_without_instances_is_none(use: Callable[[ModuleType], None]) -> None:
    use(Nvml(Gpu(instances=[])))
    assert detect_nvidia_devices() == DetectedDevices((), "NVIDIA's driver shows no GPU")


def test_a_driver_that_cannot_be_asked_gives_a_reason(use: Callable[[ModuleType], None]) -> None:
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


def test_amds_driver_tells_name_memory_and_bandwidth(use: Callable[[ModuleType], None]) -> None:
    smi = AmdSmi(MI300X)
    use(smi)
    assert detect_amd_devices() == DetectedDevices((ReportedDevice("AMD Instinct MI300X", 196592 * MIB, None, 5325e9),))
    assert smi.open == 0


def test_a_name_that_says_nothing_gives_way_to_the_pci_id(use: Callable[[ModuleType], None]) -> None:
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


def test_a_partition_of_amd_has_its_mode_and_not_the_bandwidth_of_the_whole(
    use: Callable[[ModuleType], None],
) -> None:
    use(AmdSmi(MI300X | {"partition": "CPX"}, MI300X | {"partition": "N/A"}))
    whole = ReportedDevice("AMD Instinct MI300X", 196592 * MIB, None, 5325e9)
    assert detect_amd_devices().devices == (ReportedDevice("AMD Instinct MI300X", 196592 * MIB, "CPX"), whole)


def test_an_amd_gpu_of_which_nothing_is_told_is_still_one(use: Callable[[ModuleType], None]) -> None:
    use(AmdSmi({}, {"asic": "no mapping", "vram": []}))
    assert detect_amd_devices().devices == (ReportedDevice(None), ReportedDevice(None))


def series(name: str, value: str, **labels: str) -> str:
    told = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value}\n"


def test_a_dcgm_page_tells_each_gpu_once() -> None:
    page = "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    for gpu, name in (("0", "NVIDIA L40S"), ("1", "NVIDIA L40S"), ("2", "Tesla T4")):
        labels = {"gpu": gpu, "UUID": f"GPU-{gpu}", "device": f"nvidia{gpu}", "modelName": name, "Hostname": "h"}
        page += series("DCGM_FI_DEV_SM_CLOCK", "210", **labels)
        page += series("DCGM_FI_DEV_FB_USED", "40000", **labels)
        if gpu != "2":
            page += series("DCGM_FI_DEV_FB_FREE", "5500", **labels)
        if gpu == "1":
            page += series("DCGM_FI_DEV_FB_RESERVED", "568", **labels)
    assert parse_dcgm_page(page) == DetectedDevices(
        (
            ReportedDevice("NVIDIA L40S", 45500 * MIB),
            ReportedDevice("NVIDIA L40S", 46068 * MIB),
            ReportedDevice("Tesla T4"),
        )
    )


def test_the_total_of_a_dcgm_page_counts_where_there_is_one() -> None:
    page = "".join(
        series(f"DCGM_FI_DEV_FB_{what}", value, gpu="0", modelName="NVIDIA L4")
        for what, value in (("USED", "1"), ("FREE", "2"), ("TOTAL", "23034"))
    )
    assert parse_dcgm_page(page).devices == (ReportedDevice("NVIDIA L4", 23034 * MIB),)


def test_a_dcgm_page_of_a_split_gpu_tells_its_instances_and_not_the_whole() -> None:
    common = {"gpu": "0", "UUID": "GPU-a", "modelName": "NVIDIA A30"}
    page = series("DCGM_FI_DEV_GPU_TEMP", "40", **common)
    for number in ("3", "4"):
        instance = common | {"GPU_I_PROFILE": "1g.6gb", "GPU_I_ID": number}
        page += series("DCGM_FI_DEV_FB_USED", "12", **instance) + series("DCGM_FI_DEV_FB_FREE", "5928", **instance)
    page += series("DCGM_FI_DEV_GPU_TEMP", "40", gpu="1", UUID="GPU-b", modelName="NVIDIA A30")
    assert parse_dcgm_page(page).devices == (
        ReportedDevice("NVIDIA A30", 5940 * MIB, "1g.6gb"),
        ReportedDevice("NVIDIA A30", 5940 * MIB, "1g.6gb"),
        ReportedDevice("NVIDIA A30"),
    )


@pytest.mark.parametrize("value", ["9223372036854775794", "NaN", "+Inf", "-1", "0"])
def test_a_blank_value_of_dcgm_is_no_memory(value: str) -> None:
    page = series("DCGM_FI_DEV_FB_TOTAL", value, gpu="0", modelName="NVIDIA L4")
    assert parse_dcgm_page(page).devices == (ReportedDevice("NVIDIA L4"),)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("", "the page has no DCGM_FI_ metrics with a modelName"),
        ("vllm:num_requests_running 1\n", "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0"} 210\n', "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName=""} 210\n', "the page has no DCGM_FI_ metrics with a modelName"),
        ("<html>no metrics</html>", "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_FB_TOTAL{modelName="NVIDIA L4"', "the page is not in the text format of Prometheus: "),
        ("DCGM_FI_\0" * 1000, "the page is not in the text format of Prometheus: "),
    ],
)
def test_a_foreign_page_gives_a_reason_of_one_line(page: str, reason: str) -> None:
    found = parse_dcgm_page(page)
    assert found.devices == ()
    assert found.reason
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason
    assert len(found.reason) < 300


def test_lines_of_others_on_the_page_are_not_even_read() -> None:
    own = series("DCGM_FI_DEV_FB_TOTAL", "23034", gpu="0", modelName="NVIDIA L4")
    others = 'kube_pod_labels{pod="a" 1\n<html>\nx{DCGM_FI_="DCGM_FI_DEV_FB_TOTAL{"} nonsense\n'
    assert parse_dcgm_page(others + own + others) == DetectedDevices((ReportedDevice("NVIDIA L4", 23034 * MIB),))


def test_a_page_of_a_whole_cluster_is_refused() -> None:
    page = "".join(
        series("DCGM_FI_DEV_SM_CLOCK", "1", gpu=str(index), modelName="NVIDIA L4") for index in range(MAX_DEVICES + 1)
    )
    found = parse_dcgm_page(page)
    assert found == DetectedDevices((), "the page shows more than 1024 devices; it is no single DCGM exporter's")


@given(st.text() | st.text('DCGM_FI_DEV{}=",\\modelName 01\n#eE+-.', max_size=200))
def test_any_page_gives_devices_or_a_reason(page: str) -> None:
    found = parse_dcgm_page(page)
    assert bool(found.devices) != bool(found.reason)


@pytest.mark.parametrize(
    ("value", "bandwidth"),
    [(864e9, 864e9), (17_100_000_000, 17.1e9), (1e9, 1e9), (1e14, 1e14)]
    + [
        (value, None) for value in (None, 0, 1, 9e8, 1.1e14, -864e9, float("nan"), float("inf"), True, "864e9", 10**400)
    ],
)
def test_a_bandwidth_is_between_a_gigabyte_and_a_hundred_terabytes(value: object, bandwidth: float | None) -> None:
    assert parse_bandwidth(value) == bandwidth
