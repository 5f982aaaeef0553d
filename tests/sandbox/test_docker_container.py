import json
import threading
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient
from docker.errors import APIError, NotFound
from hypothesis import given
from hypothesis import strategies as st
from requests import ConnectionError as RequestsConnectionError

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.sandbox.docker_container import Container, Plan, capped, lines
from skillopt_airflow.sandbox.docker_without_shared_files import DockerWithoutSharedFiles
from skillopt_airflow.sandbox.gateway_container import GatewayContainer
from skillopt_airflow.sandbox.staging import ContainerFolder, TaskFolder


@given(st.lists(st.binary()), st.integers(1, 64))
def test_a_log_keeps_its_beginning(chunks, limit):
    whole = b"".join(chunks)
    kept = b"".join(capped(chunks, limit))
    if len(whole) < limit:
        assert kept == whole
    else:
        assert kept == whole[:limit] + b"\n[further output of the container is left out]\n"


@given(st.lists(st.binary()))
def test_lines_do_not_depend_on_how_they_arrived_and_show_what_a_terminal_would_obey(chunks):
    shown = list(lines(chunks))
    assert shown == list(lines([b"".join(chunks)]))
    assert all(char.isprintable() or char == "\t" for line in shown for char in line)


def test_a_line_cannot_pass_for_another():
    assert list(lines([b"fine\r\n\x1b[2Jgone\nno", b" end"])) == ["fine", "\u241b[2Jgone", "no end"]


class Client:
    """An engine that loses its container, or refuses it."""

    def __init__(self, create: Exception | None = None, start: Exception | None = None) -> None:
        self.errors = {"create": create, "start": start}
        self.removed: list[str] = []

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, **options: Any) -> dict[str, str]:
        if self.errors["create"] is not None:
            raise self.errors["create"]
        return {"Id": "c-1"}

    def attach(self, container: str, **options: Any) -> Any:
        raise self.errors["start"] or AssertionError

    def remove_container(self, container: str, **options: Any) -> None:
        self.removed.append(container)


def container_on(client: Any, *, stopped: bool = False) -> Container:
    event = threading.Event()
    if stopped:
        event.set()
    return Container(client, Plan("i", SandboxGroup(), {}, []), ContainerFolder(Path("unused")), event)


def test_a_container_that_someone_else_removed_is_no_error_and_one_that_was_refused_is():
    client = Client(start=NotFound("gone"))
    assert "exit status unknown" in container_on(client).run(lambda: None)
    assert client.removed == ["c-1"]
    # What the engine refuses is raised, and nothing is removed that was not made.
    client = Client(create=APIError("bad mount"))
    with pytest.raises(APIError):
        container_on(client).run(lambda: None)
    assert client.removed == []


def test_a_container_of_a_stopped_task_does_not_begin_and_cannot_be_ended():
    client = Client()
    with pytest.raises(SandboxError, match="stopped"):
        container_on(client, stopped=True).run(lambda: None)
    assert client.removed == ["c-1"]
    assert not container_on(Client()).kill()


class Recording(APIClient):  # type: ignore[misc]
    """Docker's own client, which keeps what it would ask an engine for."""

    def __init__(self) -> None:
        super().__init__("tcp://127.0.0.1:9", version="1.44")
        self.created: list[dict[str, Any]] = []

    def create_container_from_config(self, config: dict[str, Any], name: Any = None, platform: Any = None) -> Any:
        self.created.append(config)
        return {"Id": "c-1"}

    def inspect_image(self, image: str) -> dict[str, Any]:
        return {"Id": image}

    def start(self, container: str, *args: Any, **options: Any) -> None:
        pass

    def remove_container(self, container: str, **options: Any) -> None:
        pass


def test_the_workers_proxies_are_in_the_environment_of_no_container(workload, tmp_path, monkeypatch):
    """The Docker configuration of the worker names a proxy with its password."""
    proxies = {"default": {"httpProxy": "http://user:secret@proxy:3128"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    behind_a_proxy = Recording()
    with pytest.raises(SandboxError):
        container_on(behind_a_proxy, stopped=True).run(lambda: None)
    folder, stopped = TaskFolder(tmp_path), threading.Event()
    with DockerWithoutSharedFiles(behind_a_proxy, workload(None), folder, 1, None, stopped)._keeper([]):
        pass
    work = workload(None)
    with work.allotted() as allotment:
        gateway = GatewayContainer(behind_a_proxy, work, {}, None, allotment, work.counted.append)
        with pytest.raises(RequestsConnectionError), gateway.listening({"Target": "/gateway"}):
            pass
    assert len(behind_a_proxy.created) == 3
    assert "secret" not in json.dumps(behind_a_proxy.created)
    behind_a_proxy.close()
