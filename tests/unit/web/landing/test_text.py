from phasewatch.analysis.distribution import Distribution
from phasewatch.analysis.quantiles import Quantile
from phasewatch.web.landing.text import (
    UNKNOWN,
    escape_foreign,
    format_age,
    format_expiry,
    format_number,
    format_percent,
    format_quantile,
    format_rate,
    format_speed,
    format_utc,
)

NOW = 1_800_000_000.0


def test_a_number_is_rounded_and_unknown_ones_are_dashes() -> None:
    for value, digits, text in (
        (1234.5678, 1, "1,234.6"),
        (0.0, 0, "0"),
        (None, 0, UNKNOWN),
        (float("nan"), 0, UNKNOWN),
        (float("inf"), 1, UNKNOWN),
        (999_999_999.0, 0, "999,999,999"),
        (1e308, 0, "≥ 1e9"),
        (-1e308, 2, "≤ -1e9"),
    ):
        assert format_number(value, digits) == text, (value, digits)


def test_speeds_have_one_decimal_below_a_thousand_and_none_above() -> None:
    for value, text in ((33.249, "33.2"), (999.94, "999.9"), (999.96, "1,000"), (12_345.6, "12,346"), (None, UNKNOWN)):
        assert format_speed(value) == text, value


def test_the_unit_of_an_unknown_speed_is_left_out() -> None:
    assert format_rate(33.2) == "33.2 <small>tok/s</small>"
    assert format_rate(None) == UNKNOWN


def test_ratios_are_whole_percents() -> None:
    for ratio, text in (
        (0.256, "26 %"),
        (1.05, "105 %"),
        (None, UNKNOWN),
        (float("inf"), UNKNOWN),
        (1e308, "≥ 1e9 %"),
        (-1e308, "≤ -1e9 %"),
    ):
        assert format_percent(ratio) == text, ratio


def test_a_quantile_in_an_outer_bucket_is_shown_as_the_bound_it_is() -> None:
    for quantile, text in (
        (Quantile(0.01, 0.0, 0.01), "≤ 0.01 s"),
        (Quantile(80.0, 80.0, None), "≥ 80 s"),
        (Quantile(0.015, 0.01, 0.02), "0.015 s"),
    ):
        latency = Distribution(0.1, ((0.5, quantile),))
        assert format_quantile(latency, 0.5) == text, quantile
        assert format_quantile(latency, 0.99) == UNKNOWN, quantile


def test_a_moment_is_readable_for_people_and_programs() -> None:
    assert format_utc(NOW) == '<time datetime="2027-01-15T08:00:00Z">2027-01-15 08:00:00 UTC</time>'


def test_an_expiry_is_shown_as_the_time_left_and_the_clock_time() -> None:
    for moment, text in (
        (None, UNKNOWN),
        (NOW + 252, "in 4m 12s <small>08:04:12 UTC</small>"),
        (NOW + 200_000, format_utc(NOW + 200_000)),
        (NOW - 5, format_utc(NOW - 5)),
        (11_018_500_000.0, "never"),
    ):
        assert format_expiry(moment, NOW) == text, moment


def test_a_past_moment_is_shown_as_an_age_or_a_date() -> None:
    for moment, text in (
        (None, UNKNOWN),
        (NOW - 185, "3m 5s ago"),
        (NOW, "0s ago"),
        (NOW + 3, "0s ago"),  # the clock was set back
        (NOW - 200_000, format_utc(NOW - 200_000)),
    ):
        assert format_age(moment, NOW) == text, moment


def test_foreign_text_is_escaped_and_isolated_from_the_direction_of_writing() -> None:
    assert escape_foreign('<b> & "') == "<bdi>&lt;b&gt; &amp; &quot;</bdi>"
