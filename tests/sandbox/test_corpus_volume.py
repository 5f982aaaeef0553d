"""The volume of a corpus on an engine of its own: filled once, and again only if it was not filled to its end."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from skillopt_airflow.sandbox.corpus_volume import COMPLETE, CORPUS_LABEL, FOLDER, filled_volume
from skillopt_airflow.store.corpora import SourceCorpus


class Engine:
    """The volumes of an engine, and the containers that have one in the corpus's place."""

    def __init__(self, puts: int = 10**9) -> None:
        self.volumes: dict[str, dict[str, bytes]] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.puts = puts
        """Archives that it takes until it goes away."""

    def create_volume(self, name: str, driver: str, labels: dict[str, str]) -> None:
        assert driver == "local"
        self.labels.setdefault(name, labels)
        self.volumes.setdefault(name, {})

    @contextmanager
    def keeper(self, volume: str) -> Iterator[str]:
        yield volume

    def put_archive(self, container: str, path: str, archive: bytes) -> None:
        if not self.puts:
            raise ConnectionError("the engine went away")
        self.puts -= 1
        assert path == FOLDER
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                self.volumes[container][member.name] = b"" if content is None else content.read()

    def get_archive(self, container: str, path: str) -> tuple[Any, dict[str, Any]]:
        if path.removeprefix(f"{FOLDER}/") not in self.volumes[container]:
            raise NotFound(path)
        return io.BytesIO(), {}


@pytest.fixture
def corpus(tmp_path: Path) -> SourceCorpus:
    (tmp_path / "source" / "1944").mkdir(parents=True)
    (tmp_path / "source" / "1944" / "a.txt").write_bytes(b"alpha")
    client: Any = None
    return SourceCorpus("source", tmp_path, client)


def test_a_volume_is_filled_once_and_bears_the_hash(corpus: SourceCorpus, tmp_path: Path) -> None:
    engine = Engine()
    name = filled_volume(engine, corpus, tmp_path, engine.keeper)
    assert engine.volumes == {name: {"1944/a.txt": b"alpha", COMPLETE: b""}}
    assert engine.labels[name] == {CORPUS_LABEL: corpus.manifest.sha256}
    engine.puts = 0
    assert filled_volume(engine, corpus, tmp_path, engine.keeper) == name


def test_a_volume_that_was_filled_in_part_is_filled_again(corpus: SourceCorpus, tmp_path: Path) -> None:
    engine = Engine(puts=1)
    with pytest.raises(ConnectionError):
        filled_volume(engine, corpus, tmp_path, engine.keeper)
    engine.puts = 2
    name = filled_volume(engine, corpus, tmp_path, engine.keeper)
    assert set(engine.volumes[name]) == {"1944/a.txt", COMPLETE}
