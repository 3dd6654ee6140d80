"""Durations are divided, and nothing else is."""

from pathlib import Path

import pytest
import yaml

from tests.support.accelerated_rules import hurried, scaled_duration, write_rules
from tests.support.rule_files import RULES, alerts


@pytest.mark.parametrize(
    ("duration", "tenth"),
    [("5m", "30000ms"), ("1h30m", "540000ms"), ("50ms", "5ms"), ("3d", "25920000ms"), ("1ms", "1ms"), ("0s", "1ms")],
)
def test_a_duration_is_divided_and_never_becomes_nothing(duration: str, tenth: str) -> None:
    assert scaled_duration(duration, 10) == tenth


@pytest.mark.parametrize(
    ("text", "tenth"),
    [
        ("rate(x[5m]) > 300", "rate(x[30000ms]) > 300"),
        ("max_over_time(x[1h:1m])", "max_over_time(x[360000ms:6000ms])"),
        ("avg_over_time(x[1d:] offset 1d)", "avg_over_time(x[8640000ms:] offset 8640000ms)"),
        ("x offset -5m", "x offset -30000ms"),
        ('rate({__name__=~"vllm[:_]x", le=~"5|5[.]0"}[5m])', 'rate({__name__=~"vllm[:_]x", le=~"5|5[.]0"}[30000ms])'),
        ("level:x:rate5m", "level:x:rate5m"),
        ("for: 15m\nkeep_firing_for: 5m\ninterval: 30s", "for: 90000ms\nkeep_firing_for: 30000ms\ninterval: 3000ms"),
    ],
)
def test_what_is_waited_for_is_divided_but_no_figures_and_names(text: str, tenth: str) -> None:
    assert hurried(text, 10) == tenth


def test_a_hurried_pack_has_the_same_alerts_that_say_the_same(tmp_path: Path) -> None:
    write_rules(tmp_path, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in RULES.glob("*.yml"))
    written = [
        rule
        for path in sorted(tmp_path.glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    for whole, tenth in zip(alerts(), written, strict=True):
        assert [tenth[key] for key in ("alert", "labels")] == [whole[key] for key in ("alert", "labels")]
        for key in ("for", "keep_firing_for"):
            assert tenth.get(key) == (scaled_duration(whole[key], 10) if key in whole else None)
