"""Series and rule groups as `promtool test rules` reads them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.rule_files import groups


def selector(name: str, labels: Mapping[str, str]) -> str:
    """A series as PromQL writes it."""
    return name + "{" + ", ".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


def render_values(values: Mapping[int, float]) -> str:
    """Values by index of the interval in promtool's notation, with a stale marker wherever a value is missing."""
    first, last = min(values), max(values)
    after = [repr(values[index]) if index in values else "stale" for index in range(first, last + 1)]
    return " ".join([*["_"] * first, *after, "stale"])


def list_groups(paths: Iterable[Path]) -> list[str]:
    """Names of all groups of rule files, in their order. promtool evaluates groups that a plan leaves out first."""
    return [group["name"] for path in paths for group in groups(path)]
