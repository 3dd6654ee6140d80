import csv
from pathlib import Path

import pytest

from phasewatch.hardware import table
from phasewatch.hardware.facts import ComputeRates
from phasewatch.hardware.partition import AMD_DIES, MIG_SLICES
from phasewatch.hardware.resolve import ResolvedDevice, resolve_device
from phasewatch.hardware.table import GIB, load_devices, parse_devices

SHIPPED = Path(table.__file__).with_name("devices.csv")
COLUMNS = (
    "name,vendor,class,aliases,memory_gb,bandwidth_gbps,bf16_dense_tflops,fp8_dense_tflops,int8_dense_tops,"
    "bandwidth_status,compute_status,source,notes\n"
)


def refusal(text: str) -> str:
    """The message of the error that parsing a table raises; empty if it raises none."""
    try:
        parse_devices(text)
    except ValueError as error:
        return str(error)
    return ""


def bandwidth(name: str) -> float:
    resolved = resolve_device(name)
    assert isinstance(resolved, ResolvedDevice)
    assert resolved.memory_bandwidth is not None
    return resolved.memory_bandwidth


def test_sixteen_gigabytes_of_weights_give_the_ceilings_of_the_design() -> None:
    cases = [
        ("CPU, dual channel DDR5-5600", 6),
        ("NVIDIA A10G", 38),
        ("NVIDIA L40S", 54),
        ("NVIDIA RTX 4090", 63),
        ("NVIDIA A100 80GB SXM", 127),
        ("NVIDIA H100 SXM", 209),
    ]
    for name, ceiling in cases:
        assert round(bandwidth(name) / 16e9) == ceiling, name


def test_names_are_unique_and_every_device_has_a_bandwidth_with_its_status_and_source() -> None:
    assert len({device.name for device in load_devices()}) == len(load_devices()) > 200
    for device in load_devices():
        assert device.memory_bandwidth is not None
        assert 1e9 < device.memory_bandwidth < 1e13, device.name
        assert device.bandwidth_status in {"doc", "db", "rule", "mem"}, device.name
        assert bool(device.compute_status) == (device.compute != ComputeRates()), device.name
        assert device.source
        assert all(0 < low <= high < 1024 * GIB for low, high in device.memory), device.name


def test_lower_precision_is_never_slower() -> None:
    for device in load_devices():
        rates = (device.compute.bits16, device.compute.fp8, device.compute.int8)
        published = [rate for rate in rates if rate is not None]
        assert published == sorted(published), device.name
        assert all(1e12 < rate < 1e16 for rate in published), device.name


def test_published_bandwidths_agree_with_the_clocks_of_the_driver() -> None:
    """Except for devices whose vendor publishes another figure, and one whose bus width depends on its version."""
    deviating = set()
    with SHIPPED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["nvml_max_mem_clock_mhz"] and row["bus_bits"]:
                driver = 2 * float(row["nvml_max_mem_clock_mhz"]) * float(row["bus_bits"]) / 8 / 1000
                if abs(driver / float(row["bandwidth_gbps"]) - 1) > 0.0061:
                    deviating.add(row["name"])
    assert deviating == {"H100 PCIe", "H200 SXM", "H200 NVL", "H20-3e", "B200", "GB200 (per GPU)"}


def test_devices_that_can_be_partitioned_are_in_the_table() -> None:
    names = {device.name: device for device in load_devices()}
    assert all(len(names[name].memory) == 1 for name in (*MIG_SLICES, *AMD_DIES))


def test_a_row_becomes_a_device_in_base_units() -> None:
    row = "X,NVIDIA,geforce,NVIDIA X;Y X,8/16,448,1.5,3,6,doc,rule,a sheet,a note\n"
    (device,) = parse_devices(COLUMNS + row)
    assert (device.name, device.aliases, device.memory_bandwidth) == ("X", ("NVIDIA X", "Y X"), 448e9)
    assert device.memory == ((8 * GIB, 8 * GIB), (16 * GIB, 16 * GIB))
    assert device.compute == ComputeRates(1.5e12, 3e12, 6e12)
    assert (device.bandwidth_status, device.compute_status) == ("doc", "rule")
    assert (device.source, device.notes) == ("a sheet", "a note")


def test_a_range_of_memory_is_one_size_with_two_bounds() -> None:
    (device,) = parse_devices(COLUMNS + "M,Apple,apple,,8-24,100,,,,doc,,s,\n")
    assert device.memory == ((8 * GIB, 24 * GIB),)


def test_a_missing_figure_is_unknown_and_not_zero() -> None:
    (device,) = parse_devices(COLUMNS + "X,NVIDIA,geforce,,,,,,,,,,\n")
    assert (device.memory, device.memory_bandwidth, device.compute) == ((), None, ComputeRates())
    (short,) = parse_devices(COLUMNS + "X,NVIDIA\n")
    assert short.memory_bandwidth is None


def test_an_invalid_figure_is_reported_with_its_line_and_column() -> None:
    cases = [
        ("X,N,k,,,fast,,,,,,,", "devices.csv:2: bandwidth_gbps: expected a number above 0, found 'fast'"),
        ("X,N,k,,,0,,,,,,,", "devices.csv:2: bandwidth_gbps: expected a number above 0, found '0'"),
        ("X,N,k,,,nan,,,,,,,", "devices.csv:2: bandwidth_gbps: expected a number above 0, found 'nan'"),
        ("X,N,k,,8-,1,inf,,,,,,", "devices.csv:2: bf16_dense_tflops: expected a number above 0, found 'inf'"),
        ("X,N,k,,-8,1,,,,,,,", "devices.csv:2: memory_gb: expected a number above 0, found ''"),
    ]
    for row, message in cases:
        assert refusal(COLUMNS + row + "\n") == message, row


def test_missing_columns_are_reported_by_name() -> None:
    with pytest.raises(ValueError, match=r"devices.csv:1: columns are missing: .*bandwidth_gbps, .*vendor"):
        parse_devices("name,class,aliases\n")
    with pytest.raises(ValueError, match="columns are missing"):
        parse_devices("")
