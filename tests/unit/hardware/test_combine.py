from typing import Any

import pytest

from phasewatch.hardware.combine import combine_device_facts
from phasewatch.hardware.facts import ComputeRates, DeviceFacts, DeviceLayout, DeviceSource
from phasewatch.hardware.reported import ReportedDevice
from phasewatch.hardware.resolve import ResolvedDevice
from phasewatch.hardware.table import load_devices

GIB = 2.0**30
MIB = 2.0**20
L40S = ComputeRates(362.05e12, 733e12, 733e12)
L40S_REPORTED = ReportedDevice("NVIDIA L40S", 46068 * MIB, None, 864.1e9)


def only_note(**configured: Any) -> str:
    """The only note of a target whose bandwidth is unknown."""
    facts, notes = combine_device_facts(**configured)
    assert (facts.memory_bandwidth, facts.bandwidth_source) == (None, None)
    (note,) = notes
    return note


def test_a_configured_name_is_looked_up() -> None:
    assert combine_device_facts(name="NVIDIA L40S", count=2, layout=DeviceLayout.PIPELINE) == (
        DeviceFacts("L40S", 2, DeviceLayout.PIPELINE, 864e9, DeviceSource.TABLE, L40S, DeviceSource.TABLE),
        (),
    )


def test_configured_figures_override_the_table_and_apply_to_all_precisions() -> None:
    facts, notes = combine_device_facts(name="NVIDIA L40S", memory_bandwidth=800e9, flops=300e12)
    assert facts == DeviceFacts(
        "L40S",
        1,
        DeviceLayout.TENSOR,
        800e9,
        DeviceSource.CONFIG,
        ComputeRates(300e12, 300e12, 300e12),
        DeviceSource.CONFIG,
    )
    assert notes == ()
    facts, notes = combine_device_facts(memory_bandwidth=800e9)
    assert facts == DeviceFacts(memory_bandwidth=800e9, bandwidth_source=DeviceSource.CONFIG)
    assert notes == ()


def test_a_configured_name_overrides_the_reported_devices() -> None:
    facts, notes = combine_device_facts(name="NVIDIA L4", reported=[L40S_REPORTED] * 3)
    assert (facts.name, facts.memory_bandwidth, facts.count, notes) == ("L4", 300e9, 1, ())


def test_configured_memory_selects_among_devices_of_one_name() -> None:
    facts, _ = combine_device_facts(name="NVIDIA GeForce RTX 3080", memory=12e9)
    assert (facts.name, facts.memory_bandwidth) == ("GeForce RTX 3080 (12GB)", 912e9)


def test_an_unknown_configured_name_has_no_ceiling_and_says_how_to_get_one() -> None:
    facts, _ = combine_device_facts(name="NVIDIA L20Y", reported=[L40S_REPORTED])
    assert facts == DeviceFacts("NVIDIA L20Y")
    assert only_note(name="NVIDIA L20Y") == (
        "device.name: 'NVIDIA L20Y': the table has no such device (similar: L20); "
        "set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"
    )


def test_the_note_on_an_ambiguous_configured_name_lists_the_candidates() -> None:
    assert only_note(name="NVIDIA GeForce RTX 3080").startswith(
        "device.name: 'NVIDIA GeForce RTX 3080' may be any of GeForce RTX 3080 (10GB), GeForce RTX 3080 (12GB): "
        "the memory size decides; "
    )


def test_the_note_on_a_configured_processor_asks_to_measure_it() -> None:
    assert only_note(name="AMD EPYC 9354 32-Core Processor").endswith(
        "run `phasewatch devices --measure` and set device.name to CPU, or set device.memory_bandwidth"
    )


def test_the_name_cpu_stands_for_the_measured_memory() -> None:
    facts, notes = combine_device_facts(name="cpu", measured=29.5e9)
    assert facts == DeviceFacts(
        "CPU", 1, DeviceLayout.TENSOR, 29.5e9, DeviceSource.MEASURED, ComputeRates(), None, cpu_memory_bandwidth=29.5e9
    )
    assert notes == ()
    assert only_note(name="CPU") == "this machine's memory is not measured: run `phasewatch devices --measure`"


def test_a_single_reported_device_is_used() -> None:
    facts, notes = combine_device_facts(reported=[L40S_REPORTED])
    assert facts == DeviceFacts("L40S", 1, DeviceLayout.TENSOR, 864e9, DeviceSource.TABLE, L40S, DeviceSource.TABLE)
    assert notes == ()


def test_the_drivers_bandwidth_is_used_where_the_table_has_none() -> None:
    reported = ReportedDevice("NVIDIA L20Y", 81920 * MIB, None, 2e12)
    facts, notes = combine_device_facts(reported=[reported])
    assert facts == DeviceFacts("NVIDIA L20Y", 1, DeviceLayout.TENSOR, 2e12, DeviceSource.DRIVER)
    assert notes == ()
    modified = ReportedDevice("NVIDIA GeForce RTX 4090", 49140 * MIB, None, 1008e9)
    facts, _ = combine_device_facts(reported=[modified])
    assert (facts.memory_bandwidth, facts.bandwidth_source, facts.compute) == (
        1008e9,
        DeviceSource.DRIVER,
        ComputeRates(),
    )
    nameless, _ = combine_device_facts(reported=[ReportedDevice(None, None, None, 900e9)])
    assert (nameless.name, nameless.memory_bandwidth) == (None, 900e9)


def test_the_drivers_bandwidth_is_used_where_the_table_has_another_variant() -> None:
    faster = ReportedDevice("NVIDIA GeForce RTX 3060 Ti", 8192 * MIB, None, 608e9)
    facts, notes = combine_device_facts(reported=[faster])
    assert (facts.name, facts.memory_bandwidth, facts.bandwidth_source) == (
        "GeForce RTX 3060 Ti",
        608e9,
        DeviceSource.DRIVER,
    )
    assert facts.compute_source is DeviceSource.TABLE
    (note,) = notes
    assert note == (
        "the driver tells of 608 GB/s, which is used; the table knows another variant of GeForce RTX 3060 Ti, "
        "with 448 GB/s"
    )


def test_the_tables_bandwidth_is_kept_where_the_driver_differs_by_its_clock_alone() -> None:
    for driver in (0.91, 1.09):
        facts, notes = combine_device_facts(reported=[ReportedDevice("NVIDIA L40S", 46068 * MIB, None, driver * 864e9)])
        assert (facts.memory_bandwidth, facts.bandwidth_source, notes) == (864e9, DeviceSource.TABLE, ()), driver


def test_configured_memory_without_a_name_selects_among_devices_of_the_reported_name() -> None:
    unsized = [ReportedDevice("NVIDIA GeForce RTX 3080")]
    note = only_note(reported=unsized)
    assert note.endswith(
        "the memory size decides; set device.memory, one of these as device.name, or device.memory_bandwidth"
    )
    facts, notes = combine_device_facts(reported=unsized, memory=12e9)
    assert (facts.name, notes) == ("GeForce RTX 3080 (12GB)", ())


def test_a_reported_device_without_any_bandwidth_has_no_ceiling() -> None:
    note = only_note(reported=[ReportedDevice("NVIDIA L20Y")])
    assert note.startswith("'NVIDIA L20Y': the table has no such device")
    assert "set device.memory_bandwidth" in note
    assert combine_device_facts(reported=[ReportedDevice("NVIDIA L20Y")])[0].name == "NVIDIA L20Y"
    assert "this is no name of a device" in only_note(reported=[ReportedDevice(None)])


def test_a_mig_instance_is_named_with_its_profile() -> None:
    facts, _ = combine_device_facts(reported=[ReportedDevice("NVIDIA A100-SXM4-40GB", 4864 * MIB, "1g.5gb", 194e9)])
    assert (facts.name, facts.memory_bandwidth, facts.bandwidth_source) == (
        "A100 SXM4 40GB 1g.5gb",
        1555e9 / 8,
        DeviceSource.TABLE,
    )
    without_profile = ReportedDevice("NVIDIA A100-SXM4-40GB", None, "", None)
    assert combine_device_facts(reported=[without_profile])[0].memory_bandwidth is None


def test_a_virtual_gpu_has_a_ceiling_and_a_note_that_it_is_shared() -> None:
    facts, notes = combine_device_facts(reported=[ReportedDevice("NVIDIA A10-24Q", 24576 * MIB)])
    assert (facts.name, facts.memory_bandwidth) == ("A10", 600e9)
    assert notes == ("NVIDIA A10-24Q takes turns on one A10 with other virtual GPUs: the ceiling is of its turns",)


def test_a_row_without_bandwidth_takes_the_drivers_or_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = [device for device in load_devices() if device.name == "L40S"]
    resolved = ResolvedDevice("NVIDIA L40S", row, None, row.compute)
    monkeypatch.setattr("phasewatch.hardware.combine.resolve_device", lambda *_: resolved)
    facts, notes = combine_device_facts(reported=[L40S_REPORTED])
    assert facts == DeviceFacts("L40S", 1, DeviceLayout.TENSOR, 864.1e9, DeviceSource.DRIVER, L40S, DeviceSource.TABLE)
    assert notes == ()
    assert only_note(name="NVIDIA L40S").startswith("the table has no bandwidth of L40S; set device.memory_bandwidth")


def test_several_reported_devices_need_a_configured_count() -> None:
    assert only_note(reported=[L40S_REPORTED] * 3) == ("3 GPUs found: set device.count to how many this server uses")
    facts, notes = combine_device_facts(reported=[L40S_REPORTED] * 3, count=2)
    assert (facts.name, facts.count, facts.memory_bandwidth, notes) == ("L40S", 2, 864e9, ())


def test_different_reported_devices_need_a_configured_name() -> None:
    both = [L40S_REPORTED, ReportedDevice("NVIDIA L4")]
    assert only_note(reported=both, count=2) == ("2 GPUs of different kinds found: set device.name and device.count")
    parts = [ReportedDevice("NVIDIA A30", None, "1g.6gb"), ReportedDevice("NVIDIA A30", None, "2g.12gb")]
    assert "of different kinds" in only_note(reported=parts, count=1)


def test_devices_of_one_name_and_different_memory_are_different_products() -> None:
    small, large = (ReportedDevice("NVIDIA GeForce RTX 3080", size * MIB) for size in (10240, 12288))
    for both in ([small, large], [large, small]):
        assert "of different kinds" in only_note(reported=both, count=2)
    unlisted = [ReportedDevice("NVIDIA L20Y", size * GIB) for size in (48, 80)]
    assert "of different kinds" in only_note(reported=unlisted, count=2)


def test_devices_that_resolve_to_one_row_are_the_same_product_whatever_their_names() -> None:
    names = ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB")
    alike = [ReportedDevice(name, size * MIB) for name, size in zip(names, (81920, 81251), strict=True)]
    facts, notes = combine_device_facts(reported=alike, count=2)
    assert (facts.name, facts.count, notes) == ("A100 SXM4 80GB", 2, ())


def test_a_configured_bandwidth_needs_no_note_about_devices() -> None:
    cases: tuple[dict[str, Any], ...] = ({"name": "NVIDIA L20Y"}, {"reported": [L40S_REPORTED] * 3}, {})
    for configured in cases:
        facts, notes = combine_device_facts(memory_bandwidth=800e9, **configured)
        assert (facts.memory_bandwidth, facts.bandwidth_source, notes) == (800e9, DeviceSource.CONFIG, ())


def test_without_any_device_the_note_says_how_to_configure_one() -> None:
    assert only_note() == (
        "no device is known: set device.memory_bandwidth, or a device.name that `phasewatch devices` lists"
    )
    assert combine_device_facts()[0] == DeviceFacts()


def test_the_memory_of_the_host_is_configured_or_measured() -> None:
    assert combine_device_facts(name="L4", cpu_memory_bandwidth=80e9, measured=30e9)[0].cpu_memory_bandwidth == 80e9
    assert combine_device_facts(name="L4", measured=30e9)[0].cpu_memory_bandwidth == 30e9
    assert combine_device_facts(name="L4")[0].cpu_memory_bandwidth is None


def test_an_unusable_name_gives_a_short_note_in_one_line() -> None:
    for name in ("", " ", "x" * 1_000_000, "☃", "NVIDIA\nL4"):
        cases: tuple[dict[str, Any], ...] = ({"name": name}, {"reported": [ReportedDevice(name)]})
        for configured in cases:
            note = only_note(**configured)
            assert "\n" not in note, name[:80]
            assert len(note) < 400, name[:80]
            assert len(combine_device_facts(**configured)[0].name or "") <= 128, name[:80]
