"""The rules of grafana/dashboard-linter (main, June 2026), and the selectors in the PromQL of a dashboard."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql
import yaml

from tests.support.paths import DASHBOARDS, DASHBOARDS_JSON

Json = dict[str, Any]

_SOURCES: Final = frozenset({"$datasource", "${datasource}"})
_DESCRIBED: Final = frozenset({"stat", "gauge", "table", "timeseries"})
_UNITS: Final = frozenset(
    {"short", "none", "s", "bytes", "decbytes", "Bps", "percentunit", "dateTimeFromNow", "string"}
)
"""The units of Grafana that the dashboards use."""
_RATE: Final = "12345s"
"""Stands for $__rate_interval."""
_COUNTING: Final = frozenset({"rate", "irate", "increase"})


@dataclass(frozen=True, slots=True)
class Selector:
    """A vector selector: metric name, matchers by label, enclosing function calls, and the length of its range."""

    name: str
    matchers: Mapping[str, str]
    calls: tuple[str, ...]
    range_seconds: float | None


def load_dashboards() -> dict[str, Json]:
    """The generated dashboards by uid."""
    dashboards = [json.loads(path.read_text()) for path in sorted(DASHBOARDS_JSON.glob("*.json"))]
    return {dashboard["uid"]: dashboard for dashboard in dashboards}


def iterate_panels(board: Json) -> Iterator[Json]:
    """All panels of a dashboard, rows and the panels of collapsed rows included."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or []


def iterate_queries(board: Json) -> Iterator[tuple[Json, Json]]:
    """Each panel with each of its queries."""
    for panel in iterate_panels(board):
        for target in panel.get("targets") or []:
            yield panel, target


def expand_variables(expr: str, rate: str = _RATE) -> str:
    """A query with durations in place of Grafana's own variables; variables in matchers are valid strings already."""
    with_rate = re.sub(r"\$\{?__rate_interval\}?", rate, expr)
    return re.sub(r"\$\{?__(interval|range)\}?", "300s", with_rate)


def choose(expr: str, **choices: str) -> str:
    """A query as Grafana sends it, with these values of variables and all other variables at All."""
    return re.sub(r"\$([a-z]\w*)", lambda match: choices.get(match[1], ".*" if match[1] == "engine" else ".+"), expr)


def parse_selectors(expr: str) -> Iterator[Selector]:
    """What a query selects. Raises ValueError if it is not PromQL."""
    yield from _walk_selectors(promql.parse(expand_variables(expr)), (), None)


def _walk_selectors(node: Any, calls: tuple[str, ...], seconds: float | None) -> Iterator[Selector]:
    if isinstance(node, promql.VectorSelector):
        matchers = {matcher.name: f"{_OPERATORS[str(matcher.op)]}{matcher.value}" for matcher in node.matchers.matchers}
        yield Selector(node.name or "", matchers, calls, seconds)
    elif isinstance(node, promql.MatrixSelector):
        yield from _walk_selectors(node.vector_selector, calls, node.range.total_seconds())
    elif isinstance(node, promql.Call):
        for argument in node.args:
            yield from _walk_selectors(argument, (*calls, node.func.name), seconds)
    else:
        for name in ("expr", "lhs", "rhs", "param"):
            if (child := getattr(node, name, None)) is not None:
                yield from _walk_selectors(child, calls, seconds)


_OPERATORS: Final = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def lint(board: Json) -> list[tuple[str, str]]:
    """Rule and complaint of everything that the linter would report."""
    return [(rule, complaint) for rule, check in _RULES.items() for complaint in check(board)]


def read_exclusions() -> frozenset[str]:
    """Rules that dashboards/.lint excludes."""
    return frozenset(yaml.safe_load((DASHBOARDS / ".lint").read_text())["exclusions"])


def _find_variables(board: Json, kind: str) -> list[Json]:
    return [variable for variable in board["templating"]["list"] if variable["type"] == kind]


def _check_data_source_variable(board: Json) -> Iterator[str]:
    names_and_labels = [(variable["name"], variable["label"]) for variable in _find_variables(board, "datasource")]
    if names_and_labels != [("datasource", "Data source")]:
        yield f"data source variables: {names_and_labels}"


def _check_job_and_instance(board: Json) -> Iterator[str]:
    queried = {variable["name"]: variable for variable in _find_variables(board, "query")}
    for name in ("job", "instance"):
        variable = queried.get(name, {})
        facts = (variable.get("label"), variable.get("multi"), variable.get("allValue"))
        if facts != (name.title(), True, ".+") or variable["datasource"]["uid"] not in _SOURCES:
            yield f"{name}: {facts}"


def _check_variable_queries(board: Json) -> Iterator[str]:
    for variable in _find_variables(board, "query"):
        match = re.fullmatch(r"label_values\((.+), *\w+\)", variable["query"])
        try:
            promql.parse(match[1] if match else "")
        except ValueError as error:
            yield f"{variable['name']}: {variable['query']}: {error}"


def _check_variable_refresh(board: Json) -> Iterator[str]:
    yield from (variable["name"] for variable in _find_variables(board, "query") if variable["refresh"] != 2)


def _check_panel_data_sources(board: Json) -> Iterator[str]:
    for panel in iterate_panels(board):
        if panel["type"] not in {"row", "text"} and panel["datasource"]["uid"] not in _SOURCES:
            yield panel["title"]


def _check_titles(board: Json) -> Iterator[str]:
    for panel in iterate_panels(board):
        if panel["type"] in _DESCRIBED and not (panel.get("title") and panel.get("description")):
            yield str(panel.get("title"))


def _check_units(board: Json) -> Iterator[str]:
    for panel in iterate_panels(board):
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] in _DESCRIBED and not defaults.get("mappings") and defaults.get("unit") not in _UNITS:
            yield f"{panel['title']}: {defaults.get('unit')}"


def _check_targets(board: Json) -> Iterator[str]:
    yield from (
        panel["title"] for panel in iterate_panels(board) if panel["type"] in _DESCRIBED and not panel.get("targets")
    )


def _check_promql(board: Json) -> Iterator[str]:
    for panel, target in iterate_queries(board):
        try:
            list(parse_selectors(target["expr"]))
        except ValueError as error:
            yield f"{panel['title']}: {error}"


def _build_selector_check(complaint: Callable[[Selector], bool]) -> Callable[[Json], Iterator[str]]:
    def check(board: Json) -> Iterator[str]:
        for panel, target in iterate_queries(board):
            for selector in parse_selectors(target["expr"]):
                if complaint(selector):
                    yield f"{panel['title']}/{target['refId']}: {selector}"

    return check


def _lacks_rate_interval(selector: Selector) -> bool:
    counting = bool(selector.calls) and selector.calls[-1] in {"rate", "irate"}
    return counting and selector.range_seconds != float(_RATE[:-1])


def _check_uneditable(board: Json) -> Sequence[str]:
    return ["can be edited"] if board["editable"] else []


_RULES: Final[Mapping[str, Callable[[Json], Iterator[str] | Sequence[str]]]] = {
    "template-datasource-rule": _check_data_source_variable,
    "template-job-rule": _check_job_and_instance,
    "template-label-promql-rule": _check_variable_queries,
    "template-on-time-change-reload-rule": _check_variable_refresh,
    "panel-datasource-rule": _check_panel_data_sources,
    "panel-title-description-rule": _check_titles,
    "panel-units-rule": _check_units,
    "panel-no-targets-rule": _check_targets,
    "target-promql-rule": _check_promql,
    "target-job-rule": _build_selector_check(lambda selector: selector.matchers.get("job") != "=~$job"),
    "target-instance-rule": _build_selector_check(lambda selector: selector.matchers.get("instance") != "=~$instance"),
    "target-rate-interval-rule": _build_selector_check(_lacks_rate_interval),
    "target-counter-agg-rule": _build_selector_check(
        lambda selector: selector.name.endswith("_total") and not _COUNTING & set(selector.calls)
    ),
    "uneditable-dashboard": _check_uneditable,
}
