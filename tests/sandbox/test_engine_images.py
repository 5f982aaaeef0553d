import json
import socket
from contextlib import closing, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from local import image
from local.served import served
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, ImageMissing
from skillopt_airflow.sandbox.docker.connection import (
    connection_errors,
    ensure_image,
    find_engine,
    has_image,
    image_digest,
)


class Registry:
    """An engine's client, beside a registry that has some images."""

    def __init__(self, here: set[str], there: set[str]) -> None:
        self.here = here
        self.there = there
        self.pulled: list[str] = []

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self.here:
            raise ImageNotFound("no such image")
        return {"Id": "sha256:1"}

    def pull(self, name: str) -> None:
        self.pulled.append(name)
        if name not in self.there:
            raise APIError("manifest unknown")
        self.here.add(name)


@pytest.mark.parametrize(
    ("registry", "name", "here", "pulled"),
    [
        (None, "i", True, []),
        (None, "i", False, ["i"]),
        ("there", "there/i", True, ["there/i"]),
        ("there", "there/i@sha256:1", True, []),
        ("there", "elsewhere/i", True, []),
    ],
)
def test_an_image_is_pulled_if_it_is_missing_or_a_tag_of_the_registry(registry, name, here, pulled):
    engine = Registry({name} if here else set(), {name})
    again = SandboxGroup(registry=registry).renews(name)
    ensure_image(engine, name, again=again)
    assert engine.pulled == pulled
    # One that cannot be had is named.
    with pytest.raises(ImageMissing, match=rf"sandbox\.image = {name}: "):
        ensure_image(Registry({name} if again else set(), set()), name, again=again)


def test_an_id_is_never_asked_of_a_registry():
    registry = Registry({"sha256:1"}, set())
    ensure_image(registry, "sha256:1")
    with pytest.raises(ImageMissing, match="sha256:2"):
        ensure_image(registry, "sha256:2")
    assert registry.pulled == []


def test_whether_the_engine_still_has_an_image_is_asked_without_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry({"sha256:1"}, {"sha256:2"})
    engine = SimpleNamespace(url="tcp://10.0.0.5:2375", open_client=lambda: nullcontext(registry))
    monkeypatch.setattr("skillopt_airflow.sandbox.docker.connection.find_engine", lambda conn_id: engine)
    assert [has_image(image, SandboxGroup()) for image in ("sha256:1", "sha256:2")] == [True, False]
    assert registry.pulled == []


def connection(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps({"conn_type": "docker"} | fields))


def test_a_connection_says_where_the_engine_is_and_without_one_it_is_the_workers_own(monkeypatch):
    for fields, url in (
        ({"host": "tcp://10.0.0.5:2375"}, "tcp://10.0.0.5:2375"),
        ({"host": "10.0.0.5", "port": 2375}, "tcp://10.0.0.5:2375"),
        ({"host": "10.0.0.5"}, "tcp://10.0.0.5:2376"),
        ({"host": "unix:///run/other.sock"}, "unix:///run/other.sock"),
    ):
        connection(monkeypatch, **fields, extra={"network": "models"})
        engine = find_engine("far", "unix:///run/own.sock")
        assert (engine.url, engine.network) == (url, "models")
        assert engine.shares_files == url.startswith("unix:")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/own.sock")
    assert find_engine(None).url == "unix:///run/own.sock"
    assert find_engine(None, "tcp://127.0.0.1:9").url == "tcp://127.0.0.1:9"
    for fields, missing in (({}, "host"), ({"host": "h", "extra": {"ca_cert": "/a"}}, "client_key")):
        connection(monkeypatch, **fields)
        with pytest.raises(ConfigError, match=f"far: .*{missing}"):
            find_engine("far")


def test_the_three_files_of_a_connection_make_it_speak_tls(monkeypatch, tmp_path):
    paths = {name: str(tmp_path / name) for name in ("ca_cert", "client_cert", "client_key")}
    for path in paths.values():
        (tmp_path / path).touch()
    connection(monkeypatch, host="tcp://127.0.0.1:9", extra=paths)
    engine = find_engine("far")
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:9"), connection_errors(engine.url):
        _ = engine.hook.api_client
    assert engine.hook._DockerHook__base_url == ["https://127.0.0.1:9"]


@pytest.mark.engine
def test_a_run_names_its_image_by_what_it_holds(docker_host, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    client = docker.DockerClient(base_url=docker_host)
    try:
        assert image_digest(image.IMAGE, SandboxGroup()) == client.images.get(image.IMAGE).id
    finally:
        client.close()
    with pytest.raises(ImageMissing, match="none:1"):
        image_digest("127.0.0.1:9/none:1", SandboxGroup())


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        body = b"OK" if self.path.endswith("/_ping") else b'{"ApiVersion": "1.44"}'
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """It is no log of the test's."""


def test_a_host_that_vanished_is_noticed_by_its_connection() -> None:
    with (
        served(ThreadingHTTPServer(("127.0.0.1", 0), Answering)) as server,
        find_engine(None, f"tcp://127.0.0.1:{server.server_port}").open_client() as client,
        closing(client.get(f"{client.base_url}/_ping", stream=True)) as response,
    ):
        wire = response.raw.connection.sock
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
