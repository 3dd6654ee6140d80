import re
from importlib.resources import files
from itertools import product

from tests.support.live_page import UP, render_everything, render_html
from tests.support.markup import Markup

STYLE = (files("phasewatch.web.landing") / "static" / "style.css").read_text(encoding="utf-8")
SCRIPT = (files("phasewatch.web.landing") / "static" / "live.js").read_text(encoding="utf-8")

READ = ["soft", "ink", "decode", "running", "limited", "held", "good", "bad"]
"""Colours in which text is written on the page and on cards."""

PAIRS = [
    *product(READ, ["page", "card"]),
    ("ink", "quiet-ground"),
    ("good", "good-ground"),
    ("limited", "limited-ground"),
    ("bad", "bad-ground"),
]
FILLINGS = [*product(["prefill", "decode", "memory", "held"], ["track"]), ("edge", "card"), ("edge", "page")]


def themes() -> dict[str, dict[str, str]]:
    """The colours of both themes, by name."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text)) for text in STYLE.split("prefers-color-scheme")
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    """Relative luminance, after WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_text_has_the_contrast_of_wcag_aa() -> None:
    for theme in ("light", "dark"):
        colours = themes()[theme]
        weak = {pair: contrast(*(colours[name] for name in pair)) for pair in PAIRS}
        assert {pair: found for pair, found in weak.items() if found < 4.5} == {}, theme


def greyed(colour: str, page: str) -> str:
    """A colour as it is shown while numbers are old: without hue, and the page's shines through."""
    (opacity,) = re.findall(r"\.old > \S+ \{ opacity: ([\d.]+); filter: grayscale\(1\); \}", STYLE)
    own, behind = (
        sum(int(hexes[at : at + 2], 16) * weight for at, weight in ((1, 0.2126), (3, 0.7152), (5, 0.0722)))
        for hexes in (colour, page)
    )
    return "#" + 3 * f"{round(own * float(opacity) + behind * (1 - float(opacity))):02x}"


def test_greyed_text_has_a_contrast_of_3() -> None:
    for theme in ("light", "dark"):
        colours = themes()[theme]
        weak = {pair: contrast(*(greyed(colours[name], colours["page"]) for name in pair)) for pair in PAIRS}
        assert {pair: found for pair, found in weak.items() if found < 3} == {}, theme


def test_bars_have_the_contrast_of_wcag_aa_against_their_tracks() -> None:
    for theme in ("light", "dark"):
        colours = themes()[theme]
        weak = {pair: contrast(*(colours[name] for name in pair)) for pair in FILLINGS}
        assert {pair: found for pair, found in weak.items() if found < 3} == {}, theme


def test_every_class_of_the_page_has_a_style_and_every_style_is_used() -> None:
    pages = (render_everything(), render_html(UP), render_html(UP, UP))
    used = {name for text in pages for element in Markup(text).elements for name in element.classes}
    styled = set(re.findall(r"\.([a-z][a-z-]*)", STYLE))
    by_script = set(re.findall(r'classList\.add\("(\w+)"\)', SCRIPT))
    assert used - styled == {"phases", "quiet"}
    assert styled - used == by_script


def test_style_and_script_load_nothing_from_elsewhere_and_write_no_html() -> None:
    for name, text in {"style.css": STYLE, "live.js": SCRIPT}.items():
        assert re.findall(r"https?:|url\(|@import|import\(|//cdn", text) == [], name
        assert re.findall(r"innerHTML|eval\(|document\.write|insertAdjacentHTML|\.style\b", text) == [], name
