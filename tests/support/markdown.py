"""The pages of the documentation as tests read them: text, code, tables and links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")))

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def page(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def words(name: str) -> str:
    """The same with single spaces for all white space, so that line breaks do not matter."""
    return " ".join(page(name).split())


def fences(text: str, language: str) -> list[str]:
    """The contents of the code blocks in a language; of those without one if it is empty."""
    return [block[2] for block in FENCE.finditer(text) if block[1] == language]


def tables(text: str, *head: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of all tables whose first column heads are these, each with the heading above the table."""
    heading, inside = "", False
    for line in FENCE.sub("", text).splitlines():
        if match := _HEADING.match(line):
            heading = match[1]
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif tuple(cells[: len(head)]) == head:
            inside = True
        elif inside and not cells[0].startswith("---"):
            yield heading, cells


def code(cell: str) -> str:
    """The content of a cell that is one piece of code."""
    match = re.fullmatch(r"(`+)(.+?)\1", cell)
    assert match, f"{cell!r} is not code"
    return match[2]


def every_code(cell: str) -> list[str]:
    """All pieces of code in a text."""
    return re.findall(r"`([^`]+)`", cell)


def links(path: Path) -> list[str]:
    """Where the links of a page lead to."""
    return _LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = _HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(path: Path, link: str) -> bool:
    """Whether a relative link of a page names a file or a heading that is not there."""
    name, _, anchor = link.partition("#")
    goal = path.parent / name if name else path
    return not goal.exists() or bool(anchor and anchor not in anchors(goal))
