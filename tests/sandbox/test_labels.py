import tempfile
import time
from typing import Any

import docker
import pytest

from local import image
from skillopt_airflow.sandbox import staging
from skillopt_airflow.sandbox.docker_container import (
    EXPIRES_LABEL,
    FOLDER_LABEL,
    GRACE_SECONDS,
    NEVER,
    SANDBOX_LABEL,
    expiry,
    identity,
    reap,
    remove_all,
)


def test_labels_tell_installations_apart(monkeypatch):
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/one")
    labels = identity({"run": "r-1", "chunk": "0"})
    assert labels == {SANDBOX_LABEL: "/srv/one", "skillopt.run": "r-1", "skillopt.chunk": "0"}
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/two")
    assert identity({})[SANDBOX_LABEL] == "/srv/two"


@pytest.fixture
def client(docker_host, monkeypatch, tmp_path):
    monkeypatch.setenv("SKILLOPT_HOME", str(tmp_path))
    client = docker.DockerClient(base_url=docker_host)
    yield client
    remove_all(client.api, identity({}))
    client.close()


def started(client: docker.DockerClient, **labels: str) -> Any:
    sleep = ["python3", "-c", "import time; time.sleep(600)"]
    client.volumes.create(labels=identity({}) | labels)
    return client.containers.run(
        image.IMAGE, entrypoint=sleep, network_mode="none", detach=True, labels=identity({}) | labels
    )


@pytest.mark.engine
def test_the_reaper_takes_what_is_dead_for_certain_and_nothing_that_may_live(client, monkeypatch):
    dead = started(client, **expiry(-GRACE_SECONDS - 10))
    alive = started(client, **expiry(1))
    unknown = started(client)
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/another")
    assert reap(client.api) == 0
    monkeypatch.undo()
    monkeypatch.setenv("SKILLOPT_HOME", dead.labels[SANDBOX_LABEL])

    assert reap(client.api) == 1

    left = client.containers.list(
        filters={"label": f"{SANDBOX_LABEL}={dead.labels[SANDBOX_LABEL]}"}, ignore_removed=True
    )
    assert {container.id for container in left} == {alive.id, unknown.id}
    volumes = client.volumes.list(filters={"label": f"{SANDBOX_LABEL}={dead.labels[SANDBOX_LABEL]}"})
    assert len(volumes) == 2


class Engine:
    """An engine that has containers with such labels, and no volumes."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.left = {str(number): own for number, own in enumerate(labels)}

    def containers(self, **_: Any) -> list[Any]:
        return [{"Id": number, "Labels": labels} for number, labels in self.left.items()]

    def volumes(self, **_: Any) -> Any:
        return {"Volumes": None}

    def remove_container(self, container_id: str, **_: Any) -> None:
        del self.left[container_id]


def test_the_reaper_leaves_a_task_that_lives_its_container_and_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    late = expiry(-GRACE_SECONDS - 10)
    killed = tmp_path / f"{staging.PREFIX}killed"
    killed.mkdir()
    (killed / staging.HELD).touch()
    with staging.staged() as living:
        folders = [living.path, killed, tmp_path / f"{staging.PREFIX}elsewhere"]
        engine = Engine(*(late | {FOLDER_LABEL: str(folder)} for folder in folders))
        assert reap(engine) == 2
        assert list(engine.left) == ["0"]
        assert living.path.is_dir()
        assert not killed.exists()
    # What never expires stays, and an expiry leaves the task its time.
    assert reap(Engine({EXPIRES_LABEL: NEVER})) == 0
    assert int(expiry(60)[EXPIRES_LABEL]) >= time.time() + 60
