"""Ranking documents by BM25, for benchmarks whose targets search among documents."""

import re
from array import array
from collections.abc import Iterable, Sequence

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
    """Return the words of a text, in their order and without case: runs of letters and digits."""
    return _WORD.findall(text.casefold())
