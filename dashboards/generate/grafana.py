"""Dashboards as plain values in, JSON of Grafana's classic schema out; `panels` builds the panels.

Grafana 10 to 13 read that schema; the newer one cannot be loaded by 10 and 11. Only these two modules know
grafana-foundation-sdk.
"""

import json
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.generate.model import COLUMNS, Annotation, Dashboard, Panel, Row, Variable
from dashboards.generate.panels import DATASOURCE, build_panel, dashboard, models


def render_dashboard(board: Dashboard) -> str:
    """The JSON of a dashboard, always the same for the same value."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["phasewatch", "llm"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for annotation in board.annotations:
        builder = builder.annotation(_build_annotation(annotation))
    for variable in board.variables:
        builder = builder.with_variable(_build_variable(variable))
    for title, url in board.links:
        builder = builder.link(
            dashboard.DashboardLink(title)
            .type(models.DashboardLinkType.LINK)
            .url(url)
            .keep_time(True)
            .icon("dashboard")
        )
    for part in _lay_out_rows(board.rows):
        builder = builder.with_row(part) if isinstance(part, dashboard.Row) else builder.with_panel(part)
    document = _strip_placement(json.loads(json.dumps(builder.build(), cls=JSONEncoder)))
    for number, panel in enumerate(_iterate_panels(document["panels"]), start=1):
        panel["id"] = number
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _build_annotation(annotation: Annotation) -> Any:
    return (
        dashboard.AnnotationQuery()
        .name(annotation.name)
        .datasource(DATASOURCE)
        .enable(annotation.enabled)
        .hide(False)
        .icon_color(annotation.colour)
        .expr(annotation.expr)
        .step("30s")
        .title_format("{{alertname}}")
    )


def _iterate_panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every panel, those inside collapsed rows included."""
    for panel in panels:
        yield panel
        yield from panel.get("panels") or []


def _strip_placement(node: Any) -> Any:
    """The document without the placement that SDK 0.0.21 sets by default: it moves links and annotations into a menu."""
    if isinstance(node, dict):
        return {
            key: _strip_placement(value)
            for key, value in node.items()
            if (key, value) != ("placement", "inControlsMenu")
        }
    return [_strip_placement(item) for item in node] if isinstance(node, list) else node


def _build_variable(variable: Variable) -> Any:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(f"label_values({variable.series}, {variable.name})")
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(variable.all_value)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _lay_out_rows(rows: tuple[Row, ...]) -> Iterator[Any]:
    """Builders of rows and panels with their positions, from top to bottom; a collapsed row contains its panels."""
    top = 0
    for row in rows:
        row_builder = dashboard.Row(row.title).grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=top))
        top += 1
        placed = list(_place_panels(row, top))
        top = max((y + panel.height for panel, _, y in placed), default=top)
        panel_builders = [
            build_panel(panel).grid_pos(models.GridPos(h=panel.height, w=panel.width, x=x, y=y))
            for panel, x, y in placed
        ]
        if row.collapsed:
            for panel_builder in panel_builders:
                row_builder = row_builder.with_panel(panel_builder)
            yield row_builder.collapsed(True)
        else:
            yield row_builder
            yield from panel_builders


def _place_panels(row: Row, top: int) -> Iterator[tuple[Panel, int, int]]:
    """Each panel with its column and line, from left to right; a line is as high as its highest panel."""
    x, line_height = 0, 0
    for panel in row.panels:
        if x + panel.width > COLUMNS:
            x, top, line_height = 0, top + line_height, 0
        yield panel, x, top
        x, line_height = x + panel.width, max(line_height, panel.height)
