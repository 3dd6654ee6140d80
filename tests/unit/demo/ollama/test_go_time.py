from datetime import UTC, timedelta, timezone

import pytest

from phasewatch.demo.ollama.go_time import SECOND, format_timestamp, parse_duration


def test_a_duration_is_a_sum_of_numbers_with_units() -> None:
    for text, nanoseconds in (
        ("0", 0),
        ("90s", 90 * SECOND),
        ("1h2m3.5s", 3_723_500_000_000),
        ("-1m", -60 * SECOND),
        ("250ms", SECOND // 4),
        ("7ns", 7),
    ):
        assert parse_duration(text) == nanoseconds, text


def test_anything_else_is_refused_in_gos_words() -> None:
    for text, message in (("5", 'missing unit in duration "5"'), ("abc", 'invalid duration "abc"'), ("", "invalid")):
        with pytest.raises(ValueError, match=f"^time: {message}"):
            parse_duration(text)


def test_a_timestamp_has_the_zones_offset_and_no_trailing_zeros() -> None:
    india = timezone(timedelta(hours=5.5))
    for nanoseconds, zone, text in (
        (1_795_920_411_084_286_959, UTC, "2026-11-29T02:46:51.084286959Z"),
        (1_795_920_411_500_000_000, UTC, "2026-11-29T02:46:51.5Z"),
        (1_795_920_411_000_000_000, india, "2026-11-29T08:16:51+05:30"),
    ):
        assert format_timestamp(nanoseconds, zone) == text, text
