"""Panels as plain values in, builders of grafana-foundation-sdk out. `grafana` lays them out on boards.

The two modules alone know the SDK.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

with warnings.catch_warnings():
    # SDK 0.0.21 asks for its newer builders while it is imported.
    warnings.filterwarnings("ignore", message="Prefer using dashboardv2", category=DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        bargauge,
        common,
        dashboard,
        heatmap,
        prometheus,
        stat,
        statetimeline,
        table,
        text,
        timeseries,
    )

from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from dashboards.generate.model import (
    Bars,
    Column,
    Heatmap,
    Lines,
    Override,
    Panel,
    Query,
    Shown,
    Steps,
    Table,
    Tile,
    Timeline,
    Words,
)

__all__ = ["DATASOURCE", "built_panel", "dashboard", "models"]

DATASOURCE: Final = kinds.DataSourceRef(type_val="prometheus", uid="${datasource}")
_CLOSER: Final = "Look closer"
_RANGE, _INSTANT, _TABLE, _HEATMAP = "range", "instant", "table", "heatmap"


def built_panel(panel: Panel) -> Any:
    """The builder of a panel, without its place."""
    built = _BUILD[type(panel)](panel)
    built = built.title(panel.title).description(panel.description)
    if isinstance(panel, Words):
        return built
    built = built.datasource(DATASOURCE).unit(panel.unit).no_value(panel.empty).thresholds(_thresholds(panel.steps))
    if panel.decimals is not None:
        built = built.decimals(panel.decimals)
    if panel.minimum is not None:
        built = built.min(panel.minimum)
    if panel.maximum is not None:
        built = built.max(panel.maximum)
    if panel.mappings:
        built = built.mappings([_mapping(panel.mappings)])
    if panel.linked:
        url = _address(panel.linked, "${__field.labels.target:percentencode}")
        built = built.data_links([dashboard.DashboardLink(_CLOSER).url(url)])
    for override in panel.overrides:
        built = _overridden(built, override)
    return built


def _address(uid: str, target: str) -> str:
    """The board about a target. Its model and engine stay open: a target that is down has none."""
    kept = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "job", "instance"))
    return f"/d/{uid}?{kept}&var-target={target}&${{__url_time_range}}"


def _overridden(built: Any, override: Override) -> Any:
    properties = [models.DynamicConfigValue(id_val=key, value=value) for key, value in override.properties.items()]
    if override.query:
        return built.override_by_query(override.query, properties)
    if override.pattern:
        return built.override_by_regexp(override.pattern, properties)
    return built.override_by_name(override.name, properties)


def _thresholds(steps: Steps) -> Any:
    found = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(found)


def _mapping(mappings: Mapping[str, Shown]) -> models.ValueMap:
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=shown.text, color=shown.colour, index=index)
            for index, (value, shown) in enumerate(mappings.items())
        }
    )


def _queries(built: Any, queries: tuple[Query, ...], form: str) -> Any:
    for index, query in enumerate(queries):
        found = (
            prometheus.Dataquery().expr(query.expr).ref_id(query.name or chr(ord("A") + index)).datasource(DATASOURCE)
        )
        if form == _TABLE:
            found = found.instant().format(PromQueryFormat.TABLE)
        elif form == _INSTANT:
            found = found.instant().legend_format(query.legend or "__auto")
        elif form == _HEATMAP:
            found = found.range().format(PromQueryFormat.HEATMAP).legend_format("{{le}}")
        else:
            found = found.range().legend_format(query.legend or "__auto")
        built = built.with_target(_Spaced(found, query.spacing))
    return built


class _Spaced:
    """A query with the least step that Grafana may use; the builder of SDK 0.0.21 cannot tell it."""

    def __init__(self, query: prometheus.Dataquery, spacing: str) -> None:
        self._query = query
        self._spacing = spacing

    def build(self) -> Any:
        """The query."""
        found = self._query.build()
        found.interval = self._spacing or None
        return found


def _tile(panel: Tile) -> Any:
    return _queries(
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_mode(kinds.BigValueColorMode.BACKGROUND if panel.filled else kinds.BigValueColorMode.VALUE)
        .text_mode(kinds.BigValueTextMode.VALUE_AND_NAME if panel.named else kinds.BigValueTextMode.VALUE)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)),
        panel.queries,
        # Over a range what is gone would keep its last value.
        _INSTANT,
    )


def _bars(panel: Bars) -> Any:
    return _queries(
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .sizing(kinds.BarGaugeSizing.MANUAL)
        .min_viz_height(16)
        .max_viz_height(32)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)),
        panel.queries,
        _INSTANT,
    )


def _legend() -> common.VizLegendOptions:
    below = common.VizLegendOptions().placement(kinds.LegendPlacement.BOTTOM).show_legend(True)
    return below.display_mode(kinds.LegendDisplayMode.LIST)


def _lines(panel: Lines) -> Any:
    built = (
        timeseries.Panel()
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 8)
        .show_points(kinds.VisibilityMode.AUTO)
        .span_nulls(False)
    )
    if panel.bars:
        built = built.draw_style(kinds.GraphDrawStyle.BARS).fill_opacity(60)
    if panel.stacked:
        built = built.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    if panel.marked:
        built = built.thresholds_style(common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED))
    if panel.logarithmic:
        scale = common.ScaleDistributionConfig().type(kinds.ScaleDistribution.LOG).log(panel.logarithmic)
        built = built.scale_distribution(scale)
    return _queries(built, panel.queries, _RANGE)


def _timeline(panel: Timeline) -> Any:
    return _queries(
        statetimeline.Panel()
        .show_value(kinds.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(75)
        .line_width(0)
        .align_value(kinds.TimelineValueAlignment.LEFT)
        .legend(_legend())
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)),
        panel.queries,
        _RANGE,
    )


def _heatmap(panel: Heatmap) -> Any:
    return _queries(
        heatmap.Panel()
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").exponent(0.5).steps(64))
        .cell_gap(1)
        .y_axis(heatmap.YAxisConfig().unit(panel.unit)),
        panel.queries,
        _HEATMAP,
    )


def _words(panel: Words) -> Any:
    return text.Panel().mode(TextMode.MARKDOWN).content(panel.text)


def _table(panel: Table) -> Any:
    several = len(panel.queries) > 1
    names = {query.name: f"Value #{query.name}" if several else "Value" for query in panel.queries}
    fields = [names.get(column.source, column.source) for column in panel.columns]
    built = (
        table.Panel()
        .cell_height(kinds.TableCellHeight.SM)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )
    if several:
        built = built.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    built = built.with_transformation(
        models.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": fields}})
    ).with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {},
                "indexByName": {name: index for index, name in enumerate(fields)},
                "renameByName": {name: column.title for name, column in zip(fields, panel.columns, strict=True)},
            },
        )
    )
    if panel.sorted_by[0]:
        title, descending = panel.sorted_by
        built = built.sort_by([common.TableSortByFieldState().display_name(title).desc(descending)])
    titles = {column.source: column.title for column in panel.columns}
    for column in panel.columns:
        properties = dict(_properties(column, titles, counted=column.source in names))
        built = _overridden(built, Override(properties, name=column.title))
    return _queries(built, panel.queries, _TABLE)


def _properties(column: Column, titles: Mapping[str, str], *, counted: bool) -> Iterator[tuple[str, Any]]:
    yield "unit", column.unit if counted else "string"
    yield "noValue", "–"  # noqa: RUF001  # an en dash on purpose
    if column.width is not None:
        yield "custom.width", column.width
    if column.decimals is not None:
        yield "decimals", column.decimals
    coloured = any(shown.colour != "text" for shown in column.mappings.values()) and not column.wrapped
    if column.steps:
        # An empty cell has the colour of the first step, which is to fill no cell.
        yield "thresholds", _thresholds(((None, "transparent"),) if coloured else column.steps).build()
    if column.mappings:
        yield "mappings", [_mapping(column.mappings)]
        yield "custom.align", "left"
    if column.bar:
        yield "min", 0
        yield "max", 1
        yield "custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    elif column.wrapped:
        yield "custom.cellOptions", {"type": "auto", "wrapText": True}
        yield "custom.wrapText", True  # Grafana 12.2 and newer
    elif coloured:
        yield "custom.cellOptions", {"type": "color-background", "mode": "basic"}
    elif column.steps != ((None, "text"),):
        yield "custom.cellOptions", {"type": "color-text"}
    if column.linked:
        url = _address(column.linked, f'${{__data.fields["{titles["target"]}"]:percentencode}}')
        yield "links", [{"title": _CLOSER, "url": url}]


_BUILD: Final[Mapping[type[Panel], Callable[[Any], Any]]] = {
    Tile: _tile,
    Bars: _bars,
    Lines: _lines,
    Timeline: _timeline,
    Heatmap: _heatmap,
    Words: _words,
    Table: _table,
}
