"""The shipped rules with all their durations divided by one factor, for tests that last seconds."""

import re
from pathlib import Path
from typing import Final

from tests.support.rule_files import RULES

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART: Final = re.compile(r"(\d+)(ms|[smhd])")
_DURATION: Final = re.compile(r"(\[|offset -?|for: |interval: )((?:\d+(?:ms|[smhd]))+)\b")
"""Ranges, offsets, `for`, `keep_firing_for` and a group's `interval`."""
_STEP: Final = re.compile(r"(:)((?:\d+(?:ms|[smhd]))+)(?=\])")
"""The step of a subquery."""


def divide_duration(duration: str, factor: float) -> str:
    """A duration divided by the factor, at least 1 ms."""
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))
    return f"{max(1, round(seconds * 1000 / factor))}ms"


def accelerate(text: str, factor: float) -> str:
    """A rule file with all durations divided by the factor; numbers, names and strings are unchanged."""

    def divide_match(match: re.Match[str]) -> str:
        return f"{match[1]}{divide_duration(match[2], factor)}"

    return _DURATION.sub(divide_match, _STEP.sub(divide_match, text))


def write_accelerated_rules(folder: Path, factor: float) -> None:
    """Write all shipped rule files, accelerated, to a folder."""
    for path in sorted(RULES.glob("*.yml")):
        (folder / path.name).write_text(accelerate(path.read_text(), factor))
