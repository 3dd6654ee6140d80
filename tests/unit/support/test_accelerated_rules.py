"""Durations are divided, and nothing else is changed."""

from pathlib import Path

import yaml

from tests.support.accelerated_rules import accelerate, divide_duration, write_accelerated_rules
from tests.support.rule_files import RULES, alerts


def test_a_duration_is_divided_and_is_at_least_a_millisecond() -> None:
    for duration, tenth in (
        ("5m", "30000ms"),
        ("1h30m", "540000ms"),
        ("50ms", "5ms"),
        ("3d", "25920000ms"),
        ("1ms", "1ms"),
        ("0s", "1ms"),
    ):
        assert divide_duration(duration, 10) == tenth, duration


def test_only_durations_are_divided_not_numbers_and_names() -> None:
    for text, tenth in (
        ("rate(x[5m]) > 300", "rate(x[30000ms]) > 300"),
        ("max_over_time(x[1h:1m])", "max_over_time(x[360000ms:6000ms])"),
        ("avg_over_time(x[1d:] offset 1d)", "avg_over_time(x[8640000ms:] offset 8640000ms)"),
        ("x offset -5m", "x offset -30000ms"),
        ('rate({__name__=~"vllm[:_]x", le=~"5|5[.]0"}[5m])', 'rate({__name__=~"vllm[:_]x", le=~"5|5[.]0"}[30000ms])'),
        ("level:x:rate5m", "level:x:rate5m"),
        ("for: 15m\nkeep_firing_for: 5m\ninterval: 30s", "for: 90000ms\nkeep_firing_for: 30000ms\ninterval: 3000ms"),
    ):
        assert accelerate(text, 10) == tenth, text


def test_accelerated_rules_have_the_same_alerts_with_divided_durations(tmp_path: Path) -> None:
    write_accelerated_rules(tmp_path, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in RULES.glob("*.yml"))
    accelerated = [
        rule
        for path in sorted(tmp_path.glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    for shipped, fast in zip(alerts(), accelerated, strict=True):
        for key in ("alert", "labels"):
            assert fast[key] == shipped[key], (shipped["alert"], key)
        for key in ("for", "keep_firing_for"):
            expected = divide_duration(shipped[key], 10) if key in shipped else None
            assert fast.get(key) == expected, (shipped["alert"], key)
