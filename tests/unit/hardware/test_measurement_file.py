import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phasewatch.hardware import measurement_file
from phasewatch.hardware.measure import MeasurementError, MeasurementRun, MemoryMeasurement
from phasewatch.hardware.measurement_file import (
    StoredMeasurement,
    load_stored_measurement,
    locate_measurement_file,
    store_measurement,
)

MEASUREMENT = MemoryMeasurement(
    29.5e9,
    2,
    256 * 2**20,
    "A processor",
    "2026-11-29T12:00:00+00:00",
    (MeasurementRun(1, 20.1e9), MeasurementRun(2, 29.5e9)),
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a measurement is kept in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(measurement_file, "read_processor_name", lambda: "A processor")
    return tmp_path / "state" / "phasewatch" / "cpu-memory-bandwidth.json"


def test_a_stored_measurement_is_loaded_again(state: Path) -> None:
    assert load_stored_measurement() == StoredMeasurement(None, "not measured yet")
    assert store_measurement(MEASUREMENT) == state
    assert load_stored_measurement() == StoredMeasurement(29.5e9)
    assert json.loads(state.read_text()) == json.loads(json.dumps(asdict(MEASUREMENT)))
    store_measurement(replace(MEASUREMENT, memory_bandwidth=31e9))
    assert load_stored_measurement() == StoredMeasurement(31e9)
    assert [path.name for path in state.parent.iterdir()] == [state.name]


_NO_MEASUREMENT = "is no measurement of this program"
_ANOTHER_PROCESSOR = "was measured on another processor"
_REFUSED = [
    (b"", _NO_MEASUREMENT),
    (b"nonsense", _NO_MEASUREMENT),
    (b"\xff\xfe\x00", _NO_MEASUREMENT),
    (b"[" * 60_000, _NO_MEASUREMENT),
    (b"29.5", _NO_MEASUREMENT),
    (b"{}" + b" " * 2**20, _NO_MEASUREMENT),
    (b'{"memory_bandwidth": ' + b"1" * 5000 + b"}", _NO_MEASUREMENT),
    (b"{}", _ANOTHER_PROCESSOR),
    (b'{"memory_bandwidth": 29.5e9, "processor": "Another"}', _ANOTHER_PROCESSOR),
    (b'{"memory_bandwidth": 29.5e9, "processor": ["A processor"]}', _ANOTHER_PROCESSOR),
    (b'{"processor": "A processor"}', "memory_bandwidth: expected bytes per second"),
    *(
        (b'{"processor": "A processor", "memory_bandwidth": %s}' % value, "expected bytes per second")
        for value in (b"null", b'"29.5GB/s"', b"29.5", b"-1", b"1e400", b"NaN", b"true", b"[]", b"1" * 400)
    ),
]


def test_a_file_that_holds_no_measurement_of_this_machine_gives_a_reason(state: Path) -> None:
    state.parent.mkdir(parents=True)
    for content, reason in _REFUSED:
        state.write_bytes(content)
        stored = load_stored_measurement()
        assert stored.memory_bandwidth is None, content[:80]
        assert stored.reason is not None, content[:80]
        assert stored.reason.startswith(f"{state}: "), content[:80]
        assert stored.reason.endswith(reason), content[:80]


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
def test_any_json_gives_either_a_bandwidth_or_a_reason(state: Path, value: object) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps(value))
    stored = load_stored_measurement()
    assert (stored.memory_bandwidth is None) != (stored.reason is None)


def test_a_file_that_cannot_be_read_gives_a_reason(state: Path) -> None:
    state.mkdir(parents=True)
    stored = load_stored_measurement()
    assert stored.memory_bandwidth is None
    assert "cannot be read" in (stored.reason or "")


def test_a_pipe_in_place_of_the_file_is_not_opened(state: Path) -> None:
    state.parent.mkdir(parents=True)
    os.mkfifo(state)
    assert load_stored_measurement() == StoredMeasurement(
        None, f"the measurement cannot be read: {state} is no regular file"
    )


def test_a_path_that_cannot_be_written_is_reported_and_nothing_is_left_behind(state: Path) -> None:
    state.parent.parent.mkdir()
    state.parent.write_text("a file in the way")
    with pytest.raises(MeasurementError, match="cannot be written: "):
        store_measurement(MEASUREMENT)
    state.parent.unlink()
    state.mkdir(parents=True)
    with pytest.raises(MeasurementError, match="cannot be written: "):
        store_measurement(MEASUREMENT)
    assert list(state.parent.iterdir()) == [state]


def test_a_state_home_that_is_not_absolute_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = Path("/home/somebody/.local/state/phasewatch/cpu-memory-bandwidth.json")
    environments: tuple[dict[str, str], ...] = ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"})
    for environment in environments:
        assert locate_measurement_file(environment) == expected, environment


def test_a_user_without_a_home_is_asked_to_set_a_state_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(MeasurementError, match="set XDG_STATE_HOME"):
        locate_measurement_file({})
    monkeypatch.delenv("XDG_STATE_HOME")
    assert "set XDG_STATE_HOME" in (load_stored_measurement().reason or "")
