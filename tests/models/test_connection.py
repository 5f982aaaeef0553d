import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from include.core.errors import ModelConnectionError
from include.models.connection import check, model_name, optimizer_model, target_upstream

Connect = Callable[..., str]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Defines the connection `model_test` and returns its id."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def define(**fields: Any) -> str:
        defaults = {"conn_type": "pydanticai", "extra": {"model": "openai-chat:m"}}
        monkeypatch.setenv("AIRFLOW_CONN_MODEL_TEST", json.dumps(defaults | fields))
        return "model_test"

    return define


class Server(ThreadingHTTPServer):
    """Answers every request with one status, and remembers the headers."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.seen: list[tuple[str, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[int], Server]]:
    servers: list[tuple[Server, threading.Thread]] = []

    def start(status: int) -> Server:
        server = Server(status)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_target(connect: Connect) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1/", password="secret-key", extra={"model": "openai-chat:org/m:tag"})
    upstream = target_upstream(conn_id, None)
    assert (upstream.dialect, upstream.base_url, upstream.model) == (
        "openai-chat",
        "http://127.0.0.1:9/v1",
        "org/m:tag",
    )
    assert upstream.api_key.get_secret_value() == "secret-key"
    assert "secret-key" not in repr(upstream)


def test_the_configured_model_wins_and_a_provider_has_its_own_address(connect: Connect) -> None:
    conn_id = connect(password="secret-key", extra={"model": "openai-chat:m"})
    assert model_name(conn_id, None) == "openai-chat:m"
    assert model_name(conn_id, "anthropic:x") == "anthropic:x"
    upstream = target_upstream(conn_id, "anthropic:x")
    assert (upstream.dialect, upstream.base_url) == ("anthropic", "https://api.anthropic.com/v1")


def test_an_optimizer_model(connect: Connect) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1", password="secret-key", extra={"model": "openai-chat:m"})
    assert optimizer_model(conn_id, None).model_name == "m"
    assert optimizer_model(conn_id, "openai-chat:other").model_name == "other"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: target_upstream("model_missing", None),
        lambda: optimizer_model("model_missing", None),
        lambda: model_name("model_missing", None),
        lambda: check("model_missing"),
    ],
)
def test_a_missing_connection(ask: Callable[[], object]) -> None:
    with pytest.raises(ModelConnectionError, match=r"^connection model_missing does not exist; create it with type"):
        ask()


@pytest.mark.parametrize("extra", [None, {}, {"model": ""}, {"model": 7}, ["openai-chat:m"]])
def test_a_connection_that_names_no_model(connect: Connect, extra: Any) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1", password="secret-key", extra=extra)
    for ask in (model_name, target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match=r"^connection model_test names no model; set .* in its extra"):
            ask(conn_id, None)


@pytest.mark.parametrize("model", ["gpt-5", "nope:m", "openai-chat:"])
def test_a_model_in_no_known_dialect(connect: Connect, model: str) -> None:
    conn_id = connect(password="secret-key", extra={"model": model})
    with pytest.raises(ModelConnectionError, match=f"^connection model_test: model {model!r} should be written as a"):
        target_upstream(conn_id, None)


def test_another_type(connect: Connect) -> None:
    conn_id = connect(conn_type="http", extra={"model": "openai-chat:m"})
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: .*has type 'http'"):
        target_upstream(conn_id, None)
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: .*has type 'http'"):
        optimizer_model(conn_id, None)


def test_an_optimizer_without_a_key(connect: Connect) -> None:
    conn_id = connect(extra={"model": "openai-chat:m"})
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: .*api_key"):
        optimizer_model(conn_id, None)


@pytest.mark.parametrize("status", [200, 404, 405, 500])
def test_any_answer_will_do(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    server = serve(status)
    check(connect(host=f"http://127.0.0.1:{server.server_port}/v1/", password="secret-key"))
    assert server.seen == [("/v1/models", "Bearer secret-key")]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    conn_id = connect(host=f"http://127.0.0.1:{serve(status).server_port}/v1", password="secret-key")
    with pytest.raises(ModelConnectionError, match=rf"refuses the key \({status}\); correct its password$") as raised:
        check(conn_id)
    assert "secret-key" not in str(raised.value)


@pytest.mark.parametrize(
    "host", ["http://127.0.0.1:1/v1", "localhost:8000/v1", "ftp://127.0.0.1/v1", "http://é..x/v1", "http://h:port/v1"]
)
def test_a_wrong_address(connect: Connect, host: str) -> None:
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: no model server answers at ") as raised:
        check(connect(host=host, password="secret-key"))
    assert host in str(raised.value)
    assert str(raised.value).endswith("; correct its host")


@pytest.mark.parametrize("key", ["secret-key\n", "secret-key…", "secret\x00key"])
def test_a_key_that_no_header_can_carry(connect: Connect, serve: Callable[[int], Server], key: str) -> None:
    conn_id = connect(host=f"http://127.0.0.1:{serve(200).server_port}/v1", password=key)
    with pytest.raises(ModelConnectionError, match="holds a character that no HTTP header can carry") as raised:
        check(conn_id)
    assert "secret" not in str(raised.value)


def test_the_providers_own_address_is_not_asked(connect: Connect) -> None:
    check(connect(password="secret-key", extra={"model": "openai-chat:m"}))
