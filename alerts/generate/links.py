"""The links of an alert: to its runbook, and to the board that shows what it is about."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from phasewatch.base.errors import Problem

RUNBOOKS: Final = "https://github.com/phasewatch/phasewatch/blob/main/docs/runbooks/"

BOARDS: Final[Mapping[str, str]] = {
    "overview": "target",
    "phases": "target, model_name, engine",
    "saturation": "target, model_name, engine",
    "ollama": "target, model_name",
    "slo": "job, instance, model_name, engine",
    "exporter": "",
}
"""The boards, by the end of their uid, and the variables that a link fills from labels of the same names."""

_HINT: Final = re.compile(r"(\w+)(?: \(([\w, ?]*)\))?")


def build_runbook_url(alert: str) -> str:
    """Where the runbook of an alert is."""
    return f"{RUNBOOKS}{alert}.md"


def find_missing_runbooks(rules: Iterable[Mapping[str, Any]], folder: Path) -> Iterator[Problem]:
    """A problem for each alert without a page in the folder of runbooks."""
    for rule in rules:
        if "alert" in rule and not (folder / f"{rule['alert']}.md").is_file():
            yield Problem(rule["alert"], f"expected a runbook, {folder / rule['alert']}.md")


def build_dashboard_path(hint: str) -> str:
    """The path of a board in Grafana, with its variables filled from the labels of the alert.

    Args:
        hint: the name of a board, as in `phases`, or with variables other than those in BOARDS, as in
            `phases (target, engine?)`. A question mark is for a label that not every series of the alert has; such
            variables are the last.

    Raises:
        ValueError: there is no such board.
    """
    parts = _HINT.fullmatch(hint)
    if parts is None or parts[1] not in BOARDS:
        raise ValueError(f"expected one of {', '.join(BOARDS)}, with or without variables in brackets, found {hint!r}")
    variables = BOARDS[parts[1]] if parts[2] is None else parts[2]
    return f"/d/phasewatch-{parts[1]}" + "".join(
        _fill_variable(variable, "&" if index else "?")
        for index, variable in enumerate(re.findall(r"\w+\??", variables))
    )


def _fill_variable(variable: str, separator: str) -> str:
    name = variable.rstrip("?")
    if name != variable:
        return f"{{{{ with $labels.{name} }}}}{separator}var-{name}={{{{ . | urlquery }}}}{{{{ end }}}}"
    return f"{separator}var-{name}={{{{ $labels.{name} | urlquery }}}}"
