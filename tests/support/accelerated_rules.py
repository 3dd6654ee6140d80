"""The shipped rules in a hurry: everything that they wait for, divided by one factor, for tests that last seconds."""

import re
from pathlib import Path
from typing import Final

from tests.support.rule_files import RULES

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART: Final = re.compile(r"(\d+)(ms|[smhd])")
_WAITED: Final = re.compile(r"(\[|offset -?|for: |interval: )((?:\d+(?:ms|[smhd]))+)\b")
"""Ranges, offsets, `for`, `keep_firing_for` and a group's `interval`."""
_STEP: Final = re.compile(r"(:)((?:\d+(?:ms|[smhd]))+)(?=\])")
"""The step of a subquery."""


def scaled_duration(duration: str, factor: float) -> str:
    """A duration divided by the factor, at least 1 ms."""
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))
    return f"{max(1, round(seconds * 1000 / factor))}ms"


def hurried(text: str, factor: float) -> str:
    """A rule file whose durations are divided by the factor; figures, names and strings stay as they are."""

    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{scaled_duration(found[2], factor)}"

    return _WAITED.sub(shorter, _STEP.sub(shorter, text))


def write_rules(folder: Path, factor: float) -> None:
    """All shipped rule files, in a hurry, in a folder."""
    for path in sorted(RULES.glob("*.yml")):
        (folder / path.name).write_text(hurried(path.read_text(), factor))
