"""What a page or a drawing of a report holds."""

from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "link", "br", "img", "input", "base"}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


class Page(HTMLParser):
    """The elements of a page with their attributes, in the order of the document, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], bool]] = []
        self.comments: list[str] = []
        self.texts: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), "svg" in self.unclosed))
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), "svg" in self.unclosed))

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes, _ in self.elements if "id" in attributes]

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes, _ in self.elements if tag == "a"]

    def shape(self) -> tuple[list[Any], set[Any]]:
        """Names of the elements and attributes; of a plot which there are, as their number depends on its scales."""
        named = [(tag, tuple(attributes), drawn) for tag, attributes, drawn in self.elements]
        outside = [(tag, attributes) for tag, attributes, drawn in named if not drawn]
        return outside, {(tag, attributes) for tag, attributes, drawn in named if drawn}
