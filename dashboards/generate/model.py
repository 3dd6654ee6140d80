"""What a board is made of, as plain values. Nothing here knows Grafana's JSON; `grafana` turns it into that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

COLUMNS: Final = 24
"""Width of a board in Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query.

    Attributes:
        expr: with Grafana's variables.
        legend: Grafana's template for the name of a series.
        name: by which overrides and columns refer to it; a letter by its place otherwise.
        spacing: time between the samples, where it is longer than the data source says: rates need four of them.
    """

    expr: str
    legend: str = ""
    name: str = ""
    spacing: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a value is written instead of itself: text and colour."""

    text: str
    colour: str = "text"


@dataclass(frozen=True, slots=True)
class Override:
    """Properties of some fields, by Grafana's names of them.

    Attributes:
        properties: id and value, as Grafana has them.
        name: of the field, as shown.
        pattern: a regular expression for names; one of the three is set.
        query: the name of a query, for all that it returns.
    """

    properties: Mapping[str, Any]
    name: str = ""
    pattern: str = ""
    query: str = ""


Steps = tuple[tuple[float | None, str], ...]
"""Thresholds: from which value on which colour. The first has no value."""

PLAIN: Final[Steps] = ((None, "text"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What all panels have.

    Attributes:
        title: unique on its board.
        description: what is good, what is bad, and what to change.
        queries: at least one, except for texts.
        width: of COLUMNS.
        height: in rows of Grafana's grid, about 38 pixels each.
        unit: Grafana's id of it.
        empty: what stands there when there is no value.
        decimals: None lets Grafana choose.
        minimum: of the axis or bar.
        maximum: of the axis or bar.
        steps: thresholds.
        mappings: values that are written in words.
        overrides: for some of the fields.
        linked: the uid of a board that a click leads to.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    unit: str = "short"
    empty: str = "No data"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    steps: Steps = PLAIN
    mappings: Mapping[str, Shown] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    linked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile(Panel):
    """A big number, that of now; `filled` colours the whole tile, `named` writes the names of the series beside it."""

    width: int = 4
    height: int = 4
    filled: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Panel):
    """One horizontal bar for each series, as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Panel):
    """Series over time.

    Attributes:
        stacked: on top of each other, which only parts of one whole may be.
        marked: thresholds are drawn as dashed lines.
        logarithmic: the base of the axis, 0 for a linear one.
        bars: bars instead of lines.
    """

    stacked: bool = False
    marked: bool = False
    logarithmic: int = 0
    bars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Panel):
    """States over time, one row for each series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap(Panel):
    """A histogram over time; its one query gives buckets by `le`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Panel):
    """Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        source: the label, or the name of the query whose value it is.
        title: what stands above it.
        unit: Grafana's id; of the values of a query a plain number by itself.
        width: in pixels; None shares what is left.
        decimals: None lets Grafana choose.
        steps: thresholds, that colour the text.
        mappings: values that are written in words; they colour the cell, unless their colour is that of text.
        bar: draws the value as a bar from 0 to 1.
        wrapped: breaks long text into lines.
        linked: the uid of a board that a click leads to, with the row's target, model and engine.
    """

    source: str
    title: str
    unit: str = "none"
    width: int | None = None
    decimals: int | None = None
    steps: Steps = PLAIN
    mappings: Mapping[str, Shown] = field(default_factory=dict)
    bar: bool = False
    wrapped: bool = False
    linked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """What is true now, a row for each combination of labels; rows of several queries with the same labels are one.

    Attributes:
        columns: in this order; whatever else the queries return is left out.
        sorted_by: title of a column, and whether the largest is first.
    """

    columns: tuple[Column, ...]
    sorted_by: tuple[str, bool] = ("", False)


@dataclass(frozen=True, slots=True)
class Section:
    """A row of a board with its panels, laid out from left to right. Closed ones open at a click."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a board: a label, the series to take its values from, and its name for people."""

    name: str
    label: str
    series: str
    everything: str = ".+"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is marked in all charts over time: a name to switch it by, an expression, a colour, and whether it begins on."""

    name: str
    expr: str
    colour: str
    shown: bool


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `links` are titles and addresses."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...]
    marks: tuple[Mark, ...]
    start: str = "now-30m"
