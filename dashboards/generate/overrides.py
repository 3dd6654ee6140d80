"""Overrides that several dashboards share: fixed colours, dashed limits, axes."""

from collections.abc import Mapping
from typing import Any, Final

from dashboards.generate.colours import NEUTRAL
from dashboards.generate.model import Override

ALL_FIELDS: Final = ".*"

UNFILLED: Final = Override({"custom.fillOpacity": 0}, by_regexp=ALL_FIELDS)
"""For panels where the area below a line has no meaning: many lines, or a logarithmic axis."""


def fix_colour(colour: str) -> Mapping[str, Any]:
    """The property that draws a field in one colour."""
    return {"color": {"mode": "fixed", "fixedColor": colour}}


def shade_query(ref_id: str, colour: str) -> Override:
    """Draws all series of a query in shades of one colour."""
    return Override({"color": {"mode": "shades", "fixedColor": colour}}, by_query=ref_id)


def dash_limit(ref_id: str, *, dash: int = 10) -> Override:
    """Draws all series of a query as uncoloured dashed lines: the limits that the other series are compared with."""
    return Override(
        {
            **fix_colour(NEUTRAL),
            "custom.lineStyle": {"fill": "dash", "dash": [dash, 8]},
            "custom.fillOpacity": 0,
        },
        by_query=ref_id,
    )


def extend_axis(value: float) -> Override:
    """Extends the axis up to a value at least, so that low lines look low."""
    return Override({"custom.axisSoftMax": value}, by_regexp=ALL_FIELDS)
