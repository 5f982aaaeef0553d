"""What a task takes from a container far away, by an engine of the test's own that fails in between."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, NotFound
from requests import RequestException

from skillopt_airflow.sandbox import staging
from skillopt_airflow.sandbox.docker_limits import task_seconds
from skillopt_airflow.sandbox.docker_runtime import DockerRuntime
from skillopt_airflow.sandbox.docker_without_shared_files import DockerWithoutSharedFiles, FetchedFolder, runtime_of
from skillopt_airflow.sandbox.labels import EXPIRES_LABEL, GRACE_SECONDS, identity
from skillopt_airflow.sandbox.staging import TaskFolder
from tests.sandbox.fake_workload import FakeWorkload
from tests.sandbox.tars import member, tar_of

ROW = b'{"item_id": "a", "status": "ok", "files": ["out.txt"]}\n'
ROWS, FILES = "/out/trajectories.jsonl", "/out/files"


class Client:
    """Gives the archives of a container; `errors` come in their place, each once, or halfway through them."""

    def __init__(self) -> None:
        self.archives = {
            ROWS: tar_of(member("trajectories.jsonl", ROW)),
            FILES: tar_of(member("files/0/out.txt", b"made")),
        }
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
def folder(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedFolder:
    monkeypatch.setattr(staging, "FETCH_SECONDS", 0.0)
    (tmp_path / "out" / "files" / "0").mkdir(parents=True)
    return FetchedFolder(tmp_path, client, "keeper", 10_000)


def left(folder: FetchedFolder) -> Path:
    return folder.outputs / "files" / "0" / "out.txt"


def test_rows_come_with_the_files_that_they_name_and_once(client, folder):
    folder.fetch()
    assert folder.trajectories.read_bytes() == ROW
    assert left(folder).read_bytes() == b"made"
    folder.fetch()
    assert client.asked == [ROWS, FILES, ROWS]


class Engine:
    """Refuses a mount in the words of a test, or makes the container if there are none."""

    def __init__(self, refusal: Exception | None) -> None:
        self.refusal = refusal
        self.asked: list[str] = []

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, host_config: Any, labels: Any, **options: Any) -> dict[str, str]:
        self.asked.append("create")
        (mount,) = host_config["mounts"]
        assert Path(mount["Source"]).parent.is_file()
        assert mount["ReadOnly"]
        assert labels.items() >= identity({"run": "r"}).items()
        if self.refusal is not None:
            raise self.refusal
        return {"Id": "probe"}

    def remove_container(self, container: str, **options: Any) -> None:
        self.asked.append("remove")


def found_runtime(workload: Callable[..., FakeWorkload], folder: Path, engine: Engine) -> DockerRuntime:
    fake = workload(None)
    fake.labels = {"run": "r"}
    try:
        return runtime_of(engine, fake, TaskFolder(folder), 1, None, threading.Event())
    finally:
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("refusal", "asked", "runtime"),
    [
        (APIError("stat /tmp/skillopt-1/probe/in: not a directory"), ["create"], DockerRuntime),
        (APIError("bind source path does not exist: /tmp/skillopt-1/probe/in"), ["create"], DockerWithoutSharedFiles),
        (APIError("stat /tmp/skillopt-1/probe/in: permission denied"), ["create"], DockerWithoutSharedFiles),
        (None, ["create", "remove"], DockerWithoutSharedFiles),
    ],
)
def test_whether_the_engine_sees_the_workers_files_is_found_out(workload, tmp_path, refusal, asked, runtime):
    engine = Engine(refusal)
    assert type(found_runtime(workload, tmp_path, engine)) is runtime
    assert engine.asked == asked
    # Another error says nothing of the files.
    with pytest.raises(APIError, match="no space left"):
        found_runtime(workload, tmp_path, Engine(APIError("no space left on device")))


def test_an_engine_of_a_connection_is_not_tried_and_things_there_last_as_long_as_a_task(workload, tmp_path):
    fake = workload(None, count=3, timeout=100, docker_conn_id="far_away")
    least = task_seconds(fake.limits, 3) + GRACE_SECONDS
    for fake.one_item_each in (True, False):
        runtime = runtime_of(None, fake, TaskFolder(tmp_path), 1, "host", threading.Event())
        assert type(runtime) is DockerWithoutSharedFiles
        assert int(runtime.labels[EXPIRES_LABEL]) - time.time() == pytest.approx(least, abs=10)


@pytest.mark.parametrize("path", [ROWS, FILES])
@pytest.mark.parametrize("where", ["errors", "halfway"])
@pytest.mark.parametrize("error", [APIError("busy"), RequestException("timed out")], ids=["refused", "silent"])
def test_a_row_waits_for_its_files_while_the_engine_fails(client, folder, caplog, path, where, error):
    getattr(client, where)[path] = error
    folder.fetch()
    assert not folder.trajectories.exists()
    assert "Refused" not in caplog.text
    assert "asked again" in caplog.text

    folder.fetch()
    assert folder.trajectories.read_bytes() == ROW
    assert left(folder).read_bytes() == b"made"


@pytest.mark.parametrize("path", [ROWS, FILES])
def test_what_the_engine_does_not_give_of_an_ended_container_is_an_error(client, folder, path):
    folder.ended = True
    client.errors[path] = APIError("busy")
    with pytest.raises(APIError, match="busy"):
        folder.fetch()
    assert not folder.trajectories.exists()


def test_what_is_not_there_is_no_error(client, folder):
    client.errors[ROWS] = NotFound("no rows yet")
    folder.fetch()
    assert not folder.trajectories.exists()
    client.errors[FILES] = NotFound("no files")
    folder.fetch()
    assert folder.trajectories.read_bytes() == ROW


def test_files_that_the_container_spoilt_are_refused_and_its_row_counts(client, folder, caplog):
    client.archives[FILES] = tar_of(member("files/0/out.txt", b"x" * 10_001))
    folder.fetch()
    assert folder.trajectories.read_bytes() == ROW
    assert not left(folder).exists()
    assert "more than 10000 bytes" in caplog.text


def test_rows_that_the_container_spoilt_are_refused_once(client, folder, caplog):
    client.archives[ROWS] = tar_of()
    for _ in range(2):
        folder.fetch()
    assert not folder.trajectories.exists()
    assert caplog.text.count("trajectories.jsonl is not a plain file") == 1
