"""The corpus in the sandbox: a folder of documents, their pages, and the target's tools to read them.

A page begins after a line `--- PAGE 7 ---`, or at a form feed. Without such marks, pages have 100 lines. The target's
document names are looked up in a listing of the folder, so that no name leads out of it.
"""

import asyncio
import fnmatch
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.tasks.corpus import Ranking, words

PAGE_MARK = re.compile(r"--- PAGE (\d{1,6}) ---\s*")
LINES_PER_PAGE = 100
"""For documents without page marks."""
MAX_LISTED = 50
MAX_FOUND = 8
MAX_MATCHES = 20
MAX_LINES = 200
MAX_LINE_CHARS = 300
MAX_SNIPPET_CHARS = 400
MAX_READ_CHARS = 20_000
MAX_COMPARED_NAMES = 5000
"""Up to this number of documents, an unknown name is compared with all names."""


class Page(NamedTuple):
    """A page of a document, without its mark."""

    number: int
    first: int
    """Number of its first line in the document, from 1."""
    lines: Sequence[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


class CorpusFolder:
    """A `Corpus`. The first search builds its index, which all items share."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = str(folder) if folder is not None and folder.is_dir() else ""
        self._indexing = threading.Lock()

    def names(self) -> Sequence[str]:
        return self._names

    def page(self, document: str, number: int) -> str:
        return "\n\n".join(page.text for page in self._pages_of(self._full_name(document), number))

    def tools(self) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return the tools. The target sees their names, docstrings and annotations."""
        return (self.list_documents, self.search_pages, self.grep, self.read_page, self.read_lines)

    async def list_documents(self, pattern: str = "*") -> str:
        """List the names of documents.

        Args:
            pattern: what the name looks like, with * for any characters, such as *1944*.
        """
        found = [name for name in self._names if fnmatch.fnmatchcase(name.lower(), pattern.lower())]
        if not found:
            raise LookupError(
                f"no name of {len(self._names)} documents is like {pattern!r}; * stands for any characters"
            )
        more = f"\n[and {len(found) - MAX_LISTED} more: give a narrower pattern]" if len(found) > MAX_LISTED else ""
        return "\n".join(found[:MAX_LISTED]) + more

    async def search_pages(self, query: str) -> str:
        """Find the pages, of all documents, that fit some words best (BM25), best first.

        Args:
            query: a few telling words that the page should contain.
        """
        found = await asyncio.to_thread(self._search, query)
        if not found:
            raise LookupError("no page has a word of this query; try others, or grep for an exact text")
        return "\n".join(found)

    async def grep(self, text: str, document: str = "") -> str:
        """Find the lines that contain a text as it stands, whatever its case.

        Args:
            text: a part of a line, such as the name of a table's row; no pattern.
            document: the name of a document; all of them if it is left out.
        """
        if not text.strip():
            raise ValueError("give a text to look for")
        names = [self._full_name(document)] if document else self._names
        found = await asyncio.to_thread(self._matches, text, names)
        if not found:
            raise LookupError(f"no line of {document or 'any document'} contains {text!r}; try a shorter part of it")
        more = (
            f"\n[more than {MAX_MATCHES} lines: give a longer text or one document]" if len(found) > MAX_MATCHES else ""
        )
        return "\n".join(found[:MAX_MATCHES]) + more

    async def read_page(self, document: str, page: int) -> str:
        """Read a page of a document.

        Args:
            document: its name.
            page: the number of the page, as search_pages and grep tell it.
        """
        name = self._full_name(document)
        parts = self._pages_of(name, page)
        lines = ", ".join(f"{part.first} to {part.first + len(part.lines) - 1}" for part in parts)
        text = "\n\n".join(part.text for part in parts)
        cut = " (read_lines shows what is left out)" if len(text) > MAX_READ_CHARS else ""
        return f"{name}, page {page}, lines {lines}{cut}:\n{shortened(text, MAX_READ_CHARS)}"

    async def read_lines(self, document: str, start: int = 1, count: int = 80) -> str:
        """Read lines of a document, with their numbers.

        Args:
            document: its name.
            start: the number of the first line.
            count: how many lines, at most 200.
        """
        name = self._full_name(document)
        lines = self._text(name).split("\n")
        if not 1 <= start <= len(lines):
            raise LookupError(f"{name} has lines 1 to {len(lines)}, and none of number {start}")
        last = min(len(lines), start + max(1, min(count, MAX_LINES)) - 1)
        shown = "\n".join(f"{number}: {lines[number - 1]}" for number in range(start, last + 1))
        return f"{name}, lines {start} to {last} of {len(lines)}:\n{shortened(shown, MAX_READ_CHARS)}"

    @cached_property
    def _names(self) -> Sequence[str]:
        """The names of all regular files, without links. Empty without a corpus."""
        # os.walk doesn't follow links to folders.
        files = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names if name[0] != ".")
        return sorted(str(path.relative_to(self.folder)) for path in files if path.is_file() and not path.is_symlink())

    def _full_name(self, document: str) -> str:
        """Return the full name of a document. Its folder may be left out if that is unambiguous."""
        if document in self._names:
            return document
        matches = [name for name in self._names if name.rpartition("/")[2] == document]
        if len(matches) == 1:
            return matches[0]
        if not self.folder:
            raise LookupError("this run has no documents: set data.corpus to their folder")
        near = get_close_matches(document, self._names, 3) if len(self._names) <= MAX_COMPARED_NAMES else []
        names = f"; is it {' or '.join(near)}?" if near else "; list_documents shows the names"
        raise LookupError(f"there is no document {shortened(document, MAX_LINE_CHARS)!r}{names}")

    def _text(self, name: str) -> str:
        """Return the text of a document. Raises LookupError if it isn't UTF-8."""
        try:
            descriptor = os.open(Path(self.folder, name), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, encoding="utf-8", newline=None) as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise LookupError(f"{name} cannot be read as text") from error

    def _pages_of(self, name: str, number: int) -> Sequence[Page]:
        pages = split_pages(self._text(name))
        found = [page for page in pages if page.number == number]
        if not found:
            numbers = sorted(page.number for page in pages)
            raise LookupError(f"{name} has no page {number}; it has pages {numbers[0]} to {numbers[-1]}")
        return found

    def _texts(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield names and texts of those documents that are in UTF-8."""
        for name in names:
            with suppress(LookupError):
                yield name, self._text(name)

    @cached_property
    def _index(self) -> tuple[Ranking, Sequence[tuple[str, int]]]:
        """The ranking of all pages, and the document and number of each page."""
        places: list[tuple[str, int]] = []

        def texts() -> Iterator[str]:
            for name, text in self._texts(self._names):
                for page in split_pages(text):
                    places.append((name, page.number))
                    yield page.text

        return Ranking(texts()), places

    def _search(self, query: str) -> list[str]:
        with self._indexing:
            ranking, places = self._index
        found = []
        for place in ranking.best(query, MAX_FOUND):
            name, number = places[place]
            found.append(f"{name}, page {number}: {_snippet(self.page(name, number), query)}")
        return found

    def _matches(self, text: str, names: Sequence[str]) -> list[str]:
        """Return the lines that contain a text, at most MAX_MATCHES + 1."""
        needle, found = text.casefold(), []
        for name, content in self._texts(names):
            if needle not in content.casefold():
                continue
            for page in split_pages(content):
                for number, line in enumerate(page.lines, start=page.first):
                    if needle in line.casefold():
                        found.append(f"{name}, page {page.number}, line {number}: {line.strip()[:MAX_LINE_CHARS]}")
                        if len(found) > MAX_MATCHES:
                            return found
        return found


NO_CORPUS = CorpusFolder(None)


def split_pages(text: str) -> Sequence[Page]:
    """Return the pages of a text, at least one."""
    pages: list[tuple[int, int, list[str]]] = [(0, 1, [])]
    for place, line in enumerate(text.split("\n"), start=1):
        mark = PAGE_MARK.fullmatch(line)
        if mark:
            pages.append((int(mark[1]), place + 1, []))
        elif line.startswith("\f"):
            pages.append((max(1, pages[-1][0]) + 1, place, [line[1:]]))
        else:
            pages[-1][2].append(line)
    if len(pages) == 1:
        lines = pages[0][2]
        starts = range(0, len(lines), LINES_PER_PAGE)
        return [Page(n, start + 1, lines[start : start + LINES_PER_PAGE]) for n, start in enumerate(starts, start=1)]
    before, first = pages[0], pages[1]
    # The text before the first mark is page 0; before the first form feed, page 1.
    opening = Page(1 if first[0] == 2 and before[2] else 0, 1, before[2])
    return [*([opening] if opening.text else []), *(Page(*page) for page in pages[1:])]


def _snippet(text: str, query: str) -> str:
    """Return the first line of a page and the lines with the most words of a query, in their order."""
    query_words = set(words(query))
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    best = sorted(range(len(lines)), key=lambda place: (-len(query_words & set(words(lines[place]))), place))[:3]
    kept = [lines[place] for place in sorted({0, *best})] if lines else []
    return " / ".join(kept)[:MAX_SNIPPET_CHARS]
