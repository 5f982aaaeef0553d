"""Copies of corpora on a host: made once, whole or not at all, and again if something is missing."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.sandbox.staging import KEPT_DAYS, is_complete, staged_corpus
from skillopt_airflow.store.corpora import SourceCorpus

CONTENTS = {"a.txt": b"alpha", "1944/deep/b.txt": b"beta"}


class Counted(SourceCorpus):
    """A corpus that counts how often it is fetched; `damage` changes its archives."""

    def __init__(self, folder: Path, damage: Callable[[bytes], bytes] = lambda archive: archive) -> None:
        client: Any = None
        super().__init__(folder.name, folder.parent, client)
        self.damage, self.fetched = damage, 0

    def archives(self) -> Iterator[bytes]:
        self.fetched += 1
        time.sleep(0.05)
        yield from map(self.damage, super().archives())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, content in CONTENTS.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "source"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_corpus_is_staged_once_readable_for_any_user_of_a_container(source: Path, tmp_path: Path) -> None:
    corpus = Counted(source)
    staged = staged_corpus(corpus, tmp_path)
    assert contents(staged) == CONTENTS
    assert staged_corpus(corpus, tmp_path) == staged
    assert corpus.fetched == 1
    assert {path.stat().st_mode & 0o777 for path in staged.rglob("*") if path.is_file()} == {0o444}
    assert {path.stat().st_mode & 0o777 for path in (staged, *staged.rglob("*")) if path.is_dir()} == {0o755}
    assert staged.parent.stat().st_mode & 0o777 == 0o700


def test_of_tasks_at_the_same_time_one_stages_it_and_the_others_wait(source: Path, tmp_path: Path) -> None:
    corpus = Counted(source)
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda _: staged_corpus(corpus, tmp_path), range(6)))
    assert len(found) == corpus.fetched == 1


@pytest.mark.parametrize("harm", ["missing", "shorter", "link"])
def test_a_copy_that_lost_something_is_made_again(source: Path, tmp_path: Path, harm: str) -> None:
    corpus = Counted(source)
    file = staged_corpus(corpus, tmp_path) / "a.txt"
    file.unlink()
    if harm == "shorter":
        file.write_bytes(b"alp")
    if harm == "link":
        file.symlink_to(source / "a.txt")
    assert not is_complete(file.parent, corpus.manifest)
    assert contents(staged_corpus(corpus, tmp_path)) == CONTENTS
    assert corpus.fetched == 2
    assert is_complete(file.parent, corpus.manifest)


def test_another_corpus_has_another_folder_and_one_unused_for_long_is_removed(source: Path, tmp_path: Path) -> None:
    first, kept = Counted(source), tmp_path / "kept"
    kept.mkdir()
    (kept / "c.txt").write_bytes(b"gamma")
    old, young = staged_corpus(first, tmp_path), staged_corpus(Counted(kept), tmp_path)
    long_ago = time.time() - (KEPT_DAYS + 1) * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    (kept / "c.txt").write_bytes(b"delta")
    newest = staged_corpus(Counted(kept), tmp_path)
    assert not old.exists()
    assert young.exists()
    assert newest.exists()
    assert contents(staged_corpus(first, tmp_path)) == CONTENTS


def test_what_is_not_what_the_manifest_says_is_never_mounted(source: Path, tmp_path: Path) -> None:
    damaged = Counted(source, lambda archive: archive.replace(b"alpha", b"ALPHA"))
    with pytest.raises(SandboxError, match=r"a\.txt"):
        staged_corpus(damaged, tmp_path)
    assert contents(staged_corpus(Counted(source), tmp_path)) == CONTENTS


def test_a_folder_of_somebody_else_is_not_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / f"skillopt-corpora-{os.getuid()}").symlink_to(source)
    with pytest.raises(SandboxError, match="TMPDIR"):
        staged_corpus(Counted(source), tmp_path)
