"""What a connection's servers answer before a run asks them anything."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local.served import served
from skillopt_airflow.core.errors import ModelConnectionError, ModelError, ModelUnavailable, ModelUnreachable
from skillopt_airflow.core.harnesses import HarnessName
from skillopt_airflow.models.connection import target_upstream
from skillopt_airflow.models.server_check import check, check_harness
from tests.gateway import dialects
from tests.gateway.scripted_provider import Asked, Document, Refusal
from tests.models.conftest import Connect, Serve

AZURE = {"conn_type": "pydanticai_azure", "password": "secret-key", "host": "https://r.openai.azure.com/openai/v1"}


class Server(ThreadingHTTPServer):
    """Answers every request with one status, and remembers the headers."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.location = "https://elsewhere/v1/models"
        self.seen: list[tuple[str, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        if 300 <= self.server.status < 400:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[int], Server]]:
    with ExitStack() as stack:
        yield lambda status: stack.enter_context(served(Server(status)))


@pytest.mark.parametrize("status", [200, 404, 405, 500])
def test_any_answer_will_do(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    server = serve(status)
    check(connect(host=f"http://127.0.0.1:{server.server_port}/v1/", password="secret-key"))
    assert server.seen == [("/v1/models", "Bearer secret-key")]


@pytest.mark.parametrize("status", [301, 302, 308])
def test_a_redirect_that_no_call_would_follow(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    host = f"http://127.0.0.1:{serve(status).server_port}/v1"
    message = f"connection model_test: {host} redirects to https://elsewhere/v1; correct its host"
    with pytest.raises(ModelConnectionError, match=f"^{re.escape(message)}$"):
        check(connect(host=host, password="secret-key"))


def test_a_redirect_of_calls_alone_names_the_address_to_enter(connect: Connect, provider: Serve) -> None:
    def answer(request: Asked) -> Document:
        if request.path == "/v1/models":
            raise Refusal(403, "no")
        raise Refusal(308, "there", {"Location": "https://other/v1/chat/completions"})

    server = provider(answer)
    with pytest.raises(ModelConnectionError, match=r"redirects to https://other/v1; correct its host$"):
        check(connect(host=f"{server.address}/v1", password="secret-key"))


def test_a_list_of_models_at_another_path_of_the_server(connect: Connect, serve: Callable[[int], Server]) -> None:
    server = serve(307)
    server.location = "/v1/models/"
    check(connect(host=f"http://127.0.0.1:{server.server_port}/v1", password="secret-key"))
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    conn_id = connect(host=f"http://127.0.0.1:{serve(status).server_port}/v1", password="secret-key")
    with pytest.raises(ModelConnectionError, match=rf"refuses the key \({status}\); correct its password$") as raised:
        check(conn_id)
    assert "secret-key" not in str(raised.value)


@pytest.mark.parametrize("unlisted", [403, 502])
def test_a_key_that_may_call_its_model_and_see_no_list(connect: Connect, provider: Serve, unlisted: int) -> None:
    def answer(request: Asked) -> Document:
        raise Refusal(unlisted if request.path == "/v1/models" else 400, "no")

    server = provider(answer)
    check(connect(host=f"{server.address}/v1", password="secret-key"))
    assert (server.last.path, server.last.body) == ("/v1/chat/completions", {"model": "m"})


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_server_that_is_starting_behind_a_proxy(
    connect: Connect, serve: Callable[[int], Server], status: int
) -> None:
    conn_id = connect(host=f"http://127.0.0.1:{serve(status).server_port}/v1", password="secret-key")
    with pytest.raises(ModelUnavailable, match=rf"^connection model_test: .* has no answer now \({status}\); try"):
        check(conn_id)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        # A server may come back there.
        ("http://127.0.0.1:1/v1", ModelUnreachable),
        ("localhost:8000/v1", ModelConnectionError),
        ("ftp://127.0.0.1/v1", ModelConnectionError),
        ("http://é..x/v1", ModelConnectionError),
        ("http://h:port/v1", ModelConnectionError),
    ],
)
def test_a_wrong_address(connect: Connect, host: str, kind: type[ModelError]) -> None:
    with pytest.raises(kind, match=r"^connection model_test: no model server answers at ") as raised:
        check(connect(host=host, password="secret-key"))
    assert host in str(raised.value)
    assert str(raised.value).endswith("; correct its host")


@pytest.mark.parametrize("key", ["secret-key\n", "secret-key…", "secret\x00key"])
@pytest.mark.parametrize("own", [True, False])
def test_a_key_that_no_header_can_carry(connect: Connect, serve: Callable[[int], Server], key: str, own: bool) -> None:
    fields = {"host": f"http://127.0.0.1:{serve(200).server_port}/v1"} if own else {}
    conn_id = connect(password=key, extra={"model": "openai-chat:m"}, **fields)
    with pytest.raises(ModelConnectionError, match="holds a character that no HTTP header can carry") as raised:
        check(conn_id)
    assert "secret" not in str(raised.value)


def test_the_providers_own_address_is_not_asked(connect: Connect) -> None:
    check(connect(password="secret-key", extra={"model": "openai-chat:m"}))


def test_what_a_translated_provider_lacks_shows_in_the_check(connect: Connect) -> None:
    conn_id = connect(conn_type="pydanticai_bedrock", extra={"model": "bedrock:amazon.nova-lite-v1:0"})
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: .*region"):
        check(conn_id)


@pytest.mark.parametrize("status", [401, 403])
def test_azure_that_refuses_the_key(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    host = f"http://127.0.0.1:{serve(status).server_port}/openai/v1"
    conn_id = connect(**(AZURE | {"host": host, "extra": {"model": "azure:deployed"}}))
    with pytest.raises(ModelConnectionError, match=rf"refuses the key \({status}\); correct its password$"):
        check(conn_id)


def test_an_identity_that_gives_no_token_shows_in_the_check(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    conn_id = connect(**(AZURE | {"password": None, "extra": {"model": "azure:deployed", "azure_auth": "cli"}}))
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: no token for Azure: Azure CLI not found"):
        check(conn_id)


@pytest.mark.parametrize(("harness", "path"), [("codex", "/v1/responses"), ("claude_code", "/v1/messages")])
def test_a_server_of_ones_own_is_asked_for_the_path_of_an_agent_cli(
    connect: Connect, provider: Serve, harness: HarnessName, path: str
) -> None:
    """It has chat completions alone, like many compatible servers, or more."""
    chat_alone = provider(dialects.vllm(parser=True))
    conn_id = connect(host=f"{chat_alone.address}/v1", extra={"model": "openai-chat:m"})
    check_harness(target_upstream(conn_id, None), "chat")
    assert chat_alone.requests == []
    with pytest.raises(
        ModelConnectionError, match=rf"^connection model_test: model.harness {harness} posts {path}, and http"
    ):
        check_harness(target_upstream(conn_id, None, harness), harness)

    def demanding(request: Asked) -> Document:
        raise Refusal(400, "there is no prompt")

    both = provider(demanding)
    connect(host=f"{both.address}/v1", password="secret-key", extra={"model": "openai-chat:m"})
    check_harness(target_upstream(conn_id, None, harness), harness)
    assert (both.last.path, both.last.body) == (path, {"model": "m"})
    connect(host="http://127.0.0.1:1/v1", extra={"model": "openai-chat:m"})
    with pytest.raises(ModelUnreachable, match=r"^connection model_test: no model server answers"):
        check_harness(target_upstream(conn_id, None, harness), harness)


def test_every_fallback_is_checked(connect: Connect, serve: Callable[[int], Server]) -> None:
    first, second = serve(200), serve(401)
    host = f"http://127.0.0.1:{second.server_port}/v1"
    connect("second", host=host, password="key-2", extra={"model": "openai-chat:m2"})
    extra = {"model": "openai-chat:m1", "fallback_conn_ids": ["second"]}
    conn_id = connect(host=f"http://127.0.0.1:{first.server_port}/v1", password="key-1", extra=extra)
    with pytest.raises(ModelConnectionError, match=r"^connection second: .* refuses the key \(401\)"):
        check(conn_id)
    assert (first.seen, second.seen) == ([("/v1/models", "Bearer key-1")], [("/v1/models", "Bearer key-2")])
