"""HTML as tests look at it: every element with its attributes and its text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset({"meta", "link", "img", "br", "input"})


@dataclass
class Element:
    """An element; `text` is all that is written in it, white space made single."""

    tag: str
    attributes: dict[str, str]
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())


class Markup(HTMLParser):
    """The elements of a page or of a part of one; fails if one is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def all(self, tag: str, name: str | None = None) -> list[Element]:
        """Elements by tag, and by class if one is given."""
        return [
            element for element in self.elements if element.tag == tag and (name is None or name in element.classes)
        ]

    def texts(self, tag: str, name: str | None = None) -> list[str]:
        """What is written in them."""
        return [element.text for element in self.all(tag, name)]

    def figures(self) -> dict[str, str]:
        """What definition lists say."""
        return dict(zip(self.texts("dt"), self.texts("dd"), strict=True))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), "an attribute given twice"
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open[-1].tag == tag, (self._open[-1].tag, tag)
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.words.append(data)
