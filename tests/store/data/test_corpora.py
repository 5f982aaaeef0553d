"""Corpora where users keep them, and stored: complete under their hash, and without what leads out of their folder."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import DataError, ObjectMissing, StoreError
from skillopt_airflow.store.data.corpora import SourceCorpus, StoredCorpus, store_corpus
from skillopt_airflow.store.keys import CorpusKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.corpus import CorpusManifest
from tests.training.local_store import LocalStore

CONTENTS = {"a.txt": b"alpha", "1944/b.txt": b"beta", "1944/c.txt": b""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    for name, content in CONTENTS.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return made


def at(folder: Path) -> SourceCorpus:
    client: Any = None
    return SourceCorpus(folder.name, folder.parent, client)


def unpacked(corpus: SourceCorpus | StoredCorpus) -> dict[str, bytes]:
    found = {}
    for archive in corpus.archives():
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                content = tar.extractfile(member)
                found[member.name] = b"" if content is None else content.read()
    return found


def test_a_folder_is_stored_once_under_the_hash_of_what_it_holds(folder: Path) -> None:
    store, written = LocalStore(), []
    store.before_write = written.append
    sha256 = store_corpus(store, "own/", at(folder))
    assert unpacked(StoredCorpus(store, "own/", sha256)) == CONTENTS
    assert [file.name for file in StoredCorpus(store, "own/", sha256).manifest.files] == sorted(CONTENTS)
    keys = CorpusKeys("own/", sha256)
    assert written == [keys.archive(0), keys.manifest] == [f"own/corpora/{sha256}/0000.tar", keys.manifest]
    assert store_corpus(store, "own/", at(folder)) == sha256
    # Nothing but that it is in use.
    assert written[2:] == [keys.manifest]
    (folder / "a.txt").write_bytes(b"other")
    assert store_corpus(store, "own/", at(folder)) != sha256
    assert unpacked(StoredCorpus(store, "own/", sha256)) == CONTENTS


def test_a_corpus_of_which_a_part_was_stored_is_stored_again(folder: Path) -> None:
    store = LocalStore()
    keys = CorpusKeys("", store_corpus(store, "", at(folder)))
    del store.objects[keys.manifest]
    with pytest.raises(ObjectMissing):
        _ = StoredCorpus(store, "", keys.sha256).manifest
    assert store_corpus(store, "", at(folder)) == keys.sha256
    assert isinstance(store.get_model(keys.manifest, CorpusManifest), CorpusManifest)


def test_what_begins_with_a_dot_is_left_out(folder: Path) -> None:
    before = at(folder).manifest.sha256
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_bytes(b"")
    (folder / ".cache" / "away").symlink_to("/etc")
    (folder / "1944" / ".DS_Store").write_bytes(b"")
    assert at(folder).manifest.sha256 == before


def test_links_and_what_is_no_file_are_refused(folder: Path) -> None:
    (folder.parent / "outside.txt").write_bytes(b"secret")
    link = folder / "1944" / "link"
    for target in ("/etc/passwd", "../outside.txt", "../a.txt", "/nowhere", str(folder.parent)):
        link.symlink_to(target)
        with pytest.raises(DataError, match=rf"data\.corpus = corpus: .*1944/link is a link to {target}"):
            _ = at(folder).manifest
        link.unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="pipe is not a plain file"):
        _ = at(folder).manifest


def test_a_file_that_changes_meanwhile_or_becomes_a_link_is_not_stored(folder: Path) -> None:
    corpus, store = at(folder), LocalStore()
    assert corpus.manifest.files
    (folder / "a.txt").write_bytes(b"gamma")
    with pytest.raises(DataError, match=r"a\.txt changed"):
        store_corpus(store, "", corpus)
    assert not [key for key in store.objects if key.endswith("manifest.json")]
    (folder.parent / "outside.txt").write_bytes(b"alpha")
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to(folder.parent / "outside.txt")
    with pytest.raises(DataError, match=r"a\.txt"):
        unpacked(corpus)


@pytest.mark.parametrize("address", ["nowhere", "corpus/a.txt", "ftp://host/corpus"])
def test_an_address_that_leads_to_no_folder_is_named(folder: Path, address: str) -> None:
    client: Any = None
    with pytest.raises(DataError, match=address):
        _ = SourceCorpus(address, folder.parent, client).manifest


@pytest.mark.slow
def test_a_corpus_in_a_bucket_is_the_same_as_in_a_folder(folder: Path, store: ObjectStore) -> None:
    for name, content in CONTENTS.items():
        store.put_bytes(f"data/corpus/{name}", content)
    store.put_bytes("data/corpus/1944/", b"")
    store.put_bytes("data/corpus/.cache/lock", b"")
    store.put_bytes("data/corpus2/other.txt", b"")
    corpus = SourceCorpus(f"s3://{store.bucket}/data/corpus", folder, store._client)
    assert corpus.manifest.sha256 == at(folder).manifest.sha256
    sha256 = store_corpus(store, "", corpus)
    assert unpacked(StoredCorpus(store, "", sha256)) == CONTENTS
    store.put_bytes("data/corpus/../../up.txt", b"")
    with pytest.raises((DataError, StoreError), match="path below the folder"):
        _ = SourceCorpus(f"s3://{store.bucket}/data/corpus", folder, store._client).manifest
    with pytest.raises(DataError, match="holds no file"):
        _ = SourceCorpus(f"s3://{store.bucket}/data/none", folder, store._client).manifest
