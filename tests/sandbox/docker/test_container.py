import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest
from docker import APIClient
from docker.errors import APIError, NotFound
from docker.tls import TLSConfig
from hypothesis import given
from hypothesis import strategies as st
from requests import ConnectionError as RequestsConnectionError

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.sandbox import staging
from skillopt_airflow.sandbox.docker.container import (
    EXPIRES_LABEL,
    FOLDER_LABEL,
    GRACE_SECONDS,
    HEADER,
    NEVER,
    SANDBOX_LABEL,
    Container,
    Plan,
    capped,
    expiry,
    identity,
    lines,
    open_frames,
    remove_expired,
)
from skillopt_airflow.sandbox.docker.limits import (
    BUILD_SECONDS,
    LAYOUT_SECONDS,
    PACKAGES_SECONDS,
    build_options,
    end_reason,
    host_options,
    parallel_containers,
    repository_seconds,
    task_seconds,
)
from skillopt_airflow.sandbox.docker_runtime import RemoteContainer
from skillopt_airflow.sandbox.staging import ContainerFolder
from tests.certificates import certificate


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


def test_what_the_engine_refuses_is_raised_and_only_what_was_made_is_removed():
    for client, removed in ((Client(start=NotFound("gone")), ["c-1"]), (Client(create=APIError("bad mount")), [])):
        with pytest.raises(APIError):
            container_on(client).run(lambda: None)
        assert client.removed == removed


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


def test_the_workers_proxies_are_in_the_environment_of_no_container(tmp_path, monkeypatch):
    """The Docker configuration of the worker names a proxy with its password."""
    proxies = {"default": {"httpProxy": "http://user:secret@proxy:3128"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    behind_a_proxy = Recording()
    with pytest.raises(SandboxError):
        container_on(behind_a_proxy, stopped=True).run(lambda: None)
    plan, folder = Plan("i", SandboxGroup(), {}, []), ContainerFolder(tmp_path)
    remote = RemoteContainer(
        behind_a_proxy, plan, folder, threading.Event(), secrets=({}, {}), network=None, seconds=1, has_corpus=False
    )
    with pytest.raises(RequestsConnectionError), remote._helper(["true"], {}, []):
        pass
    assert len(behind_a_proxy.created) == 2
    assert "secret" not in json.dumps(behind_a_proxy.created)
    behind_a_proxy.close()


UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def frame(number: int, text: bytes) -> bytes:
    return HEADER.pack(number, len(text)) + text


@contextmanager
def engine(sent: list[bytes], done: threading.Event, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that answers one request with these bytes, a packet each, and keeps the connection until `done`."""

    def serve() -> None:
        connection, _ = listening.accept()
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        with connection:
            asked = b""
            while not asked.endswith(b"}"):
                asked += connection.recv(4096)
            for packet in sent:
                connection.sendall(packet)
            if not done.wait(10):
                connection.sendall(frame(2, b"nobody has read it"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def read(client: docker.APIClient, done: threading.Event, count: int) -> list[tuple[int, bytes]]:
    """All frames; the connection is closed when so many have come."""
    found = []
    with open_frames(client.exec_start("id", stream=True)) as frames:
        for one in frames:
            found.append(one)
            if len(found) == count:
                done.set()
    client.close()
    return found


def test_a_frame_that_comes_with_the_answers_headers_is_not_lost() -> None:
    done = threading.Event()
    with engine([UPGRADED + frame(1, b"first\n"), frame(2, b"second\n")], done) as address:
        client = docker.APIClient(base_url=f"tcp://{address}", version="1.41", timeout=5)
        assert read(client, done, 2) == [(1, b"first\n"), (2, b"second\n")]


def test_over_tls_no_frame_waits_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        # The library of Docker's client prefers them to the client's own authority.
        monkeypatch.delenv(name, raising=False)
    done, file = threading.Event(), certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    # One record holds two frames, and after them the engine has nothing to say.
    with engine([UPGRADED, frame(1, b"listening") + frame(1, b"\n")], done, context) as address:
        client = docker.APIClient(
            base_url=f"https://localhost:{address.rpartition(':')[2]}",
            version="1.41",
            tls=TLSConfig(ca_cert=str(file), verify=True),
            timeout=5,
        )
        assert read(client, done, 2) == [(1, b"listening"), (1, b"\n")]


def test_output_that_breaks_off_within_a_frame_ends_there() -> None:
    done = threading.Event()
    done.set()
    with engine([UPGRADED + frame(1, b"whole"), frame(1, b"broken off")[:12]], done) as address:
        client = docker.APIClient(base_url=f"tcp://{address}", version="1.41", timeout=5)
        assert read(client, done, 9) == [(1, b"whole"), (1, b"brok")]


def test_labels_tell_installations_apart(monkeypatch):
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/one")
    labels = identity({"run": "r-1", "chunk": "0"})
    assert labels == {SANDBOX_LABEL: "/srv/one", "skillopt.run": "r-1", "skillopt.chunk": "0"}
    monkeypatch.setenv("SKILLOPT_HOME", "/srv/two")
    assert identity({})[SANDBOX_LABEL] == "/srv/two"


class Engine:
    """An engine that has containers with such labels of this installation, and a volume beside each."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.left = {str(number): identity({}) | own for number, own in enumerate(labels)}
        self.volumes_left = dict(self.left)

    def containers(self, filters: Any, **_: Any) -> list[Any]:
        return self._listed(self.left, filters)

    def volumes(self, filters: Any) -> Any:
        return {"Volumes": self._listed(self.volumes_left, filters) or None}

    def _listed(self, found: dict[str, dict[str, str]], filters: Any) -> list[Any]:
        wanted = dict(label.split("=", 1) for label in filters["label"])
        return [
            {"Id": name, "Name": name, "Labels": own} for name, own in found.items() if own.items() >= wanted.items()
        ]

    def remove_container(self, container_id: str, **_: Any) -> None:
        del self.left[container_id]

    def remove_volume(self, name: str, **_: Any) -> None:
        del self.volumes_left[name]


def test_the_reaper_takes_what_is_dead_for_certain_and_nothing_that_may_live():
    dead = expiry(-GRACE_SECONDS - 10)
    engine = Engine(dead, expiry(1), {}, dead | {SANDBOX_LABEL: "/srv/another"})
    assert remove_expired(engine) == 1
    assert [*engine.left] == [*engine.volumes_left] == ["1", "2", "3"]


def test_the_reaper_leaves_a_task_that_lives_its_container_and_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    late = expiry(-GRACE_SECONDS - 10)
    killed = tmp_path / f"{staging.PREFIX}killed"
    killed.mkdir()
    (killed / staging.LOCK_FILE).touch()
    with staging.temporary_folder() as living:
        folders = [living, killed, tmp_path / f"{staging.PREFIX}elsewhere"]
        engine = Engine(*(late | {FOLDER_LABEL: str(folder)} for folder in folders))
        assert remove_expired(engine) == 2
        assert list(engine.left) == ["0"]
        assert living.is_dir()
        assert not killed.exists()
    # What never expires stays, and an expiry leaves the task its time.
    assert remove_expired(Engine({EXPIRES_LABEL: NEVER})) == 0
    assert int(expiry(60)[EXPIRES_LABEL]) >= time.time() + 60


def test_the_limits_reach_docker():
    options = host_options(SandboxGroup(memory="256m", cpus=0.5, output_mb=3))

    assert options["mem_limit"] == options["memswap_limit"] == "256m"
    assert (options["pids_limit"], options["nano_cpus"]) == (128, 500_000_000)
    assert options["cap_drop"] == ["ALL"]
    assert options["read_only"]
    assert {limit["Name"]: limit["Hard"] for limit in options["ulimits"]}["fsize"] == 3 * 1024 * 1024
    assert options["log_config"]["Config"] == {"max-size": "1m", "max-file": "1"}


def test_an_image_is_made_with_rights_over_files_alone():
    options = build_options(SandboxGroup(cpus=0.5))

    assert (options["cap_drop"], options["cap_add"]) == (["ALL"], ["DAC_OVERRIDE", "FOWNER"])
    assert options["security_opt"] == ["no-new-privileges:true"]
    assert options["mem_limit"] == options["memswap_limit"]
    assert (options["network_mode"], options["nano_cpus"]) == ("none", 500_000_000)


def test_containers_at_the_same_time_leave_half_of_the_engines_memory():
    limits = SandboxGroup(memory="512m")
    gigabyte = 2**30
    assert parallel_containers(limits, 8, 32, 64 * gigabyte) == 8
    assert parallel_containers(limits, 8, 32, 24 * gigabyte) == 6
    assert parallel_containers(limits, 8, 32, 2 * gigabyte) == 1
    assert parallel_containers(limits, 32, 32, 24 * gigabyte) == 24
    assert parallel_containers(SandboxGroup(memory="2g"), 8, 8, 24 * gigabyte) == 6


def test_a_container_has_time_for_items_one_after_the_other_and_a_task_for_more():
    assert task_seconds(SandboxGroup(timeout=60), 20) == 21 * 60
    assert task_seconds(SandboxGroup(timeout=60), 1, start_seconds=10) == 2 * 70
    built, judged = PACKAGES_SECONDS + BUILD_SECONDS, 50 + 2 * LAYOUT_SECONDS
    assert repository_seconds(SandboxGroup(test_timeout=50)) == built + judged


def test_an_end_is_told_and_a_kill_that_the_engine_has_not_explained_yet_names_the_limit() -> None:
    limits = SandboxGroup(memory="1g")
    for state in ({"OOMKilled": True, "ExitCode": 137}, {"ExitCode": 137}):
        assert "sandbox.memory = 1g" in end_reason(state, limits)
    assert "most often" in end_reason({"ExitCode": 137}, limits)
    assert "exit status 3" in end_reason({"OOMKilled": False, "ExitCode": 3}, limits)
