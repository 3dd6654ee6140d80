"""The parts of a dashboard as plain values, named as Grafana names them. `grafana` and `panels` turn them into JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

COLUMNS: Final = 24
"""Width of a dashboard in Grafana's grid."""

TOKENS_PER_SECOND: Final = "suffix: tok/s"
PER_SECOND: Final = "suffix: /s"
TIMES: Final = "suffix: x"
"""Units that Grafana lacks; it shows what follows `suffix:` behind the number."""

RANGE: Final = "$__range"
RATE_INTERVAL: Final = "$__rate_interval"
"""Grafana's variables: the time range shown, and at least four scrapes and one step."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query.

    Attributes:
        expr: PromQL, with Grafana's variables.
        legend: Grafana's template for the name of a series.
        ref_id: what overrides and columns refer to; empty for a letter by position.
        min_interval: least step, where the metric is scraped less often than the data source says; empty for its default.
    """

    expr: str
    legend: str = ""
    ref_id: str = ""
    min_interval: str = ""


@dataclass(frozen=True, slots=True)
class ValueMapping:
    """What is shown instead of a value: text and colour."""

    text: str
    colour: str = "text"


@dataclass(frozen=True, slots=True)
class Override:
    """Properties for some fields of a panel. One of the three matchers is set.

    Attributes:
        properties: value by Grafana's property id.
        by_name: name of the field as displayed.
        by_regexp: regular expression for that name.
        by_query: ref_id of a query, for every field that it returns.
    """

    properties: Mapping[str, Any]
    by_name: str = ""
    by_regexp: str = ""
    by_query: str = ""


Thresholds = tuple[tuple[float | None, str], ...]
"""Lower bound and colour of each step, ascending. The first step has no bound."""

NO_THRESHOLDS: Final[Thresholds] = ((None, "text"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What all panels have.

    Attributes:
        title: unique on its dashboard.
        description: what is good, what is bad, and what to change.
        queries: its queries, at least one, except for texts.
        width: width in columns of the grid, which has COLUMNS of them.
        height: height in rows of Grafana's grid, about 38 pixels each.
        unit: Grafana's id of it.
        no_value: text shown when there is no value.
        decimals: None lets Grafana choose.
        minimum: lower end of the axis or bar.
        maximum: upper end of the axis or bar.
        thresholds: colours by value.
        mappings: text and colour by value.
        overrides: different settings for some of the fields.
        link_to: uid of the dashboard that a click opens for the target of the series; empty for none.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    unit: str = "short"
    no_value: str = "No data"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    thresholds: Thresholds = NO_THRESHOLDS
    mappings: Mapping[str, ValueMapping] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    link_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(Panel):
    """A large number, the current one.

    Attributes:
        colour_background: colours the whole panel instead of the number.
        show_names: writes the names of the series beside their numbers.
    """

    width: int = 4
    height: int = 4
    colour_background: bool = False
    show_names: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarGauge(Panel):
    """One horizontal bar for each series, its current value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries(Panel):
    """Series over time.

    Attributes:
        stacked: draws the series on top of each other, which suits only parts of one whole.
        show_thresholds: draws thresholds as dashed lines.
        log_base: base of a logarithmic axis; 0 for a linear one.
        bars: bars instead of lines.
    """

    stacked: bool = False
    show_thresholds: bool = False
    log_base: int = 0
    bars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimeline(Panel):
    """States over time, one band for each series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap(Panel):
    """A histogram over time; its only query returns buckets by `le`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Panel):
    """Markdown."""

    content: str
    queries: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        source: a label, or the ref_id of the query whose value it shows.
        title: column header.
        unit: Grafana's id of it, for values of a query.
        width: width in pixels; None shares what is left.
        decimals: None lets Grafana choose.
        thresholds: colours of the text by value.
        mappings: text and colour by value; they colour the cell, unless all colours are that of text.
        gauge: draws the value as a bar from 0 to 1.
        wrap_text: breaks long text into lines.
        link_to: uid of the dashboard that a click opens for the target of the table row; empty for none.
    """

    source: str
    title: str
    unit: str = "none"
    width: int | None = None
    decimals: int | None = None
    thresholds: Thresholds = NO_THRESHOLDS
    mappings: Mapping[str, ValueMapping] = field(default_factory=dict)
    gauge: bool = False
    wrap_text: bool = False
    link_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """Current values, one table row for each combination of labels; queries are joined on equal labels.

    Attributes:
        columns: columns in their order; other fields of the queries are left out.
        sort_by: column title, empty for the order of the query, and whether it descends.
    """

    columns: tuple[Column, ...]
    sort_by: tuple[str, bool] = ("", False)


@dataclass(frozen=True, slots=True)
class Row:
    """A titled group of panels, laid out from left to right. A click opens a collapsed one."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard, from the values of a label.

    Attributes:
        name: name of the variable and of the label.
        label: what is written beside it.
        series: selector of the series whose label values it offers.
        all_value: regular expression that `All` stands for.
    """

    name: str
    label: str
    series: str
    all_value: str = ".+"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A query whose results are marked in all charts over time.

    Attributes:
        name: label of its switch.
        expr: PromQL.
        colour: colour of the marks.
        enabled: whether it is switched on when the dashboard opens.
    """

    name: str
    expr: str
    colour: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard.

    Attributes:
        uid: its address, `/d/UID`.
        title: unique in its folder.
        description: the question that it answers.
        variables: choices at the top, after that of the data source.
        rows: its rows, from top to bottom.
        links: title and address of each link at the top.
        annotations: what is marked in all charts over time.
    """

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    links: tuple[tuple[str, str], ...]
    annotations: tuple[Annotation, ...]
