from phasewatch.hardware import report
from phasewatch.hardware.measure import MeasurementRun, MemoryMeasurement
from phasewatch.hardware.measurement_file import StoredMeasurement
from phasewatch.hardware.table import load_devices

NOT_MEASURED = StoredMeasurement(None, "not measured yet")


def about(name: str, memory: float | None = None) -> tuple[bool, str]:
    return report.describe_name(name, memory, NOT_MEASURED)


def test_the_table_has_a_line_for_every_device_below_its_column_names() -> None:
    lines = report.format_table(load_devices(), NOT_MEASURED).splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    assert [
        line[: lines[0].index(" MEMORY")].strip()[: len(device.name)]
        for line, device in zip(lines[1:], load_devices(), strict=False)
    ] == [device.name for device in load_devices()]
    (card,) = [
        line for line in lines if line.startswith("GeForce RTX 4090 ") and " D " not in line and "Laptop" not in line
    ]
    assert card.split() == ["GeForce", "RTX", "4090", "24", "GB", "1008", "165.2", "330.3", "doc"]
    ends = [len(line) - len(line.split("  ")[-1]) for line in lines[: len(load_devices()) + 1]]
    assert len(set(ends)) == 1


def test_an_unknown_figure_is_a_dash_in_the_table() -> None:
    text = report.format_table(load_devices(), NOT_MEASURED)
    (line,) = [line for line in text.splitlines() if line.startswith("CPU DDR5-5600 dual")]
    assert line.split()[-5:] == ["-", "89.6", "-", "-", "rule"]


def test_the_table_ends_with_the_measured_bandwidth_of_this_machine() -> None:
    assert report.format_table(load_devices(), StoredMeasurement(29.46e9)).splitlines()[-1] == (
        "This machine's memory (CPU): 29.5 GB/s, measured."
    )
    assert report.format_table(load_devices(), NOT_MEASURED).splitlines()[-1] == (
        "This machine's memory (CPU): not measured yet; measure it with `phasewatch devices --measure`."
    )


def test_a_resolved_name_is_described_with_its_row_and_source() -> None:
    resolved, text = about("NVIDIA L40S")
    assert resolved
    lines = text.splitlines()
    assert lines[:4] == [
        "NVIDIA L40S: L40S",
        "  memory bandwidth  864 GB/s (seen in a document)",
        "  dense compute     362.05 TFLOPS (16 bit), 733 TFLOPS (fp8), 733 TOPS (int8) (seen in a document)",
        "  memory            48 GB",
    ]
    assert lines[4].startswith("  source            mullet.se product 355414")
    assert lines[5] == "  notes             name verified in vLLM config files"


def test_unknown_rates_are_left_out() -> None:
    _, text = about("NVIDIA A30 MIG 1g.6gb")
    assert text.splitlines()[:4] == [
        "NVIDIA A30 MIG 1g.6gb: A30, part 1g.6gb",
        "  memory bandwidth  233.25 GB/s (taken from a collection)",
        "  dense compute     41.25 TFLOPS (16 bit), 82.5 TOPS (int8) (unconfirmed)",
        "  memory            24 GB (of the whole)",
    ]
    assert "notes" not in text
    _, text = about("CPU DDR5-5600 dual channel")
    assert "  dense compute     unknown\n  memory            unknown\n" in text


def test_a_virtual_gpu_is_described_as_shared() -> None:
    assert about("NVIDIA A10-24Q")[1].startswith("NVIDIA A10-24Q: A10, shared as a virtual GPU\n")


def test_an_ambiguous_name_is_described_with_its_candidates_and_what_distinguishes_them() -> None:
    resolved, text = about("NVIDIA GeForce RTX 3080")
    assert not resolved
    assert text == (
        "'NVIDIA GeForce RTX 3080' may be any of these; the memory size decides:\n"
        "  GeForce RTX 3080 (10GB): 10 GB, 760 GB/s\n"
        "  GeForce RTX 3080 (12GB): 12 GB, 912 GB/s\n"
        "Give --memory (device.memory), or one of these names."
    )
    assert about("pci:0x7550")[1].endswith("\nGive one of these names.")
    assert about("NVIDIA GeForce RTX 3080", 12e9)[0]


def test_an_unknown_name_is_described_with_similar_ones() -> None:
    resolved, text = about("NVIDIA L20Y")
    assert not resolved
    assert text == (
        "'NVIDIA L20Y': the table has no such device (similar: L20)\n"
        "See `phasewatch devices` for all names, or set device.memory_bandwidth in the configuration."
    )


def test_the_description_of_a_processor_asks_to_measure_it() -> None:
    resolved, text = about("AMD EPYC 9354 32-Core Processor")
    assert not resolved
    assert text == (
        "'AMD EPYC 9354 32-Core Processor': a processor does not tell how fast its memory is, which is measured\n"
        "Measure it with `phasewatch devices --measure`, and set device: {name: CPU}."
    )


def test_the_name_cpu_is_this_machine() -> None:
    assert about("cpu")[0] is False
    assert report.describe_name("CPU", None, StoredMeasurement(29.5e9)) == (
        True,
        "This machine's memory (CPU): 29.5 GB/s, measured.",
    )


def test_an_unusable_name_is_described_briefly_and_without_control_characters() -> None:
    for name in ("", "x" * 1_000_000, "a\nb\x1b[2J", "☃"):
        resolved, text = about(name)
        assert not resolved, name[:80]
        assert len(text) < 400, name[:80]
        assert "\x1b" not in text, name[:80]
        assert text.count("\n") == 1, name[:80]


def test_a_measurement_is_printed_with_the_lines_to_configure() -> None:
    runs = (MeasurementRun(1, 20.1e9), MeasurementRun(2, 29.46e9), MeasurementRun(1, 19e9), MeasurementRun(2, 28e9))
    measurement = MemoryMeasurement(29.46e9, 2, 256 * 2**20, "A processor", "2026-11-29T12:00:00+00:00", runs)
    assert report.format_measurement(measurement, "/state/file.json").splitlines() == [
        "A processor: 29.5 GB/s, the fastest of 4 runs over 256 MiB",
        "  1 thread: 20.1, 19.0 GB/s",
        "  2 threads: 29.5, 28.0 GB/s",
        "Kept in /state/file.json; a target on this machine uses it with",
        "  device: {name: CPU}",
        "Elsewhere, or in a container, put the figure into the configuration:",
        "  device: {memory_bandwidth: 29.5GB/s}      (vllm target)",
        "  device: {cpu_memory_bandwidth: 29.5GB/s}  (ollama target)",
    ]
