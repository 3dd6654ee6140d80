"""Boards as plain values in, JSON of Grafana's classic schema out; `grafanapanels` builds the panels.

Grafana 10 to 13 read that schema; the newer one cannot be loaded by 10 and 11. The two modules alone know
grafana-foundation-sdk.
"""

import json
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.generate.model import COLUMNS, Board, Mark, Panel, Section, Variable
from dashboards.generate.panels import DATASOURCE, built_panel, dashboard, models


def rendered(board: Board) -> str:
    """The JSON of a board, the same for the same board."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["phasewatch", "llm"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time(board.start, "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for mark in board.marks:
        builder = builder.annotation(_annotation(mark))
    for variable in board.variables:
        builder = builder.with_variable(_variable(variable))
    for title, url in board.links:
        builder = builder.link(
            dashboard.DashboardLink(title)
            .type(models.DashboardLinkType.LINK)
            .url(url)
            .keep_time(True)
            .icon("dashboard")
        )
    for part in _laid_out(board):
        builder = builder.with_row(part) if isinstance(part, dashboard.Row) else builder.with_panel(part)
    found = _finished(json.loads(json.dumps(builder.build(), cls=JSONEncoder)))
    for number, panel in enumerate(_every(found["panels"]), start=1):
        panel["id"] = number
    return json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _annotation(mark: Mark) -> Any:
    return (
        dashboard.AnnotationQuery()
        .name(mark.name)
        .datasource(DATASOURCE)
        .enable(mark.shown)
        .hide(False)
        .icon_color(mark.colour)
        .expr(mark.expr)
        .step("30s")
        .title_format("{{alertname}}")
    )


def _every(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from panel.get("panels") or []


def _finished(node: Any) -> Any:
    """Without what SDK 0.0.21 adds unasked: it would hide links and annotations in a menu."""
    if isinstance(node, dict):
        return {key: _finished(value) for key, value in node.items() if (key, value) != ("placement", "inControlsMenu")}
    return [_finished(item) for item in node] if isinstance(node, list) else node


def _variable(variable: Variable) -> Any:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(f"label_values({variable.series}, {variable.name})")
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(variable.everything)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _laid_out(board: Board) -> Iterator[Any]:
    top = 0
    for section in board.sections:
        row = dashboard.Row(section.title).grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=top))
        top += 1
        placed = list(_placed(section, top))
        top = max((y + panel.height for panel, _, y in placed), default=top)
        built = [
            built_panel(panel).grid_pos(models.GridPos(h=panel.height, w=panel.width, x=x, y=y))
            for panel, x, y in placed
        ]
        if section.closed:
            for panel in built:
                row = row.with_panel(panel)
            yield row.collapsed(True)
        else:
            yield row
            yield from built


def _placed(section: Section, top: int) -> Iterator[tuple[Panel, int, int]]:
    """Panels from left to right; a line is as high as its highest panel."""
    x, line = 0, 0
    for panel in section.panels:
        if x + panel.width > COLUMNS:
            x, top, line = 0, top + line, 0
        yield panel, x, top
        x, line = x + panel.width, max(line, panel.height)
