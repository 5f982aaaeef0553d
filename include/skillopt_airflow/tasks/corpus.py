"""Corpora (folders of documents that all items of a benchmark share) and the search in documents."""

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from pydantic import Field, field_validator

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.text import Text
from skillopt_airflow.core.values.types import Value, canonical_json, sha256

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Limit per file: files are packed and checked in memory."""
MAX_CORPUS_BYTES = 10 * 1024**3
"""Limit of the whole corpus: each host that runs sandboxes keeps a copy."""
MAX_FILES = 100_000
MAX_NAME_CHARS = 500
ARCHIVE_BYTES = 64 * 1024 * 1024
"""Size from which the next file starts a new archive."""
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")


class CorpusFile(Value):
    """One file of a corpus; its name is the path below the corpus's folder."""

    name: str
    size: int = Field(ge=0)
    """In bytes."""
    sha256: str

    @field_validator("name")
    @classmethod
    def _stays_below(cls, name: str) -> str:
        if reason := name_flaw(name):
            raise ValueError(reason)
        return name


class CorpusManifest(Document):
    """The files of a corpus, sorted by name, and their division into archives."""

    files: tuple[CorpusFile, ...]
    archives: tuple[int, ...]
    """The number of files in each archive; archives follow the order of `files`."""

    @cached_property
    def sha256(self) -> str:
        """A hash of the content; it doesn't depend on the packing."""
        return sha256(canonical_json([file.model_dump(mode="json") for file in self.files]))

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def packed(self) -> Sequence[Sequence[CorpusFile]]:
        ends = [0, *accumulate(self.archives)]
        return [self.files[start:end] for start, end in pairwise(ends)]


def corpus_manifest(files: Sequence[CorpusFile]) -> CorpusManifest:
    """Return the manifest of a folder's files; raise DataError if there are none, too many, or too large ones."""
    ordered = sorted(files, key=lambda file: file.name)
    if not ordered:
        raise DataError("the folder holds no file")
    if len(ordered) > MAX_FILES:
        raise DataError(f"it has {len(ordered):,} files; a corpus can have at most {MAX_FILES:,}")
    for file in ordered:
        if file.size > MAX_FILE_BYTES:
            raise DataError(f"{file.name} has more than {MAX_FILE_BYTES:,} bytes, the limit of a file. Split it")
    manifest = CorpusManifest(files=tuple(ordered), archives=_archives(ordered))
    if manifest.size > MAX_CORPUS_BYTES:
        raise DataError(f"its files together have {manifest.size:,} bytes; the limit is {MAX_CORPUS_BYTES:,}")
    return manifest


def name_flaw(name: str) -> str:
    """Return the reason why a path can't name a file below a folder, or an empty string."""
    parts = name.split("/")
    if not all(_PLAIN.fullmatch(part) and part not in {".", ".."} for part in parts) or len(name) > MAX_NAME_CHARS:
        return (
            f"{name[:MAX_NAME_CHARS]!r}: expected a path below the folder, without .., backslashes and control "
            f"characters, of at most {MAX_NAME_CHARS} characters"
        )
    return ""


def _archives(files: Sequence[CorpusFile]) -> tuple[int, ...]:
    counts, filled = [0], 0
    for file in files:
        if counts[-1] and filled + file.size > ARCHIVE_BYTES:
            counts.append(0)
            filled = 0
        counts[-1] += 1
        filled += file.size
    return tuple(counts)


class FoundDocument(Value):
    """A search result: a page's metadata, and its text or an excerpt."""

    title: Text = ""
    url: Text = ""
    date: Text = ""
    """In the format of its source."""
    text: Text = ""

    def as_text(self, characters: int | None = None) -> str:
        """Return one line per field that isn't empty, then the text, cut after `characters` characters."""
        lines = [f"{name}: {value}" for name in ("title", "url", "date") if (value := getattr(self, name))]
        cut = characters is not None and len(self.text) > characters
        return "\n".join((*lines, f"{self.text[:characters]} [...]" if cut else self.text)).strip()


def listed_documents(documents: Sequence[FoundDocument], characters: int | None = None) -> str:
    return "\n\n".join(f"[{place}]\n{one.as_text(characters)}" for place, one in enumerate(documents, 1))


_WORD = re.compile(r"[^\W_]+")


class Ranking:
    """A search index (BM25) over documents. Building it takes as long as reading them; queries are fast."""

    def __init__(self, documents: Iterable[str]) -> None:
        # Imported here because it loads numpy, which only a search needs.
        from bm25s import BM25

        self._numbers: dict[str, int] = {}
        """A number for each word of the documents."""
        coded = [self._coded(document) for document in documents]
        self._index = None
        if self._numbers:
            # By default the package picks any installed backend, and their sums differ in the last digit.
            self._index = BM25(method="lucene", backend="numpy", csc_backend="numpy")
            self._index.index((coded, self._numbers), create_empty_token=False, show_progress=False)

    def best(self, query: str, count: int) -> Sequence[int]:
        """Return the indices of up to `count` documents that have a word of the query, best first; ties by index."""
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
