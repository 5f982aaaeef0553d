"""Documents that a search finds, and their ranking by BM25."""

import re
from array import array
from collections.abc import Iterable, Sequence

from skillopt_airflow.core.hidden_text import Text
from skillopt_airflow.core.types import Value


class FoundDocument(Value):
    """A page, by what is known of it before, or instead of, opening it."""

    title: Text = ""
    url: Text = ""
    date: Text = ""
    """As its source gives it; empty if it gives none."""
    text: Text = ""

    def as_text(self, characters: int | None = None) -> str:
        """Return a line each for what there is, the text last and cut behind so many characters."""
        lines = [f"{name}: {value}" for name in ("title", "url", "date") if (value := getattr(self, name))]
        cut = characters is not None and len(self.text) > characters
        return "\n".join((*lines, f"{self.text[:characters]} [...]" if cut else self.text)).strip()


def listed_documents(documents: Sequence[FoundDocument], characters: int | None = None) -> str:
    return "\n\n".join(f"[{place}]\n{one.as_text(characters)}" for place, one in enumerate(documents, 1))


_WORD = re.compile(r"[^\W_]+")


class Ranking:
    """An index of documents: made once, which takes as long as reading them all, and asked any number of times."""

    def __init__(self, documents: Iterable[str]) -> None:
        # It brings numpy along, which only a search needs.
        from bm25s import BM25

        self._numbers: dict[str, int] = {}
        """The words of all documents, numbered."""
        coded = [self._coded(document) for document in documents]
        self._index = None
        if self._numbers:
            # The package would take other backends where it finds them, whose sums differ in the last digit.
            self._index = BM25(method="lucene", backend="numpy", csc_backend="numpy")
            self._index.index((coded, self._numbers), create_empty_token=False, show_progress=False)

    def best(self, query: str, count: int) -> Sequence[int]:
        """Return the places of up to `count` documents that have a word of the query, best first.

        Of equally good ones the first comes first.
        """
        asked = [self._numbers[word] for word in dict.fromkeys(words(query)) if word in self._numbers]
        if self._index is None or not asked:
            return []
        scores = self._index.get_scores_from_ids(asked)
        places = (-scores).argsort(kind="stable")[:count].tolist()
        return [place for place in places if scores[place] > 0]

    def _coded(self, document: str) -> "array[int]":
        return array("I", (self._numbers.setdefault(word, len(self._numbers)) for word in words(document)))


def words(text: str) -> Sequence[str]:
    return _WORD.findall(text.casefold())
