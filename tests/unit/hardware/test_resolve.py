import csv
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasewatch.hardware.facts import ComputeRates
from phasewatch.hardware.resolve import (
    MAX_NAME_LENGTH,
    AmbiguousDevice,
    ResolvedDevice,
    UnknownDevice,
    format_memory,
    resolve_device,
)
from phasewatch.hardware.table import Device, load_devices
from tests.support.paths import DATA

MIB = 2**20
with (DATA / "device-names.csv").open(encoding="utf-8") as file:
    REPORTED = [(row["reported_name"], row["memory_mib"], row) for row in csv.DictReader(file)]


def resolve_name(name: str, mebibytes: float | None = None, profile: str | None = None) -> str | None:
    """The name of the device, if it is exactly one."""
    resolved = resolve_device(name, None if mebibytes is None else mebibytes * MIB, profile)
    return resolved.device.name if isinstance(resolved, ResolvedDevice) else None


def resolve_one(name: str, profile: str | None = None) -> ResolvedDevice:
    resolved = resolve_device(name, None, profile)
    assert isinstance(resolved, ResolvedDevice)
    return resolved


def test_a_reported_name_resolves_to_its_device() -> None:
    for name, memory, row in REPORTED:
        resolved = resolve_device(name, float(memory) * MIB)
        assert isinstance(resolved, ResolvedDevice), name
        assert (resolved.name, resolved.device.name) == (name, row["expected_device"]), name
        assert resolved.memory_bandwidth == float(row["expected_gbps"]) * 1e9, name


def test_other_real_names_resolve_to_their_devices() -> None:
    cases: list[tuple[str, float | None, str]] = [
        # The file names of vLLM's tuned kernels contain torch's name of the device.
        ("NVIDIA_H100_80GB_HBM3", None, "H100 SXM5 80GB"),
        ("NVIDIA_A100-SXM4-80GB", None, "A100 SXM4 80GB"),
        ("NVIDIA_A100_80GB_PCIe", None, "A100 PCIe 80GB"),
        ("NVIDIA_H20-3e", None, "H20-3e"),
        ("NVIDIA_H20", None, "H20"),
        ("NVIDIA_B300_SXM6_AC", 275040, "B300"),
        ("NVIDIA_B200", 183359, "B200"),
        ("NVIDIA_GB10", None, "DGX Spark GB10"),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition", None, "RTX PRO 6000 Blackwell Server"),
        ("AMD_Instinct_MI325_OAM", None, "Instinct MI325X"),
        ("AMD_Instinct_MI355_OAM", None, "Instinct MI355X"),
        ("AMD_Radeon_R9700", None, "Radeon AI PRO R9700"),
        ("Radeon_8060S_Graphics", 512, "Ryzen AI Max+ 395 (Radeon 8060S)"),
        ("Intel(R)_Arc(TM)_Pro_B60_Graphics", 24480, "Arc Pro B60"),
        # Labels of Kubernetes nodes
        ("NVIDIA-H100-80GB-HBM3", None, "H100 SXM5 80GB"),
        ("nvidia-tesla-t4", None, "Tesla T4"),
        # Drivers
        ("A100-SXM-80GB", 81251, "A100 SXM4 80GB"),
        ("Tesla T4", 15360, "Tesla T4"),
        ("NVIDIA Tesla V100-SXM2-32GB", 32768, "Tesla V100 SXM2"),
        ("Tesla V100-SXM3-32GB", 32768, "Tesla V100 SXM3"),
        ("Tesla V100-FHHL-16GB", 16384, "Tesla V100 FHHL"),
        ("Tesla P40", 23040, "Tesla P40"),
        ("GeForce RTX 2080 Ti", 11264, "GeForce RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "GeForce RTX 4060 Ti"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 8192, "GeForce RTX 3080 Laptop GPU"),
        ("NVIDIA Quadro RTX 6000", 24576, "Quadro RTX 6000"),
        ("NVIDIA RTX A2000 12GB", 12282, "RTX A2000"),
        ("NVIDIA GH200 144G HBM3e", 146831, "GH200 144GB"),
        ("Orin (nvgpu)", 62840, "Jetson AGX Orin 64GB"),
        ("Orin", 7620, "Jetson Orin Nano 8GB (Super)"),
        ("AMD Instinct MI300X OAM", 196592, "Instinct MI300X"),
        ("AMD Instinct MI300X VF", None, "Instinct MI300X"),
        ("AMD Instinct MI250X / MI250", 65520, "Instinct MI250X (one GCD)"),
        ("Arcturus GL-XL [Instinct MI100]", None, "Instinct MI100"),
        ("pci:0x74a1", None, "Instinct MI300X"),
        ("PCI:0x744C", 24560, "Radeon RX 7900 XTX"),
        ("pci:0x744c", 20464, "Radeon RX 7900 XT"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", None, "Arc Pro B60"),
        ("Intel® Arc™ A770 Graphics", 16288, "Arc A770 16GB"),
        ("Intel Arc A770", None, "Arc A770 16GB"),
        ("NVIDIA\u00a0L40S", None, "L40S"),
        ("NVIDIA\u2009GeForce\u202fRTX\t4090", None, "GeForce RTX 4090"),
        ("Orin", 30991, "Jetson AGX Orin 32GB"),
        ("CPU, dual channel DDR5-5600", None, "CPU DDR5-5600 dual channel"),
        ("HL-225", None, "Gaudi 2"),
        ("Apple M2 Ultra", 196608, "Apple M2 Ultra"),
        ("Apple M4 Max", 36864, "Apple M4 Max (32-core GPU)"),
        ("Apple M4 Max", 131072, "Apple M4 Max (40-core GPU)"),
        ("Apple M3 Max", 131072, "Apple M3 Max (40-core GPU)"),
        ("Apple M6", 16384, "Apple M6 (16GB)"),
        # Names that people type
        ("RTX 4090", None, "GeForce RTX 4090"),
        ("rtx-4090", None, "GeForce RTX 4090"),
        ("  nvidia   l40s ", None, "L40S"),
        ("M4 Pro", None, "Apple M4 Pro"),
        ("AMD MI300X", None, "Instinct MI300X"),
        ("RX 7900 XTX", None, "Radeon RX 7900 XTX"),
        ("NVIDIA H100", 95830, "H100 NVL"),
    ]
    for name, mebibytes, device in cases:
        assert resolve_name(name, mebibytes) == device, (name, mebibytes)


def test_a_name_of_the_table_resolves_to_its_own_row() -> None:
    for device in load_devices():
        for name in (device.name, device.name.upper(), device.name.replace(" ", "_")):
            assert resolve_name(name) == device.name, device.name
        for alias in device.aliases:
            resolved = resolve_device(alias)
            candidates = resolved.candidates if isinstance(resolved, AmbiguousDevice) else ()
            assert device in candidates or resolve_name(alias) == device.name, device.name


def test_a_name_that_is_not_a_device_does_not_resolve() -> None:
    cases: list[tuple[str, float | None]] = [
        ("", None),
        ("   ", None),
        ("NVIDIA", None),
        ("GeForce", None),
        ("NVIDIA A10 0", None),
        ("NVIDIA L4 0S", None),
        ("A100 SXM4 80GB extra", None),
        ("NVIDIA GeForce RTX 4090 Ti", None),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", None),
        ("NVIDIA GeForce GTX 1060 3GB", None),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", None),
        ("GeForce RTX 2080 with Max-Q Design", None),
        ("NVIDIA L20Y", 81920),
        ("NVIDIA RTX 6000", 49140),
        ("NVIDIA RTX 4000", None),
        ("NVIDIA NVIDIA L4", None),
        ("AMD A100-SXM4-80GB", None),
        ("NVIDIA Instinct MI300X", None),
        ("Tesla A10", None),
        ("GeForce A10", None),
        ("AMD Radeon Graphics", None),
        ("NVIDIA GeForce RTX 3060", 8192),
        ("NVIDIA GeForce RTX 2060", 12288),
        ("NVIDIA GeForce RTX 4090", 49140),
        ("NVIDIA GeForce RTX 3080", 20480),
        ("Intel(R) Arc(TM) A770 Graphics", 8192),
        ("NVIDIA L4", math.nan),
        ("NVIDIA L4", math.inf),
        ("NVIDIA L4", 0),
        ("NVIDIA L4", -23034),
        ("NVIDIA\nL4", None),
        ("NVIDIA L4\0", None),
        ("A100-SXM4\00080GB", None),
        ("NVIDIA L\uff14", None),
        ("NVIDIA \u216c4", None),
        ("DGX Spar\u212a GB10", None),
        ("☃", None),
        ("L4" * 500_000, None),
        (" " * 1_000_000 + "L4", None),
        ("NVIDIA A10-24q", None),
        ("NVIDIA A10_24Q", None),
        ("NVIDIA A10-24QQ", None),
        ("NVIDIA A10-24", None),
        ("NVIDIA A10-0Q", None),
        ("NVIDIA A10-48Q", None),
        ("AMD Instinct MI300X-24Q", None),
        ("GRID V100D-16Q", None),
        ("NVIDIA H100-80C", None),
    ]
    for name, mebibytes in cases:
        assert resolve_name(name, mebibytes) is None, (name, mebibytes)


def test_a_shared_name_lists_its_devices_and_what_distinguishes_them() -> None:
    cases: list[tuple[str, float | None, str, tuple[str, ...]]] = [
        (
            "NVIDIA GeForce RTX 3080",
            None,
            "the memory size",
            ("GeForce RTX 3080 (10GB)", "GeForce RTX 3080 (12GB)"),
        ),
        ("NVIDIA H100", 81559, "the exact model", ("H100 PCIe", "H100 SXM5 80GB")),
        (
            "Apple M3 Max",
            48e9 / MIB,
            "the number of GPU cores",
            ("Apple M3 Max (30-core GPU)", "Apple M3 Max (40-core GPU)"),
        ),
        (
            "Apple M5 Max",
            None,
            "the number of GPU cores",
            ("Apple M5 Max (32-core GPU)", "Apple M5 Max (40-core GPU)"),
        ),
        ("pci:0x7550", 16304, "the exact model", ("Radeon RX 9070", "Radeon RX 9070 XT")),
        (
            "Orin",
            None,
            "the memory size",
            (
                "Jetson Orin Nano 8GB (Super)",
                "Jetson Orin NX 16GB",
                "Jetson AGX Orin 32GB",
                "Jetson AGX Orin 64GB",
            ),
        ),
    ]
    for name, mebibytes, decided_by, candidates in cases:
        resolved = resolve_device(name, None if mebibytes is None else mebibytes * MIB)
        assert isinstance(resolved, AmbiguousDevice), (name, mebibytes)
        assert resolved.decided_by == decided_by, (name, mebibytes)
        assert tuple(device.name for device in resolved.candidates) == candidates, (name, mebibytes)


def test_memory_that_fits_no_device_of_the_name_is_reported() -> None:
    resolved = resolve_device("NVIDIA GeForce RTX 3060", 8192 * MIB)
    assert resolved == UnknownDevice("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 has 12 GB, not 8 GiB")


def test_memory_in_decimal_gigabytes_fits() -> None:
    assert resolve_name("NVIDIA GeForce RTX 3080", 10e9 / MIB) == "GeForce RTX 3080 (10GB)"
    assert resolve_name("NVIDIA GeForce RTX 3080", 12e9 / MIB) == "GeForce RTX 3080 (12GB)"


def test_similar_names_are_listed_but_never_used() -> None:
    resolved = resolve_device("NVIDIA GeForce RTX 4090 Ti")
    assert isinstance(resolved, UnknownDevice)
    assert 0 < len(resolved.similar) <= 3
    assert all(resolve_name(name) == name for name in resolved.similar)
    assert resolve_device("x" * MAX_NAME_LENGTH) == UnknownDevice("x" * MAX_NAME_LENGTH, "the table has no such device")


def test_processors_are_recognised() -> None:
    cases = [
        "AMD EPYC 9354 32-Core Processor",
        "Intel(R) Xeon(R) Platinum 8480+",
        "Intel(R) Core(TM) i9-13900K",
        "Intel(R) Core(TM) Ultra 7 155H",
        "AMD Ryzen 9 7950X 16-Core Processor",
        "Neoverse-V2",
        "Common KVM processor",
        "CPU",
    ]
    for name in cases:
        resolved = resolve_device(name)
        assert isinstance(resolved, UnknownDevice), name
        assert resolved.processor, name


def test_other_unknown_names_are_not_taken_for_processors() -> None:
    for name in ("Coreweave X1", "NVIDIA L20Y", "Apple M9 Max (40-core GPU)", ""):
        resolved = resolve_device(name)
        assert isinstance(resolved, UnknownDevice), name
        assert not resolved.processor, name


def test_a_mig_instance_gets_bandwidth_by_memory_slices_and_compute_by_compute_slices() -> None:
    cases = [
        # NVIDIA's MIG user guide: eighths of the memory (quarters on A30), sevenths of the SMs (quarters)
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 4 / 8, 3 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 4g.40gb", 4 / 8, 4 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 1 / 8, 1 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", 1 / 8, 1 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 1g.20gb", 2 / 8, 1 / 7),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", 1, 1),
        ("NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb", 4 / 8, 1 / 7),
        ("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", 2 / 8, 2 / 7),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1 / 8, 1 / 7),
        ("NVIDIA A100-SXM4-40GB MIG 1g.10gb", 2 / 8, 1 / 7),
        ("NVIDIA A30 MIG 1g.6gb", 1 / 4, 1 / 4),
        ("NVIDIA A30 MIG 2g.12gb+me", 2 / 4, 2 / 4),
        ("NVIDIA A30 MIG 4g.24gb", 1, 1),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 4 / 8, 3 / 7),
        ("NVIDIA H100 NVL MIG 1g.11gb", 1 / 8, 1 / 7),
        ("NVIDIA H100 NVL MIG 1g.24gb", 2 / 8, 1 / 7),
        ("NVIDIA H200 MIG 1g.18gb", 1 / 8, 1 / 7),
        ("NVIDIA H200 MIG 3g.71gb", 4 / 8, 3 / 7),
        ("NVIDIA B200 MIG 1g.23gb", 1 / 8, 1 / 7),
        ("NVIDIA B200 MIG 1g.45gb", 2 / 8, 1 / 7),
        ("NVIDIA B300 SXM6 AC MIG 1g.34gb", 1 / 8, 1 / 7),
        ("NVIDIA B300 SXM6 AC MIG 1g.67gb", 2 / 8, 1 / 7),
        ("NVIDIA B300 SXM6 AC MIG 7g.269gb", 1, 1),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb+gfx", 1 / 4, 1 / 4),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb-me", 2 / 4, 2 / 4),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb+me.all", 1 / 4, 1 / 4),
    ]
    for name, memory, compute in cases:
        resolved = resolve_one(name)
        assert resolved.profile is not None, name
        assert resolved.device.memory_bandwidth is not None, name
        assert resolved.device.compute.bits16 is not None, name
        assert resolved.memory_bandwidth == pytest.approx(resolved.device.memory_bandwidth * memory), name
        assert resolved.compute.bits16 == pytest.approx(resolved.device.compute.bits16 * compute), name


def test_the_profile_may_be_given_beside_the_name() -> None:
    beside, within = resolve_one("NVIDIA A100-SXM4-40GB", "1g.5gb"), resolve_one("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert beside.memory_bandwidth == within.memory_bandwidth == 1555e9 / 8
    assert resolve_one("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb").memory_bandwidth == 1555e9 / 8
    assert beside.compute.fp8 is None


def test_the_memory_of_a_mig_instance_or_virtual_gpu_is_ignored() -> None:
    assert resolve_name("NVIDIA A100-SXM4-80GB", 9728, "1g.10gb") == "A100 SXM4 80GB"
    assert resolve_name("NVIDIA A10-4Q", 4096) == "A10"


def test_a_partition_that_the_device_cannot_have_does_not_resolve() -> None:
    cases = [
        ("NVIDIA A100-SXM4-40GB", "3g.40gb"),
        ("NVIDIA A100-SXM4-80GB", "5g.40gb"),
        ("NVIDIA A100-SXM4-80GB", "9g.999gb"),
        ("NVIDIA A100-SXM4-80GB", "0g.0gb"),
        ("NVIDIA A100-SXM4-80GB", "4c.3g.40gb"),
        ("NVIDIA A100-SXM4-80GB", "7g.10gb"),
        ("NVIDIA A100-SXM4-80GB", ""),
        ("NVIDIA A100-SXM4-80GB", "CPX"),
        ("NVIDIA A100-SXM4-80GB", "3g.40gb" * 1000),
        ("NVIDIA A30", "3g.18gb"),
        ("NVIDIA L4", "1g.5gb"),
        ("NVIDIA H100", "1g.10gb"),
        ("nothing", "1g.10gb"),
        ("AMD Instinct MI300X", "3g.40gb"),
        ("AMD Instinct MI300X", "TPX"),
        ("AMD Instinct MI300X", "XPX"),
        ("AMD Instinct MI210", "CPX"),
    ]
    for name, profile in cases:
        assert resolve_name(name, None, profile) is None, (name, profile)


def test_amd_partitions_share_the_device_evenly() -> None:
    cases = [
        ("AMD Instinct MI300X", "SPX", 1),
        ("AMD Instinct MI300X", "DPX", 2),
        ("AMD Instinct MI300X", "CPX", 8),
        ("AMD Instinct MI300A", "TPX", 3),
        ("AMD Instinct MI300A", "CPX", 6),
    ]
    for name, mode, partitions in cases:
        resolved, whole = resolve_one(name, mode), resolve_one(name)
        assert whole.memory_bandwidth is not None, (name, mode)
        assert whole.compute.bits16 is not None, (name, mode)
        assert resolved.memory_bandwidth == pytest.approx(whole.memory_bandwidth / partitions), (name, mode)
        assert resolved.compute.bits16 == pytest.approx(whole.compute.bits16 / partitions), (name, mode)


def test_a_virtual_gpu_has_the_full_bandwidth_and_is_marked_as_shared() -> None:
    resolved, whole = resolve_one("NVIDIA L40S-12Q"), resolve_one("NVIDIA L40S")
    assert (resolved.device, resolved.memory_bandwidth, resolved.compute) == (
        whole.device,
        whole.memory_bandwidth,
        whole.compute,
    )
    assert (resolved.shared, whole.shared) == (True, False)
    assert resolve_one("GRID T4-16Q").device.name == "Tesla T4"
    assert resolve_one("NVIDIA RTX6000-Ada-48Q").device.name == "RTX 6000 Ada"


def test_memory_sizes_are_formatted_as_sold() -> None:
    by_name = {device.name: format_memory(device) for device in load_devices()}
    assert by_name["GeForce RTX 3080 (10GB)"] == "10 GB"
    assert by_name["Tesla V100 SXM2"] == "16 or 32 GB"
    assert by_name["Apple M1"] == "8 to 16 GB"
    assert by_name["CPU DDR5-5600 dual channel"] == ""


@given(
    st.text(max_size=200) | st.sampled_from([name for name, _, _ in REPORTED]),
    st.none() | st.floats(),
    st.none() | st.text(max_size=20) | st.from_regex(r"([1-7]c\.)?[1-7]g\.\d{1,3}gb", fullmatch=True),
)
def test_any_name_memory_and_profile_resolves_to_one_several_or_no_device(
    name: str, memory: float | None, profile: str | None
) -> None:
    resolved = resolve_device(name, memory, profile)
    assert resolved.name == name
    if isinstance(resolved, ResolvedDevice):
        assert resolved.memory_bandwidth is not None
        assert resolved.device.memory_bandwidth is not None
        assert 0 < resolved.memory_bandwidth <= resolved.device.memory_bandwidth
        assert resolved.compute != ComputeRates() or resolved.device.compute == ComputeRates()


@given(st.sampled_from(load_devices()), st.text(min_size=1, max_size=3))
def test_a_name_with_something_added_is_another_name(device: Device, added: str) -> None:
    resolved = resolve_device(device.name + added)
    if isinstance(resolved, ResolvedDevice) and not resolved.shared:
        assert resolved.device is not device or not re.sub(r"(?i)\(r\)|[\s_®™-]", "", added)
