import re
from math import inf, nan
from xml.etree import ElementTree as ET

from phasewatch.web.landing.charts import CHART_HEIGHT, find_peak, measure_span, render_bar, render_chart
from phasewatch.web.landing.load_history import HISTORY_SLOTS, HISTORY_SPAN_SECONDS, SLOT_SECONDS

LABEL = 'a "label" <b>'


def paths(*lines: list[float], seconds: int = 60, top: float = 10.0) -> list[str]:
    """The strokes of a chart whose lines end now and are unknown before."""
    drawn = render_chart(
        [("running", [nan] * (HISTORY_SLOTS - len(line)) + line) for line in lines], seconds, top, LABEL
    )
    return [path.attrib["d"] for path in ET.fromstring(drawn)]  # noqa: S314  # our own text


def test_a_bar_is_as_full_as_its_ratio_but_at_most_full() -> None:
    for ratio, width in ((0.0, 0.0), (0.4123, 41.2), (1.0, 100.0), (1.7, 100.0), (-1.0, 0.0)):
        (rect,) = ET.fromstring(render_bar("decode", ratio, LABEL))  # noqa: S314
        assert (float(rect.attrib["width"]), rect.attrib["class"]) == (width, "fill decode"), ratio


def test_a_bar_of_an_unknown_ratio_is_an_empty_frame() -> None:
    for ratio in (None, nan, inf):
        frame = ET.fromstring(render_bar("decode", ratio, LABEL))  # noqa: S314
        assert (list(frame), frame.attrib["class"]) == ([], "bar empty"), ratio


def test_labels_of_bars_and_charts_are_text() -> None:
    for drawn in (
        render_bar("decode", 0.5, LABEL),
        render_bar("decode", None, LABEL),
        render_chart([], 60, 1.0, LABEL),
    ):
        image = ET.fromstring(drawn)  # noqa: S314
        assert (image.attrib["role"], image.attrib["aria-label"]) == ("img", LABEL)


def test_a_line_ends_at_the_right_edge_and_is_as_high_as_its_share_of_the_axis() -> None:
    assert paths([0.0, 5.0, 10.0]) == [f"M27 {CHART_HEIGHT}L28 {CHART_HEIGHT // 2}L29 0"]


def test_no_line_crosses_a_gap_and_a_single_value_is_a_dot() -> None:
    assert paths([0.0, 0.0, nan, nan, 10.0, nan, 5.0, 5.0]) == ["M22 100L23 100M26 0h0M28 50L29 50"]


def test_a_run_of_equal_values_is_drawn_by_its_ends() -> None:
    assert paths([1.0] * 20 + [3.0] * 10) == ["M0 90L19 90L20 70L29 70"]


def test_values_beyond_the_axis_are_drawn_at_its_edge() -> None:
    assert paths([-3.0, 20.0]) == ["M28 100L29 0"]


def test_values_older_than_the_time_axis_are_not_drawn() -> None:
    assert paths([9.0] * 100) == ["M0 10L29 10"]
    assert paths([9.0] + [nan] * 50) == []
    assert paths([]) == []


def test_each_line_is_a_path_with_its_class() -> None:
    drawn = render_chart([("running", [1.0] * HISTORY_SLOTS), ("waiting", [0.0] * HISTORY_SLOTS)], 600, 1.0, "")
    assert re.findall(r'<path class="(\w+)"', drawn) == ["running", "waiting"]


def test_the_time_axis_covers_all_that_is_known() -> None:
    for known, covered in (
        (0, 60),
        (1, 60),
        (30, 60),
        (31, 120),
        (60, 120),
        (150, 300),
        (151, 600),
        (HISTORY_SLOTS, 600),
    ):
        first = [nan] * (HISTORY_SLOTS - known) + [1.0] * known
        assert measure_span([[nan] * HISTORY_SLOTS, first]) == covered, known
        assert known * SLOT_SECONDS <= covered <= HISTORY_SPAN_SECONDS, known


def test_the_peak_is_of_what_is_known() -> None:
    assert find_peak([nan, 3.0, 7.0, nan]) == 7.0
    assert find_peak([nan]) is None
