import ctypes
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phasewatch.hardware import measure
from phasewatch.hardware.measure import (
    MeasurementError,
    MeasurementRun,
    choose_block_size,
    read_available_memory,
    read_last_level_cache,
    read_processor_name,
)

MIB = 2**20
GIB = 2**30


@pytest.fixture
def _small_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "read_processor_name", lambda: "A processor")
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 1_000_003)
    monkeypatch.setattr(measure, "PAUSE_BETWEEN_ROUNDS", 0.0)


@pytest.mark.usefixtures("_small_block")
def test_a_measurement_reports_its_fastest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "count_usable_processors", lambda: 3)
    measurement = measure.measure_memory_bandwidth()
    assert measurement.memory_bandwidth == max(run.memory_bandwidth for run in measurement.runs) > 0
    assert MeasurementRun(measurement.threads, measurement.memory_bandwidth) in measurement.runs
    assert sorted(run.threads for run in measurement.runs) == [1] * 5 + [2] * 5 + [3] * 5
    assert (measurement.size, measurement.processor) == (1_000_003, "A processor")
    assert measurement.date.endswith("+00:00")


@pytest.mark.usefixtures("_small_block")
def test_each_run_reads_every_byte_exactly_once_and_no_byte_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "count_usable_processors", lambda: 4)
    monkeypatch.setattr(measure, "RUNS_PER_THREAD_COUNT", 1)
    library: Any = ctypes.CDLL(None)
    read: list[tuple[int, int]] = []

    def memchr(address: int, byte: int, length: int) -> None:
        assert byte == 0
        assert ctypes.string_at(address, length).count(0) == 0
        read.append((address, length))

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: SimpleNamespace(memchr=memchr, memset=library.memset))
    measure.measure_memory_bandwidth()
    assert len(read) == 1 + 2 + 4
    start = min(address for address, _ in read)
    for first, parts in ((0, 1), (1, 2), (3, 4)):
        run = sorted(read[first : first + parts])
        assert run[0][0] == start
        assert [address + length for address, length in run] == [
            *(address for address, _ in run[1:]),
            start + 1_000_003,
        ]


@pytest.mark.usefixtures("_small_block")
def test_no_run_starts_after_the_time_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "TIME_BUDGET", -1.0)
    assert len(measure.measure_memory_bandwidth().runs) == 1


@pytest.mark.usefixtures("_small_block")
def test_progress_is_printed_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "count_usable_processors", lambda: 1)
    measure.measure_memory_bandwidth()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    measure.measure_memory_bandwidth()
    progress = capsys.readouterr().err
    assert progress.startswith("\rrun 1 of 5, 1 threads, best ")
    assert progress.count("\r") == 5
    assert progress.endswith("\n")


@pytest.mark.usefixtures("_small_block")
def test_a_system_without_memchr_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    with pytest.raises(MeasurementError, match=r"has no memchr; set device\.memory_bandwidth"):
        measure.measure_memory_bandwidth()


def test_a_block_that_cannot_be_allocated_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 2**60)
    with pytest.raises(MeasurementError, match="could be had"):
        measure.measure_memory_bandwidth()


def test_the_block_is_eight_times_the_cache_and_at_least_256_mib() -> None:
    sizes = {None: 512 * MIB, 8 * MIB: 256 * MIB, 32 * MIB: 256 * MIB, 384 * MIB: 3 * GIB}
    for cache, size in sizes.items():
        assert choose_block_size(cache, 100 * GIB) == size, cache
        assert choose_block_size(cache, 4 * size) == size, cache


def test_a_block_of_more_than_a_quarter_of_the_available_memory_is_refused() -> None:
    for cache, size in ((None, 512 * MIB), (8 * MIB, 256 * MIB), (32 * MIB, 256 * MIB), (384 * MIB, 3 * GIB)):
        with pytest.raises(MeasurementError, match="MiB of memory must be available"):
            choose_block_size(cache, 4 * size - 1)


def test_each_last_level_cache_of_the_machine_is_counted_once(tmp_path: Path) -> None:
    for number, (shared, size) in enumerate([("0-1", "32768K"), ("0-1", "32768K"), ("2-3", "32M"), ("4", "odd")]):
        index = tmp_path / f"cpu{number}" / "cache" / "index3"
        index.mkdir(parents=True)
        (index / "shared_cpu_list").write_text(f"{shared}\n")
        (index / "size").write_text(f"{size}\n")
    assert read_last_level_cache(tmp_path) == 64 * MIB
    assert read_last_level_cache(tmp_path / "nothing") is None


def test_available_memory_respects_the_limit_of_the_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       24682896 kB\nMemAvailable:    1048576 kB\n")
    assert read_available_memory(meminfo, tmp_path) == GIB
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{64 * MIB}\n")
    assert read_available_memory(meminfo, tmp_path) == GIB
    (tmp_path / "memory.max").write_text(f"{256 * MIB}\n")
    assert read_available_memory(meminfo, tmp_path) == 192 * MIB
    (tmp_path / "memory.max").write_text("0\n")
    assert read_available_memory(meminfo, tmp_path) == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{512 * MIB}\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("0\n")
    assert read_available_memory(meminfo, tmp_path) == 512 * MIB


def test_all_memory_counts_as_available_where_the_system_does_not_report_it(tmp_path: Path) -> None:
    everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read_available_memory(tmp_path / "nothing", tmp_path) == everything


def test_the_processor_name_falls_back_to_its_architecture(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9354\nflags\t: x\nmodel name\t: other\n")
    assert read_processor_name(cpuinfo) == "AMD EPYC 9354"
    assert read_processor_name(tmp_path / "nothing")


def test_rounds_are_separated_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 4096)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    measure.measure_memory_bandwidth()
    assert slept == [0, *[measure.PAUSE_BETWEEN_ROUNDS] * 4]
