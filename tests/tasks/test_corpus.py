import math
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks import corpus
from skillopt_airflow.tasks.corpus import (
    ARCHIVE_BYTES,
    MAX_FILE_BYTES,
    CorpusFile,
    CorpusManifest,
    FoundDocument,
    Ranking,
    corpus_manifest,
    listed_documents,
    words,
)

SIZES = st.lists(st.integers(0, ARCHIVE_BYTES * 3 // 2), min_size=1, max_size=12)


def file(name: str, size: int = 1) -> CorpusFile:
    return CorpusFile(name=name, size=size, sha256=f"of {name}")


def some(sizes: list[int]) -> list[CorpusFile]:
    return [file(f"{place % 3}/{place}", size) for place, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../a", "a/../b", "a/./b", "a//b", "a/", "a\\b", "a\nb", "a\udcff", "a" * 501]
)
def test_a_name_is_a_path_below_the_folder(name: str) -> None:
    for allowed in ("1944/a b.txt", "..a", "é/ü.md", "a" * 500):
        assert file(allowed).name == allowed
    with pytest.raises(ValidationError, match="path below the folder"):
        file(name)


@given(SIZES)
def test_every_file_is_in_one_archive_and_few_archives_are_large(sizes: list[int]) -> None:
    files = some(sizes)
    manifest = corpus_manifest(files)
    groups = manifest.packed()
    assert [one for group in groups for one in group] == sorted(files, key=lambda one: one.name)
    assert all(group and sum(one.size for one in group[:-1]) <= ARCHIVE_BYTES for group in groups)
    assert all(sum(one.size for one in group) <= ARCHIVE_BYTES for group in groups if len(group) > 1)
    # The hash is that of the files in any order and packing.
    assert corpus_manifest(files[::-1]).sha256 == manifest.sha256
    assert CorpusManifest(files=manifest.files, archives=(len(files),)).sha256 == manifest.sha256
    changed = [files[0].model_copy(update={"sha256": "other"}), *files[1:]]
    assert corpus_manifest(changed).sha256 != manifest.sha256


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "holds no file"),
        ([file("a", MAX_FILE_BYTES + 1)], "a has more than"),
        ([file(f"{n}", MAX_FILE_BYTES) for n in range(corpus.MAX_CORPUS_BYTES // MAX_FILE_BYTES + 1)], "together"),
    ],
)
def test_an_empty_or_too_large_folder_is_refused(files: list[CorpusFile], why: str) -> None:
    with pytest.raises(DataError, match=why):
        corpus_manifest(files)


BULLETINS = (
    "Receipts of the customs in March. Customs receipts rose.",
    "Receipts of the excise in March.",
    "Expenditure for roads, by month. Roads took a third of it.",
    "",
)
TEXTS = st.lists(st.text(alphabet="abc 1é", max_size=12), max_size=6)


def by_formula(documents: list[str], query: str) -> list[float]:
    """BM25 as Lucene counts it, with k1 = 1.5 and b = 0.75, without an index."""
    split = [words(document) for document in documents]
    average = sum(map(len, split)) / max(1, len(split))
    scores = []
    for document in split:
        total = 0.0
        for word in dict.fromkeys(words(query)):
            holding = sum(word in other for other in split)
            rarity = math.log(1 + (len(split) - holding + 0.5) / (holding + 0.5))
            often = document.count(word)
            total += rarity * often / (often + 1.5 * (0.25 + 0.75 * len(document) / max(average, 1e-9)))
        scores.append(total)
    return scores


@pytest.mark.parametrize(
    ("query", "best"),
    [("customs receipts", [0, 1]), ("CUSTOMS: receipts?", [0, 1]), ("march", [1, 0]), ("tobacco", []), ("!?", [])],
)
def test_the_best_documents_come_first_and_others_not_at_all(query: str, best: list[int]) -> None:
    assert Ranking(BULLETINS).best(query, 10) == best


def test_of_equally_good_documents_the_first_comes_first_up_to_the_count() -> None:
    ranking = Ranking(["a b", "c", "a b", "a b"])
    assert ranking.best("a", 2) == [0, 2]


@given(TEXTS, st.text(alphabet="abc 1é", max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_order_is_that_of_the_published_formula(documents: list[str], query: str) -> None:
    expected = by_formula(documents, query)
    found = Ranking(documents).best(query, len(documents))
    assert set(found) == {place for place, score in enumerate(expected) if score > 0}
    assert all(expected[one] >= expected[other] - 1e-4 for one, other in pairwise(found))


@pytest.mark.nightly
def test_a_ranking_does_not_depend_on_the_order_of_a_set() -> None:
    # The package of the index is loaded only for an index.
    program = (
        "import sys\n"
        "from skillopt_airflow.tasks.corpus import Ranking\n"
        "assert 'numpy' not in sys.modules, 'loaded'\n"
        "documents = [f'w{n % 7} w{n % 5} w{n % 3}' for n in range(60)]\n"
        "print(Ranking(documents).best('w0 w1 w2 w3 w4 w5 w6', 60))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


PAGE = FoundDocument(title="Council", url="https://a.example/1", date="2026-01-31", text="The mayor is A. Lind.")


def test_a_document_is_shown_with_what_is_known_of_it() -> None:
    assert PAGE.as_text() == "title: Council\nurl: https://a.example/1\ndate: 2026-01-31\nThe mayor is A. Lind."
    assert PAGE.as_text(9).endswith("The mayor [...]")
    assert PAGE.as_text(len(PAGE.text)) == PAGE.as_text()
    assert listed_documents([PAGE, FoundDocument(text="alone")]).endswith("Lind.\n\n[2]\nalone")
