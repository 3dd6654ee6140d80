"""Default thresholds of the alerts, so that colours change where alerts begin."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

_RULES: Final = Path(__file__).parents[2] / "alerts" / "rules" / "phasewatch-thresholds.yml"


@cache
def read_threshold(name: str) -> float:
    """The default of a threshold, in the unit that its name says.

    Args:
        name: without the prefix `phasewatch_threshold:`.
    """
    groups: list[dict[str, Any]] = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    (expr,) = (
        rule["expr"] for group in groups for rule in group["rules"] if rule["record"] == f"phasewatch_threshold:{name}"
    )
    number = re.fullmatch(r"vector\((.+)\)", expr)
    assert number is not None, f"{name} is not a plain number"  # noqa: S101  # a mistake in a file of the repository
    return float(number[1])
