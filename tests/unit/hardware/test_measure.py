import ctypes
import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phasewatch.hardware import measure
from phasewatch.hardware.measure import (
    MeasurementError,
    MeasurementRun,
    MemoryMeasurement,
    StoredMeasurement,
    choose_block_size,
    load_stored_measurement,
    locate_state_file,
    read_available_memory,
    read_last_level_cache,
    read_processor_name,
    store_measurement,
)

MIB = 2**20
GIB = 2**30
KEPT = MemoryMeasurement(
    29.5e9,
    2,
    256 * MIB,
    "A processor",
    "2026-11-29T12:00:00+00:00",
    (MeasurementRun(1, 20.1e9), MeasurementRun(2, 29.5e9)),
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a measurement is kept in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(measure, "read_processor_name", lambda: "A processor")
    return tmp_path / "state" / "phasewatch" / "cpu-memory-bandwidth.json"


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 1_000_003)
    monkeypatch.setattr(measure, "PAUSE_BETWEEN_ROUNDS", 0.0)


@pytest.mark.usefixtures("_small")
def test_a_measurement_is_the_fastest_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "count_usable_processors", lambda: 3)
    found = measure.measure_memory_bandwidth()
    assert found.memory_bandwidth == max(run.memory_bandwidth for run in found.runs) > 0
    assert MeasurementRun(found.threads, found.memory_bandwidth) in found.runs
    assert sorted(run.threads for run in found.runs) == [1] * 5 + [2] * 5 + [3] * 5
    assert (found.size, found.processor) == (1_000_003, "A processor")
    assert found.date.endswith("+00:00")


@pytest.mark.usefixtures("_small")
def test_each_run_reads_every_byte_once_and_none_is_nought(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.usefixtures("_small")
def test_no_run_begins_when_patience_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "TIME_BUDGET", -1.0)
    assert len(measure.measure_memory_bandwidth().runs) == 1


@pytest.mark.usefixtures("_small")
def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measure, "count_usable_processors", lambda: 1)
    measure.measure_memory_bandwidth()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    measure.measure_memory_bandwidth()
    told = capsys.readouterr().err
    assert told.startswith("\rrun 1 of 5, 1 threads, best ")
    assert told.count("\r") == 5
    assert told.endswith("\n")


@pytest.mark.usefixtures("_small")
def test_a_system_without_memchr_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    with pytest.raises(MeasurementError, match=r"has no memchr; set device\.memory_bandwidth"):
        measure.measure_memory_bandwidth()


def test_a_block_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 2**60)
    with pytest.raises(MeasurementError, match="could be had"):
        measure.measure_memory_bandwidth()


@pytest.mark.parametrize(
    ("cache", "size"), [(None, 512 * MIB), (8 * MIB, 256 * MIB), (32 * MIB, 256 * MIB), (384 * MIB, 3 * GIB)]
)
def test_a_block_is_eight_times_the_cache_and_not_small(cache: int | None, size: int) -> None:
    assert choose_block_size(cache, 100 * GIB) == size
    assert choose_block_size(cache, 4 * size) == size
    with pytest.raises(MeasurementError, match="MiB of memory must be available"):
        choose_block_size(cache, 4 * size - 1)


def test_the_cache_is_that_of_all_processors_each_counted_once(tmp_path: Path) -> None:
    for number, (shared, size) in enumerate([("0-1", "32768K"), ("0-1", "32768K"), ("2-3", "32M"), ("4", "odd")]):
        index = tmp_path / f"cpu{number}" / "cache" / "index3"
        index.mkdir(parents=True)
        (index / "shared_cpu_list").write_text(f"{shared}\n")
        (index / "size").write_text(f"{size}\n")
    assert read_last_level_cache(tmp_path) == 64 * MIB
    assert read_last_level_cache(tmp_path / "nothing") is None


def test_available_memory_is_bounded_by_the_limit_of_a_container(tmp_path: Path) -> None:
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


def test_without_a_word_of_the_system_all_memory_is_available(tmp_path: Path) -> None:
    everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read_available_memory(tmp_path / "nothing", tmp_path) == everything


def test_the_processor_has_its_brand_or_at_least_its_architecture(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9354\nflags\t: x\nmodel name\t: other\n")
    assert read_processor_name(cpuinfo) == "AMD EPYC 9354"
    assert read_processor_name(tmp_path / "nothing")


def test_what_is_kept_is_read_back(state: Path) -> None:
    assert load_stored_measurement() == StoredMeasurement(None, "not measured yet")
    assert store_measurement(KEPT) == state
    assert load_stored_measurement() == StoredMeasurement(29.5e9)
    assert json.loads(state.read_text()) == json.loads(json.dumps(asdict(KEPT)))
    store_measurement(replace(KEPT, memory_bandwidth=31e9))
    assert load_stored_measurement() == StoredMeasurement(31e9)
    assert [path.name for path in state.parent.iterdir()] == [state.name]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no measurement of this program"),
        (b"nonsense", "is no measurement of this program"),
        (b"\xff\xfe\x00", "is no measurement of this program"),
        (b"[" * 60_000, "is no measurement of this program"),
        (b"29.5", "is no measurement of this program"),
        (b"{}" + b" " * 2**20, "is no measurement of this program"),
        (b'{"memory_bandwidth": ' + b"1" * 5000 + b"}", "is no measurement of this program"),
        (b"{}", "was measured on another processor"),
        (b'{"memory_bandwidth": 29.5e9, "processor": "Another"}', "was measured on another processor"),
        (b'{"memory_bandwidth": 29.5e9, "processor": ["A processor"]}', "was measured on another processor"),
        (b'{"processor": "A processor"}', "memory_bandwidth: expected bytes per second"),
    ]
    + [
        (b'{"processor": "A processor", "memory_bandwidth": %s}' % value, "expected bytes per second")
        for value in (b"null", b'"29.5GB/s"', b"29.5", b"-1", b"1e400", b"NaN", b"true", b"[]", b"1" * 400)
    ],
)
def test_what_is_no_measurement_of_this_machine_is_passed_over_with_a_reason(
    content: bytes, reason: str, state: Path
) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(content)
    found = load_stored_measurement()
    assert found.memory_bandwidth is None
    assert found.reason is not None
    assert found.reason.startswith(f"{state}: ")
    assert found.reason.endswith(reason)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda values: (
            st.lists(values, max_size=3)
            | st.dictionaries(st.sampled_from(["memory_bandwidth", "processor", "runs"]), values, max_size=3)
        ),
    )
)
def test_any_json_is_a_bandwidth_or_a_reason(state: Path, value: object) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps(value))
    found = load_stored_measurement()
    assert (found.memory_bandwidth is None) != (found.reason is None)


def test_a_file_that_cannot_be_read_gives_a_reason(state: Path) -> None:
    state.mkdir(parents=True)
    found = load_stored_measurement()
    assert found.memory_bandwidth is None
    assert "cannot be read" in (found.reason or "")


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(state: Path) -> None:
    state.parent.mkdir(parents=True)
    os.mkfifo(state)
    assert load_stored_measurement() == StoredMeasurement(
        None, f"the measurement cannot be read: {state} is no regular file"
    )


def test_a_place_that_cannot_be_written_is_told_and_leaves_nothing_behind(state: Path) -> None:
    state.parent.parent.mkdir()
    state.parent.write_text("a file in the way")
    with pytest.raises(MeasurementError, match="cannot be written: "):
        store_measurement(KEPT)
    state.parent.unlink()
    state.mkdir(parents=True)
    with pytest.raises(MeasurementError, match="cannot be written: "):
        store_measurement(KEPT)
    assert list(state.parent.iterdir()) == [state]


@pytest.mark.parametrize("told", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_a_state_home_that_is_not_absolute_counts_as_none(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert locate_state_file(told) == Path("/home/somebody/.local/state/phasewatch/cpu-memory-bandwidth.json")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(MeasurementError, match="set XDG_STATE_HOME"):
        locate_state_file({})
    monkeypatch.delenv("XDG_STATE_HOME")
    assert "set XDG_STATE_HOME" in (load_stored_measurement().reason or "")


def test_rounds_of_runs_are_apart_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "choose_block_size", lambda _cache, _available: 4096)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    measure.measure_memory_bandwidth()
    assert slept == [0, *[measure.PAUSE_BETWEEN_ROUNDS] * 4]
