"""What grafana/dashboard-linter (main, June 2026) demands of a dashboard, and what PromQL in it selects."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql
import yaml

from tests.support.paths import DASHBOARDS

Json = dict[str, Any]

_SOURCES: Final = frozenset({"$datasource", "${datasource}"})
_DESCRIBED: Final = frozenset({"stat", "gauge", "table", "timeseries"})
_UNITS: Final = frozenset(
    {"short", "none", "s", "bytes", "decbytes", "Bps", "percentunit", "dateTimeFromNow", "string"}
)
"""Those of Grafana's units that the boards use."""
_RATE: Final = "12345s"
"""Stands for $__rate_interval."""
_COUNTING: Final = frozenset({"rate", "irate", "increase"})


@dataclass(frozen=True, slots=True)
class Selector:
    """A vector selector: its name, the labels that it matches, the calls and groupings around it."""

    name: str
    matchers: Mapping[str, str]
    calls: tuple[str, ...]
    range_seconds: float | None


def boards() -> dict[str, Json]:
    """The committed boards by uid."""
    found = [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]
    return {board["uid"]: board for board in found}


def panels(board: Json) -> Iterator[Json]:
    """All panels of a board, rows and what is in closed rows included."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or []


def queries(board: Json) -> Iterator[tuple[Json, Json]]:
    """Each panel with each of its queries."""
    for panel in panels(board):
        for target in panel.get("targets") or []:
            yield panel, target


def expanded(expr: str, rate: str = _RATE) -> str:
    """A query with lengths of time for Grafana's own variables; those in matchers are strings as they are."""
    told = re.sub(r"\$\{?__rate_interval\}?", rate, expr)
    return re.sub(r"\$\{?__(interval|range)\}?", "300s", told)


def chosen(expr: str, **choices: str) -> str:
    """A query as Grafana sends it, with some choices and all other variables at All."""
    return re.sub(r"\$([a-z]\w*)", lambda found: choices.get(found[1], ".*" if found[1] == "engine" else ".+"), expr)


def selectors(expr: str) -> Iterator[Selector]:
    """What a query selects. Raises ValueError where it is no PromQL."""
    yield from _selectors(promql.parse(expanded(expr)), (), None)


def _selectors(node: Any, calls: tuple[str, ...], seconds: float | None) -> Iterator[Selector]:
    if isinstance(node, promql.VectorSelector):
        matchers = {matcher.name: f"{_OPERATORS[str(matcher.op)]}{matcher.value}" for matcher in node.matchers.matchers}
        yield Selector(node.name or "", matchers, calls, seconds)
    elif isinstance(node, promql.MatrixSelector):
        yield from _selectors(node.vector_selector, calls, node.range.total_seconds())
    elif isinstance(node, promql.Call):
        for argument in node.args:
            yield from _selectors(argument, (*calls, node.func.name), seconds)
    else:
        for name in ("expr", "lhs", "rhs", "param"):
            if (child := getattr(node, name, None)) is not None:
                yield from _selectors(child, calls, seconds)


_OPERATORS: Final = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def findings(board: Json) -> list[tuple[str, str]]:
    """Rule and complaint, for all that the linter would say."""
    return [(rule, told) for rule, check in _RULES.items() for told in check(board)]


def excluded() -> frozenset[str]:
    """Rules that dashboards/.lint sets aside."""
    return frozenset(yaml.safe_load((DASHBOARDS / ".lint").read_text())["exclusions"])


def _variables(board: Json, kind: str) -> list[Json]:
    return [variable for variable in board["templating"]["list"] if variable["type"] == kind]


def _templated_source(board: Json) -> Iterator[str]:
    found = [(variable["name"], variable["label"]) for variable in _variables(board, "datasource")]
    if found != [("datasource", "Data source")]:
        yield f"data source variables: {found}"


def _job_and_instance(board: Json) -> Iterator[str]:
    queried = {variable["name"]: variable for variable in _variables(board, "query")}
    for name in ("job", "instance"):
        variable = queried.get(name, {})
        facts = (variable.get("label"), variable.get("multi"), variable.get("allValue"))
        if facts != (name.title(), True, ".+") or variable["datasource"]["uid"] not in _SOURCES:
            yield f"{name}: {facts}"


def _variable_queries(board: Json) -> Iterator[str]:
    for variable in _variables(board, "query"):
        found = re.fullmatch(r"label_values\((.+), *\w+\)", variable["query"])
        try:
            promql.parse(found[1] if found else "")
        except ValueError as error:
            yield f"{variable['name']}: {variable['query']}: {error}"


def _reloaded_with_time(board: Json) -> Iterator[str]:
    yield from (variable["name"] for variable in _variables(board, "query") if variable["refresh"] != 2)


def _panel_sources(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if panel["type"] not in {"row", "text"} and panel["datasource"]["uid"] not in _SOURCES:
            yield panel["title"]


def _titles(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if panel["type"] in _DESCRIBED and not (panel.get("title") and panel.get("description")):
            yield str(panel.get("title"))


def _units(board: Json) -> Iterator[str]:
    for panel in panels(board):
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] in _DESCRIBED and not defaults.get("mappings") and defaults.get("unit") not in _UNITS:
            yield f"{panel['title']}: {defaults.get('unit')}"


def _targets(board: Json) -> Iterator[str]:
    yield from (panel["title"] for panel in panels(board) if panel["type"] in _DESCRIBED and not panel.get("targets"))


def _parsable(board: Json) -> Iterator[str]:
    for panel, target in queries(board):
        try:
            list(selectors(target["expr"]))
        except ValueError as error:
            yield f"{panel['title']}: {error}"


def _selector_rule(complaint: Callable[[Selector], bool]) -> Callable[[Json], Iterator[str]]:
    def check(board: Json) -> Iterator[str]:
        for panel, target in queries(board):
            for found in selectors(target["expr"]):
                if complaint(found):
                    yield f"{panel['title']}/{target['refId']}: {found}"

    return check


def _rate_interval(found: Selector) -> bool:
    counting = bool(found.calls) and found.calls[-1] in {"rate", "irate"}
    return counting and found.range_seconds != float(_RATE[:-1])


def _uneditable(board: Json) -> Sequence[str]:
    return ["can be edited"] if board["editable"] else []


_RULES: Final[Mapping[str, Callable[[Json], Iterator[str] | Sequence[str]]]] = {
    "template-datasource-rule": _templated_source,
    "template-job-rule": _job_and_instance,
    "template-label-promql-rule": _variable_queries,
    "template-on-time-change-reload-rule": _reloaded_with_time,
    "panel-datasource-rule": _panel_sources,
    "panel-title-description-rule": _titles,
    "panel-units-rule": _units,
    "panel-no-targets-rule": _targets,
    "target-promql-rule": _parsable,
    "target-job-rule": _selector_rule(lambda found: found.matchers.get("job") != "=~$job"),
    "target-instance-rule": _selector_rule(lambda found: found.matchers.get("instance") != "=~$instance"),
    "target-rate-interval-rule": _selector_rule(_rate_interval),
    "target-counter-agg-rule": _selector_rule(
        lambda found: found.name.endswith("_total") and not _COUNTING & set(found.calls)
    ),
    "uneditable-dashboard": _uneditable,
}
