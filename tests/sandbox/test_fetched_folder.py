"""What a task takes from a container far away, by an engine of the test's own that fails in between."""

import io
import logging
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, NotFound
from requests import RequestException
from requests.exceptions import ChunkedEncodingError

from skillopt_airflow.sandbox import docker_without_shared_files as remote
from skillopt_airflow.sandbox.docker_limits import task_seconds
from skillopt_airflow.sandbox.docker_without_shared_files import FetchedFolder, RemoteSite
from skillopt_airflow.sandbox.labels import EXPIRES_LABEL, GRACE_SECONDS
from skillopt_airflow.sandbox.staging import TaskFolder

ROW = b'{"item_id": "a", "status": "ok", "files": ["out.txt"]}\n'
ROWS, FILES = "/out/trajectories.jsonl", "/out/files"


def tar_of(contents: Mapping[str, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return body.getvalue()


class Client:
    """Gives the archives of a container; `errors` come in their place, each once, or halfway through them."""

    def __init__(self) -> None:
        self.archives = {ROWS: tar_of({"trajectories.jsonl": ROW}), FILES: tar_of({"files/0/out.txt": b"made"})}
        self.errors: dict[str, Exception] = {}
        self.halfway: dict[str, Exception] = {}
        self.asked: list[str] = []

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        self.asked.append(path)
        if path in self.errors:
            raise self.errors.pop(path)
        return self._chunks(path), {"size": len(self.archives[path]), "mtime": "now"}

    def _chunks(self, path: str) -> Iterator[bytes]:
        yield self.archives[path][:600]
        if path in self.halfway:
            raise self.halfway.pop(path)
        yield self.archives[path][600:]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def stage(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedFolder:
    monkeypatch.setattr(remote, "FETCH_SECONDS", 0.0)
    (tmp_path / "out" / "files" / "0").mkdir(parents=True)
    return FetchedFolder(tmp_path, client, "keeper", 10_000)


def left(stage: FetchedFolder) -> Path:
    return stage.outputs / "files" / "0" / "out.txt"


def test_rows_come_with_the_files_that_they_name_and_once(client, stage):
    stage.fetch()
    assert stage.trajectories.read_bytes() == ROW
    assert left(stage).read_bytes() == b"made"
    stage.fetch()
    assert client.asked == [ROWS, FILES, ROWS]


TRANSIENT = [APIError("busy"), RequestException("timed out"), ChunkedEncodingError("broke off")]


@pytest.mark.parametrize("path", [ROWS, FILES])
@pytest.mark.parametrize("where", ["errors", "halfway"])
@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: type(error).__name__)
def test_a_row_waits_for_its_files_while_the_engine_fails(client, stage, caplog, path, where, error):
    getattr(client, where)[path] = error
    stage.fetch()
    assert not stage.trajectories.exists()
    assert "Refused" not in caplog.text
    assert "asked again" in caplog.text

    stage.fetch()
    assert stage.trajectories.read_bytes() == ROW
    assert left(stage).read_bytes() == b"made"


@pytest.mark.parametrize("path", [ROWS, FILES])
def test_what_the_engine_does_not_give_of_an_ended_container_is_an_error(client, stage, path):
    stage.ended = True
    client.errors[path] = APIError("busy")
    with pytest.raises(APIError, match="busy"):
        stage.fetch()
    assert not stage.trajectories.exists()


def test_what_is_not_there_is_no_error(client, stage):
    client.errors[ROWS] = NotFound("no rows yet")
    stage.fetch()
    assert not stage.trajectories.exists()
    client.errors[FILES] = NotFound("no files")
    stage.fetch()
    assert stage.trajectories.read_bytes() == ROW


def test_files_that_the_container_spoilt_are_refused_and_its_row_counts(client, stage, caplog):
    client.archives[FILES] = tar_of({"files/0/out.txt": b"x" * 10_001})
    stage.fetch()
    assert stage.trajectories.read_bytes() == ROW
    assert not left(stage).exists()
    assert "Refused the container's output: more than 10000 bytes" in caplog.text


def test_rows_that_the_container_spoilt_are_refused_once(client, stage, caplog):
    caplog.set_level(logging.WARNING)
    client.archives[ROWS] = tar_of({})
    stage.fetch()
    stage.fetch()
    assert not stage.trajectories.exists()
    assert [message for message in caplog.messages if "not a plain file" in message] == [
        "Refused the container's output: trajectories.jsonl is not a plain file"
    ]


@pytest.mark.parametrize(("one_item_each", "containers"), [(True, 3), (False, 1)])
def test_what_a_task_has_on_the_engine_is_its_own_as_long_as_it_may_run(workload, tmp_path, one_item_each, containers):
    fake = workload(None, count=3, timeout=100)
    fake.one_item_each = one_item_each
    site = RemoteSite(None, fake, TaskFolder(tmp_path), {}, None)
    least = task_seconds(fake.limits, containers) + GRACE_SECONDS
    assert int(site._labels[EXPIRES_LABEL]) - time.time() == pytest.approx(least, abs=10)
