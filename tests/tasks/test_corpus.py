"""The manifest of a corpus: what a name may be, its limits, and the packing of its files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks import corpus
from skillopt_airflow.tasks.corpus import ARCHIVE_BYTES, MAX_FILE_BYTES, CorpusFile, CorpusManifest, corpus_manifest

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
        ([file("a", MAX_FILE_BYTES + 1)], "a has 268,435,457 bytes"),
        ([file(f"{n}", MAX_FILE_BYTES) for n in range(corpus.MAX_CORPUS_BYTES // MAX_FILE_BYTES + 1)], "together"),
    ],
)
def test_an_empty_or_too_large_folder_is_refused(files: list[CorpusFile], why: str) -> None:
    with pytest.raises(DataError, match=why):
        corpus_manifest(files)
