"""Panels as plain values in, builders of grafana-foundation-sdk out. `grafana` lays them out on dashboards."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

with warnings.catch_warnings():
    # SDK 0.0.21 warns about its own classic builders on import.
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
    NO_THRESHOLDS,
    BarGauge,
    Column,
    Heatmap,
    Override,
    Panel,
    Query,
    Stat,
    StateTimeline,
    Table,
    Text,
    Thresholds,
    TimeSeries,
    ValueMapping,
)

__all__ = ["DATASOURCE", "build_panel", "dashboard", "models"]

DATASOURCE: Final = kinds.DataSourceRef(type_val="prometheus", uid="${datasource}")
_LINK_TITLE: Final = "Look closer"
_RANGE, _INSTANT, _TABLE, _HEATMAP = "range", "instant", "table", "heatmap"


def build_panel(panel: Panel) -> Any:
    """The builder of a panel, without its position."""
    builder = _BUILDERS[type(panel)](panel)
    builder = builder.title(panel.title).description(panel.description)
    if isinstance(panel, Text):
        return builder
    builder = builder.datasource(DATASOURCE).unit(panel.unit).no_value(panel.no_value)
    builder = builder.thresholds(_build_thresholds(panel.thresholds))
    if panel.decimals is not None:
        builder = builder.decimals(panel.decimals)
    if panel.minimum is not None:
        builder = builder.min(panel.minimum)
    if panel.maximum is not None:
        builder = builder.max(panel.maximum)
    if panel.mappings:
        builder = builder.mappings([_build_value_map(panel.mappings)])
    if panel.link_to:
        url = _link_url(panel.link_to, "${__field.labels.target:percentencode}")
        builder = builder.data_links([dashboard.DashboardLink(_LINK_TITLE).url(url)])
    for override in panel.overrides:
        builder = _add_override(builder, override)
    return builder


def _link_url(uid: str, target: str) -> str:
    """Address of a dashboard for one target. Model and engine stay at All: a target that is down has none."""
    variables = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "job", "instance"))
    return f"/d/{uid}?{variables}&var-target={target}&${{__url_time_range}}"


def _add_override(builder: Any, override: Override) -> Any:
    properties = [models.DynamicConfigValue(id_val=key, value=value) for key, value in override.properties.items()]
    if override.by_query:
        return builder.override_by_query(override.by_query, properties)
    if override.by_regexp:
        return builder.override_by_regexp(override.by_regexp, properties)
    return builder.override_by_name(override.by_name, properties)


def _build_thresholds(thresholds: Thresholds) -> Any:
    steps = [models.Threshold(value=value, color=colour) for value, colour in thresholds]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _build_value_map(mappings: Mapping[str, ValueMapping]) -> models.ValueMap:
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=mapping.text, color=mapping.colour, index=index)
            for index, (value, mapping) in enumerate(mappings.items())
        }
    )


def _add_queries(builder: Any, queries: tuple[Query, ...], form: str) -> Any:
    for index, query in enumerate(queries):
        ref_id = query.ref_id or chr(ord("A") + index)
        target = prometheus.Dataquery().expr(query.expr).ref_id(ref_id).datasource(DATASOURCE)
        if form == _TABLE:
            target = target.instant().format(PromQueryFormat.TABLE)
        elif form == _INSTANT:
            target = target.instant().legend_format(query.legend or "__auto")
        elif form == _HEATMAP:
            target = target.range().format(PromQueryFormat.HEATMAP).legend_format("{{le}}")
        else:
            target = target.range().legend_format(query.legend or "__auto")
        builder = builder.with_target(_QueryWithMinInterval(target, query.min_interval))
    return builder


class _QueryWithMinInterval:
    """A query builder that sets the least step as well; that of SDK 0.0.21 has no method for it."""

    def __init__(self, query: prometheus.Dataquery, min_interval: str) -> None:
        self._query = query
        self._min_interval = min_interval

    def build(self) -> Any:
        """The query."""
        query = self._query.build()
        query.interval = self._min_interval or None
        return query


def _build_stat(panel: Stat) -> Any:
    return _add_queries(
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_mode(kinds.BigValueColorMode.BACKGROUND if panel.colour_background else kinds.BigValueColorMode.VALUE)
        .text_mode(kinds.BigValueTextMode.VALUE_AND_NAME if panel.show_names else kinds.BigValueTextMode.VALUE)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)),
        panel.queries,
        # A range query would keep showing the last value of a series that has ended.
        _INSTANT,
    )


def _build_bar_gauge(panel: BarGauge) -> Any:
    return _add_queries(
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


def _build_legend() -> common.VizLegendOptions:
    below = common.VizLegendOptions().placement(kinds.LegendPlacement.BOTTOM).show_legend(True)
    return below.display_mode(kinds.LegendDisplayMode.LIST)


def _build_time_series(panel: TimeSeries) -> Any:
    builder = (
        timeseries.Panel()
        .legend(_build_legend())
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 8)
        .show_points(kinds.VisibilityMode.AUTO)
        .span_nulls(False)
    )
    if panel.bars:
        builder = builder.draw_style(kinds.GraphDrawStyle.BARS).fill_opacity(60)
    if panel.stacked:
        builder = builder.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    if panel.show_thresholds:
        builder = builder.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED)
        )
    if panel.log_base:
        scale = common.ScaleDistributionConfig().type(kinds.ScaleDistribution.LOG).log(panel.log_base)
        builder = builder.scale_distribution(scale)
    return _add_queries(builder, panel.queries, _RANGE)


def _build_state_timeline(panel: StateTimeline) -> Any:
    return _add_queries(
        statetimeline.Panel()
        .show_value(kinds.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(75)
        .line_width(0)
        .align_value(kinds.TimelineValueAlignment.LEFT)
        .legend(_build_legend())
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)),
        panel.queries,
        _RANGE,
    )


def _build_heatmap(panel: Heatmap) -> Any:
    return _add_queries(
        heatmap.Panel()
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").exponent(0.5).steps(64))
        .cell_gap(1)
        .y_axis(heatmap.YAxisConfig().unit(panel.unit)),
        panel.queries,
        _HEATMAP,
    )


def _build_text(panel: Text) -> Any:
    return text.Panel().mode(TextMode.MARKDOWN).content(panel.content)


def _build_table(panel: Table) -> Any:
    several = len(panel.queries) > 1
    names = {query.ref_id: f"Value #{query.ref_id}" if several else "Value" for query in panel.queries}
    fields = [names.get(column.source, column.source) for column in panel.columns]
    builder = (
        table.Panel()
        .cell_height(kinds.TableCellHeight.SM)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )
    if several:
        builder = builder.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    builder = builder.with_transformation(
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
    if panel.sort_by[0]:
        title, descending = panel.sort_by
        builder = builder.sort_by([common.TableSortByFieldState().display_name(title).desc(descending)])
    titles = {column.source: column.title for column in panel.columns}
    for column in panel.columns:
        properties = dict(_list_column_properties(column, titles, is_value=column.source in names))
        builder = _add_override(builder, Override(properties, by_name=column.title))
    return _add_queries(builder, panel.queries, _TABLE)


def _list_column_properties(column: Column, titles: Mapping[str, str], *, is_value: bool) -> Iterator[tuple[str, Any]]:
    yield "unit", column.unit if is_value else "string"
    yield "noValue", "–"  # noqa: RUF001  # an en dash on purpose
    if column.width is not None:
        yield "custom.width", column.width
    if column.decimals is not None:
        yield "decimals", column.decimals
    coloured = any(mapping.colour != "text" for mapping in column.mappings.values()) and not column.wrap_text
    # An empty cell takes the colour of the first step, and must not be filled.
    yield "thresholds", _build_thresholds(((None, "transparent"),) if coloured else column.thresholds).build()
    if column.mappings:
        yield "mappings", [_build_value_map(column.mappings)]
        yield "custom.align", "left"
    if column.gauge:
        yield "min", 0
        yield "max", 1
        yield "custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    elif column.wrap_text:
        yield "custom.cellOptions", {"type": "auto", "wrapText": True}
        yield "custom.wrapText", True  # Grafana 12.2 and newer
    elif coloured:
        yield "custom.cellOptions", {"type": "color-background", "mode": "basic"}
    elif column.thresholds != NO_THRESHOLDS:
        yield "custom.cellOptions", {"type": "color-text"}
    if column.link_to:
        url = _link_url(column.link_to, f'${{__data.fields["{titles["target"]}"]:percentencode}}')
        yield "links", [{"title": _LINK_TITLE, "url": url}]


_BUILDERS: Final[Mapping[type[Panel], Callable[[Any], Any]]] = {
    Stat: _build_stat,
    BarGauge: _build_bar_gauge,
    TimeSeries: _build_time_series,
    StateTimeline: _build_state_timeline,
    Heatmap: _build_heatmap,
    Text: _build_text,
    Table: _build_table,
}
