"""The files of the alert pack, for the tests that read and run them."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.paths import ALERTS

RULES: Final = ALERTS / "rules"


def groups(path: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = yaml.safe_load(path.read_text())["groups"]
    return content


@cache
def rules(pattern: str = "*.yml") -> tuple[dict[str, Any], ...]:
    """Every rule that a Prometheus with this pack loads, or those of the files that fit a pattern."""
    return tuple(rule for path in sorted(RULES.glob(pattern)) for group in groups(path) for rule in group["rules"])


def alerts() -> list[dict[str, Any]]:
    """Every alerting rule; an alert of several severities is there several times."""
    return [rule for rule in rules() if "alert" in rule]


def promtool(*words: str | Path) -> str:
    """What promtool prints, if it is content."""
    done = subprocess.run(["promtool", *words], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
