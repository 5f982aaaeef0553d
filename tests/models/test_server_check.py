"""What a connection's servers answer before a run asks them anything."""

from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.errors import ModelConnectionError, ModelError, ModelUnavailable, ModelUnreachable
from skillopt_airflow.models.connection import target_upstream
from skillopt_airflow.models.server_check import check, check_harness
from tests.gateway import dialects
from tests.gateway.scripted_provider import Answer, Reply, failure
from tests.models.conftest import Connect, Serve

AZURE = {"conn_type": "pydanticai_azure", "password": "secret-key", "host": "https://r.openai.azure.com/openai/v1"}


def answering(status: int, **headers: str) -> Answer:
    return lambda asked: Reply(status, b"", headers)


@pytest.mark.parametrize("status", [200, 307, 404, 405, 500])
def test_any_answer_will_do_and_another_path_of_the_server(connect: Connect, provider: Serve, status: int) -> None:
    server = provider(answering(status, location="/v1/models/"))
    check(connect(host=f"{server.base_url}/", password="secret-key"))
    assert (server.last.path, server.last.headers["authorization"]) == ("/v1/models", "Bearer secret-key")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 308])
def test_a_redirect_that_no_call_would_follow(connect: Connect, provider: Serve, status: int) -> None:
    host = provider(answering(status, location="https://elsewhere/v1/models")).base_url
    message = rf"^connection model_test: {host} redirects to https://elsewhere/v1; "
    with pytest.raises(ModelConnectionError, match=message):
        check(connect(host=host, password="secret-key"))


def test_a_redirect_of_calls_alone_names_the_address_to_enter(connect: Connect, provider: Serve) -> None:
    there = failure(308, location="https://other/v1/chat/completions")
    server = provider(lambda asked: failure(403) if asked.path == "/v1/models" else there)
    with pytest.raises(ModelConnectionError, match=r"redirects to https://other/v1; "):
        check(connect(host=server.base_url, password="secret-key"))


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("fields", [{}, AZURE | {"extra": {"model": "azure:deployed"}}], ids=["openai", "azure"])
def test_a_refused_key(connect: Connect, provider: Serve, fields: dict[str, Any], status: int) -> None:
    server = provider(answering(status))
    host = f"{server.address}/openai/v1" if fields else server.base_url
    conn_id = connect(**fields | {"host": host, "password": "secret-key"})
    with pytest.raises(ModelConnectionError, match=rf"the key \({status}\); correct its password$") as raised:
        check(conn_id)
    assert "secret-key" not in str(raised.value)


@pytest.mark.parametrize("unlisted", [403, 502])
def test_a_key_that_may_call_its_model_and_see_no_list(connect: Connect, provider: Serve, unlisted: int) -> None:
    server = provider(lambda asked: failure(unlisted if asked.path == "/v1/models" else 400))
    check(connect(host=f"{server.address}/v1", password="secret-key"))
    assert (server.last.path, server.last.body) == ("/v1/chat/completions", {"model": "m"})


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_server_that_is_starting_behind_a_proxy(connect: Connect, provider: Serve, status: int) -> None:
    conn_id = connect(host=provider(answering(status)).base_url, password="secret-key")
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
def test_a_key_that_no_header_can_carry(connect: Connect, provider: Serve, key: str, own: bool) -> None:
    fields = {"host": provider(answering(200)).base_url} if own else {}
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

    both = provider(lambda asked: failure(400, "there is no prompt"))
    connect(host=f"{both.address}/v1", password="secret-key", extra={"model": "openai-chat:m"})
    check_harness(target_upstream(conn_id, None, harness), harness)
    assert (both.last.path, both.last.body) == (path, {"model": "m"})
    connect(host="http://127.0.0.1:1/v1", extra={"model": "openai-chat:m"})
    with pytest.raises(ModelUnreachable, match=r"^connection model_test: no model server answers"):
        check_harness(target_upstream(conn_id, None, harness), harness)


def test_every_fallback_is_checked(connect: Connect, provider: Serve) -> None:
    first, second = provider(answering(200)), provider(answering(401))
    connect("second", host=second.base_url, password="key-2", extra={"model": "openai-chat:m2"})
    extra = {"model": "openai-chat:m1", "fallback_conn_ids": ["second"]}
    conn_id = connect(host=first.base_url, password="key-1", extra=extra)
    with pytest.raises(ModelConnectionError, match=r"^connection second: .* refuses the key \(401\)"):
        check(conn_id)
    seen = [(one.path, one.headers["authorization"]) for one in (*first.requests, *second.requests)]
    assert seen == [("/v1/models", "Bearer key-1"), ("/v1/models", "Bearer key-2")]
