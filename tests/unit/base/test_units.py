import contextlib
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phasewatch.base import units
from tests.support.refusals import refusal

DURATION = "expected a duration such as 5s, 500ms or 1m"
SIZE = "expected a size such as 16.06GB or 12GiB"
BANDWIDTH = "expected a bandwidth such as 864GB/s"
COMPUTE = "expected a compute rate such as 362TFLOPS"


def test_a_duration_becomes_seconds() -> None:
    for text, seconds in (
        ("5s", 5),
        ("500ms", 0.5),
        ("1m", 60),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("1m5s250ms", 65.25),
    ):
        assert units.parse_duration(text) == seconds, text


NO_DURATIONS: tuple[object, ...] = (
    "",
    "5",
    "5 s",
    "-5s",
    "s",
    "1e3s",
    "5sec",
    "5S",
    ".5s",
    "5s\n",
    5,
    5.0,
    None,
    True,
    [],
)


def test_an_invalid_duration_is_refused_with_an_example() -> None:
    for value in NO_DURATIONS:
        assert refusal(ValueError, units.parse_duration, value) == f"{DURATION}, found {units.describe_value(value)}", (
            value
        )


def test_prefixes_of_a_size_are_decimal_unless_they_say_binary() -> None:
    for text, amount in (
        ("12B", 12),
        ("1kB", 1e3),
        ("1KB", 1e3),
        ("16.06GB", 16.06e9),
        ("16.06 GB", 16.06e9),
        ("2PB", 2e15),
        ("1KiB", 1024),
        ("12GiB", 12 * 2**30),
        ("1TiB", 2**40),
    ):
        assert units.parse_size(text) == pytest.approx(amount, rel=1e-12), text


def test_bandwidth_and_compute_have_units_of_their_own() -> None:
    assert units.parse_bandwidth("864GB/s") == 864e9
    assert units.parse_bandwidth("1GiB/s") == 2**30
    assert units.parse_compute_rate("362TFLOPS") == 362e12
    assert units.parse_compute_rate("1.5 PFLOPS") == 1.5e15


def test_an_invalid_size_is_refused_with_an_example() -> None:
    for value in ("", "16", "16kiB", "16G", "16gb", "16Gb", "0GB", "-1GB", "1e9B", "GB", "16GB/s", "nanGB", 16, None):
        assert refusal(ValueError, units.parse_size, value) == f"{SIZE}, found {value!r}", value


def test_an_invalid_bandwidth_is_refused_with_an_example() -> None:
    for value in ("864GB", "864Gb/s", "864GB/m", "0GB/s", 864):
        assert refusal(ValueError, units.parse_bandwidth, value) == f"{BANDWIDTH}, found {value!r}", value


def test_an_invalid_compute_rate_is_refused_with_an_example() -> None:
    for value in ("362TFLOP", "362TFLOPS/s", "362", "0TFLOPS", "362Tflops", 362):
        assert refusal(ValueError, units.parse_compute_rate, value) == f"{COMPUTE}, found {value!r}", value


@example("16kiB")
@given(st.text() | st.from_regex(r"\d{1,4}(\.\d)? ?[kKMGTP]?i?(B|B/s|FLOPS|ms|s|m|h|d)", fullmatch=True))
def test_any_text_is_a_quantity_of_one_kind_or_a_value_error(text: str) -> None:
    amounts = []
    for parse in (units.parse_size, units.parse_bandwidth, units.parse_compute_rate, units.parse_duration):
        with contextlib.suppress(ValueError):
            amounts.append(parse(text))
    assert len(amounts) <= 1
    assert all(amount >= 0 for amount in amounts)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(["ms", "s", "m", "h", "d"])), min_size=1, max_size=5))
def test_a_duration_of_several_parts_is_their_sum(parts: list[tuple[int, str]]) -> None:
    whole = units.parse_duration("".join(f"{number}{unit}" for number, unit in parts))
    assert whole == pytest.approx(sum(units.parse_duration(f"{number}{unit}") for number, unit in parts))


def test_a_duration_for_people_has_two_units_at_most() -> None:
    for seconds, text in (
        (0, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (42.4, "42s"),
        (59.6, "1m"),
        (185, "3m 5s"),
        (3599.9, "1h"),
        (7859, "2h 10m"),
        (90_000, "25h"),
    ):
        assert units.format_duration(seconds) == text, seconds


@given(st.floats(0, 1e9))
def test_a_duration_for_people_reads_back_as_nearly_the_same(seconds: float) -> None:
    back = units.parse_duration(units.format_duration(seconds).replace(" ", ""))
    assert math.isclose(back, seconds, abs_tol=60 if seconds >= 3599 else 0.5 if seconds >= 1 else 0.0005 + 1e-9)
