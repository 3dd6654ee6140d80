"""Bars and small charts as SVG. Their labels and the text beside them state the same values.

Sizes are attributes, not styles: the page's Content-Security-Policy forbids the latter.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from math import isfinite, isnan
from typing import Final

from phasewatch.web.landing.load_history import HISTORY_SLOTS, HISTORY_SPAN_SECONDS, SLOT_SECONDS

CHART_HEIGHT: Final = 100
"""Height of a chart in its own coordinates, in which a slot of the history is 1 wide."""

_AXIS_SECONDS: Final = (60, 120, 300, HISTORY_SPAN_SECONDS)
"""Lengths from which that of the time axis is chosen."""

ChartLine = tuple[str, Sequence[float]]
"""CSS class of a line, and its values, oldest first; NaN where unknown."""


def render_bar(kind: str, ratio: float | None, label: str) -> str:
    """Render a bar filled to a ratio, or an empty frame if the ratio is unknown.

    Args:
        kind: CSS class of the filling.
        ratio: 0 to 1; a larger one fills the bar.
        label: text alternative for screen readers.
    """
    attributes = f'viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{escape(label)}"'
    if ratio is None or not isfinite(ratio):
        return f'<svg class="bar empty" {attributes}></svg>'
    width = 100 * min(max(ratio, 0.0), 1.0)
    return f'<svg class="bar" {attributes}><rect class="fill {kind}" width="{width:.1f}" height="1"/></svg>'


def measure_span(tracks: Sequence[Sequence[float]]) -> int:
    """Choose the length of a time axis that covers every known value, in seconds.

    Args:
        tracks: histories of `HISTORY_SLOTS` values, oldest first.
    """
    first = min(
        (index for values in tracks for index, value in enumerate(values) if not isnan(value)), default=HISTORY_SLOTS
    )
    needed = (HISTORY_SLOTS - first) * SLOT_SECONDS
    return next(seconds for seconds in _AXIS_SECONDS if needed <= seconds)


def render_chart(lines: Sequence[ChartLine], seconds: int, top: float, label: str) -> str:
    """Render lines over the last minutes, with gaps where values are unknown.

    Args:
        lines: lines to draw, the first one at the bottom of the stack.
        seconds: length of the time axis.
        top: value at the upper edge, above 0; the lower edge is 0.
        label: text alternative for screen readers.
    """
    slots = seconds // SLOT_SECONDS
    paths = "".join(
        f'<path class="{kind}" d="{"".join(_draw_path(values[-slots:], top))}"/>'
        for kind, values in lines
        if not all(map(isnan, values[-slots:]))
    )
    return (
        f'<svg class="chart" viewBox="0 0 {slots - 1} {CHART_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{paths}</svg>'
    )


def find_peak(values: Sequence[float]) -> float | None:
    """Find the highest known value; None if all are unknown."""
    return max((value for value in values if not isnan(value)), default=None)


def _draw_path(values: Sequence[float], top: float) -> Iterator[str]:
    """Draw a stroke for each run of known values. Inner points between equal values are left out."""
    for missing, run in groupby(enumerate(values), lambda point: isnan(point[1])):
        if missing:
            continue
        points = [(at, round(CHART_HEIGHT - CHART_HEIGHT * min(max(value / top, 0.0), 1.0))) for at, value in run]
        yield f"M{points[0][0]} {points[0][1]}"
        if len(points) == 1:
            yield "h0"
        for before, (at, y), after in zip(points, points[1:], [*points[2:], None], strict=False):
            if after is None or not before[1] == y == after[1]:
                yield f"L{at} {y}"
