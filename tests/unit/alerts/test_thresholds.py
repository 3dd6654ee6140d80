"""Thresholds: what a file of them may say, the rules and the table that they become."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.generate import effective
from alerts.generate.thresholds import (
    Threshold,
    find_misuses,
    group_users,
    read_thresholds,
    render_rules,
    replace_table,
)
from phasewatch.base.errors import ConfigError

GOOD: Final = (
    "{name: stall_seconds, group: queue, value: 60, unit: seconds, "
    "meaning: seconds without a token, reason: Long enough.}"
)
STALL: Final = Threshold(
    name="stall_seconds",
    group="queue",
    value=60,
    unit="seconds",
    meaning="seconds without a token",
    reason="Long enough.",
)


def write(folder: Path, text: str) -> Path:
    path = folder / "thresholds.yml"
    path.write_text(text)
    return path


def test_a_threshold_is_read_as_it_is_written(tmp_path: Path) -> None:
    assert read_thresholds(write(tmp_path, f"thresholds: [{GOOD}]")) == [STALL]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("thresholds: []", "thresholds: expected at least one entry"),
        (f"thresholds: [{GOOD}, {GOOD}]", "thresholds[1].name: stall_seconds is there twice; keep one"),
        (f"thresholds: [{GOOD.replace('60', 'long')}]", "thresholds[0].value: expected a number, found 'long'"),
        (
            f"thresholds: [{GOOD.replace('unit: seconds', 'unit: ms')}]",
            "thresholds[0].unit: expected seconds at the end",
        ),
        (
            f"thresholds: [{GOOD.replace('group: queue', 'group: cue')}]",
            "thresholds[0].group: expected 'latency', 'queue', 'decode', 'ollama' or 'collection', found 'cue'",
        ),
        (
            f"thresholds: [{GOOD.replace('reason', 'raeson')}]",
            "thresholds[0].raeson: unknown key; did you mean reason?",
        ),
        (f"thresholds: [{GOOD.replace(', reason: Long enough.', '')}]", "thresholds[0].reason: missing"),
    ],
)
def test_a_wrong_threshold_is_reported_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_thresholds(write(tmp_path, text))
    assert problem in str(caught.value)


def test_a_default_is_recorded_below_its_meaning_and_reason() -> None:
    text = render_rules([STALL])
    assert text.endswith(
        "      # Seconds without a token. Long enough.\n"
        "      - record: phasewatch_threshold:stall_seconds\n"
        "        expr: vector(60)\n"
    )
    ((rule,),) = (group["rules"] for group in yaml.safe_load(text)["groups"])
    assert rule == {"record": "phasewatch_threshold:stall_seconds", "expr": "vector(60)"}


def test_the_thresholds_of_a_group_are_a_group_of_rules_in_both_files() -> None:
    other = STALL.model_copy(update={"name": "age_seconds", "group": "collection"})
    third = STALL.model_copy(update={"name": "waiting_seconds"})
    thresholds = [STALL, other, third]
    for text, prefix in (
        (render_rules(thresholds), "phasewatch-thresholds"),
        (effective.render_rules(thresholds), "phasewatch-effective"),
    ):
        sizes = {group["name"]: len(group["rules"]) for group in yaml.safe_load(text)["groups"]}
        assert {name: sizes[name] for name in (f"{prefix}-queue", f"{prefix}-collection")} == {
            f"{prefix}-queue": 2,
            f"{prefix}-collection": 1,
        }


def test_alerts_use_the_thresholds_of_the_recordings_that_they_read() -> None:
    rules = [
        {"record": "a:load", "expr": 'x > y{threshold="first"}'},
        {"record": "b:load", "expr": "2 * a:load + b:load"},
        {"alert": "Direct", "expr": 'x > y{threshold="second"}'},
        {"alert": "Through", "expr": 'b:load > y{threshold="second"}'},
        {"alert": "Neither", "expr": "x > 1"},
    ]
    assert group_users(rules) == {"second": ["Direct", "Through"], "first": ["Through"]}


def test_the_table_is_replaced_and_the_rest_of_the_page_is_kept() -> None:
    page = "# Page\n<!-- thresholds: `make alerts` -->\n\nold\n\n<!-- end of thresholds -->\nEnd\n"
    assert replace_table(page, [STALL], {"stall_seconds": ["One", "Two"]}) == (
        "# Page\n<!-- thresholds: `make alerts` -->\n\n"
        "| threshold | default | meaning | alerts |\n|---|---|---|---|\n"
        "| `stall_seconds` | 60 | seconds without a token | `One`, `Two` |\n"
        "\n<!-- end of thresholds -->\nEnd\n"
    )


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a table between comments"):
        replace_table("# Page\n", [STALL], {"stall_seconds": []})


def test_a_threshold_without_alerts_and_one_that_alerts_miss_are_found() -> None:
    assert [str(problem) for problem in find_misuses([STALL], {"stal_seconds": ["One", "Two"]})] == [
        "threshold stall_seconds: no alert compares with it",
        "threshold stal_seconds: expected in thresholds.yml, for One, Two",
    ]
    assert list(find_misuses([STALL], {"stall_seconds": ["One"]})) == []
