"""Bars and small charts as SVG. What they show is said in their labels too, and nearby in words.

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
"""What the time axis may cover, in seconds."""

ChartLine = tuple[str, Sequence[float]]
"""CSS class of a line, and its values, oldest first; NaN where there are none."""


def render_bar(kind: str, ratio: float | None, label: str) -> str:
    """A bar that is as full as a ratio, or an empty frame where that is not known.

    Args:
        kind: CSS class of the filling.
        ratio: 0 to 1; what lies above fills the bar.
        label: says what it shows, to those who do not see it.
    """
    attributes = f'viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{escape(label)}"'
    if ratio is None or not isfinite(ratio):
        return f'<svg class="bar empty" {attributes}></svg>'
    width = 100 * min(max(ratio, 0.0), 1.0)
    return f'<svg class="bar" {attributes}><rect class="fill {kind}" width="{width:.1f}" height="1"/></svg>'


def measure_span(tracks: Sequence[Sequence[float]]) -> int:
    """Seconds that a time axis has to cover for all that is known to be on it.

    Args:
        tracks: whole histories, oldest first.
    """
    first = min(
        (index for values in tracks for index, value in enumerate(values) if not isnan(value)), default=HISTORY_SLOTS
    )
    known = (HISTORY_SLOTS - first) * SLOT_SECONDS
    return next(seconds for seconds in _AXIS_SECONDS if known <= seconds)


def render_chart(lines: Sequence[ChartLine], seconds: int, top: float, label: str) -> str:
    """Lines over the last minutes. Where nothing is known there is a gap, which no line crosses.

    Args:
        lines: what to draw, the first one below the others.
        seconds: how far back the time axis goes.
        top: value at the upper edge, above 0; the lower edge is 0.
        label: says what it shows, to those who do not see it.
    """
    slots = seconds // SLOT_SECONDS
    drawn = "".join(
        f'<path class="{kind}" d="{"".join(_draw_path(values[-slots:], top))}"/>'
        for kind, values in lines
        if not all(map(isnan, values[-slots:]))
    )
    return (
        f'<svg class="chart" viewBox="0 0 {slots - 1} {CHART_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{drawn}</svg>'
    )


def find_peak(values: Sequence[float]) -> float | None:
    """The highest of the known values."""
    return max((value for value in values if not isnan(value)), default=None)


def _draw_path(values: Sequence[float], top: float) -> Iterator[str]:
    """A stroke for each run of known values; of equal ones in a row only the ends, which draws the same."""
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
