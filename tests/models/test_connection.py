import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from local.served import served
from skillopt_airflow.core.errors import (
    ConfigError,
    ModelConnectionError,
    ModelError,
    ModelUnavailable,
    ModelUnreachable,
)
from skillopt_airflow.core.harnesses import HarnessName
from skillopt_airflow.core.resource_groups import ModelGroup
from skillopt_airflow.models.connection import (
    check,
    check_harness,
    check_optimizer,
    model_name,
    optimizer_model,
    target_dialect,
    target_upstream,
)
from skillopt_airflow.models.providers import check_sampling
from tests.gateway import dialects
from tests.gateway.dialect_server import Document, Refusal, Request
from tests.models.conftest import Connect, Serve


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
    assert model_name(conn_id, "openai:x") == "openai:x"
    upstream = target_upstream(conn_id, "openai:x")
    assert (upstream.dialect, upstream.base_url) == ("openai", "https://api.openai.com/v1")
    upstream = target_upstream(connect(password="secret-key", extra={}), "anthropic:x")
    assert (upstream.dialect, upstream.base_url) == ("anthropic", "https://api.anthropic.com/v1")


@pytest.mark.parametrize(
    ("own", "model"),
    [("openai-chat:m", "anthropic:x"), ("openai-chat:m", "mistral:x"), ("mistral:m", "openai:x")],
)
def test_the_key_of_a_provider_is_not_sent_to_another(connect: Connect, own: str, model: str) -> None:
    conn_id = connect(password="secret-key", extra={"model": own})
    said = rf"^connection model_test: it has no host and its own model is {own}, .*; for {model} use a connection of"
    for ask in (target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match=said):
            ask(conn_id, model)
    assert model_name(connect(host="http://127.0.0.1:9/v1", extra={"model": own}), model) == model


def test_an_optimizer_model(connect: Connect) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1", password="secret-key", extra={"model": "openai-chat:m"})
    assert optimizer_model(conn_id, None).model_name == "m"
    assert optimizer_model(conn_id, "openai-chat:other").model_name == "other"


@pytest.mark.parametrize(
    ("host", "model", "newer"),
    [
        ("https://api.mistral.ai/v1", "openai-chat:mistral-small-latest", False),
        ("https://api.deepseek.com", "openai-chat:deepseek-chat", False),
        ("http://127.0.0.1:9/v1", "openai-chat:mistral-small-latest", True),
    ],
)
def test_an_optimizer_is_told_its_limit_by_the_name_that_the_server_knows(
    connect: Connect, host: str, model: str, newer: bool
) -> None:
    asked = optimizer_model(connect(host=host, password="secret-key", extra={"model": model}), None)
    assert asked.profile.get("openai_chat_supports_max_completion_tokens", True) is newer


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


@pytest.mark.parametrize("status", [301, 302, 308])
def test_a_redirect_that_no_call_would_follow(connect: Connect, serve: Callable[[int], Server], status: int) -> None:
    host = f"http://127.0.0.1:{serve(status).server_port}/v1"
    message = f"connection model_test: {host} redirects to https://elsewhere/v1; correct its host"
    with pytest.raises(ModelConnectionError, match=f"^{re.escape(message)}$"):
        check(connect(host=host, password="secret-key"))


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
    def answer(request: Request) -> Document:
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


def test_a_vendors_connection_may_leave_the_provider_out(connect: Connect) -> None:
    extra = {"model": "us.anthropic.claude-haiku-4-5-20251001-v1:0", "region_name": "eu-west-1"}
    conn_id = connect(conn_type="pydanticai_bedrock", extra=extra)
    assert model_name(conn_id, None) == "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0"
    upstream = target_upstream(conn_id, None)
    assert (upstream.provider, upstream.dialect, upstream.base_url) == ("bedrock", "openai-chat", "")


@pytest.mark.parametrize(
    ("conn_type", "model", "wanted"),
    [
        ("pydanticai", "azure:m", "pydanticai_azure"),
        ("pydanticai", "bedrock:m", "pydanticai_bedrock"),
        ("pydanticai_azure", "openai-chat:m", "pydanticai"),
        ("pydanticai_bedrock", "azure:m", "pydanticai_azure"),
    ],
)
def test_a_type_that_does_not_lead_to_the_provider(connect: Connect, conn_type: str, model: str, wanted: str) -> None:
    conn_id = connect(conn_type=conn_type, host="http://127.0.0.1:9", password="secret-key", extra={"model": model})
    for ask in (model_name, target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match=rf"^connection model_test: type .*; use type '{wanted}'$"):
            ask(conn_id, None)


def test_a_provider_of_pydantic_ai_without_a_dialect_of_ours_is_translated(connect: Connect) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1", password="secret-key", extra={"model": "vllm:Qwen/Qwen3-8B"})
    upstream = target_upstream(conn_id, None)
    assert (upstream.provider, upstream.model) == ("vllm", "Qwen/Qwen3-8B")
    assert upstream.secrets() == {"secret-key"}
    assert target_dialect(conn_id, None) is None
    check(conn_id)


def test_what_a_translated_provider_lacks_shows_in_the_check(connect: Connect) -> None:
    conn_id = connect(conn_type="pydanticai_bedrock", extra={"model": "bedrock:amazon.nova-lite-v1:0"})
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: .*region"):
        check(conn_id)


AZURE = {"conn_type": "pydanticai_azure", "password": "secret-key", "host": "https://r.openai.azure.com/openai/v1"}


@pytest.mark.parametrize(
    ("fields", "extra", "message"),
    [
        ({"host": None}, {}, "it has no host; set the resource's endpoint"),
        ({"host": "https://r.openai.azure.com"}, {}, "its host needs an api_version; end the host in /openai/v1"),
        ({}, {"api_version": "2024-10-21"}, "a host that ends in /v1 takes no api_version"),
        ({"password": None}, {}, 'it has no password; set the key, or {"azure_auth": "managed_identity"}'),
        ({}, {"azure_auth": "cli"}, "it has a password and azure_auth; keep one of them"),
        ({"password": None}, {"azure_auth": "browser"}, 'azure_auth is "managed_identity" or "cli"'),
        ({"password": None}, {"azure_auth": "cli", "client_id": "c"}, "client_id is for a managed identity"),
        (
            {"password": None},
            {"azure_auth": "cli", "azure_scope": "ai.azure.com"},
            'azure_auth is "managed_identity" or "cli", client_id a text, and azure_scope an address such as',
        ),
        ({}, {"azure_scope": "https://ai.azure.com/.default"}, "azure_scope is what an identity's token is for"),
    ],
)
def test_azures_fields(connect: Connect, fields: dict[str, Any], extra: dict[str, str], message: str) -> None:
    conn_id = connect(**(AZURE | fields | {"extra": {"model": "azure:deployed"} | extra}))
    for ask in (target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match="^connection model_test: " + re.escape(message)) as raised:
            ask(conn_id, None)
        assert "secret-key" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "version", "base_url"),
    [
        ("https://r.openai.azure.com/openai/v1/", None, "https://r.openai.azure.com/openai/v1"),
        ("https://m.models.ai.azure.com", None, "https://m.models.ai.azure.com/v1"),
        ("https://r.openai.azure.com/", "2024-10-21", "https://r.openai.azure.com/openai"),
        ("https://r.openai.azure.com/openai", "2024-10-21", "https://r.openai.azure.com/openai"),
    ],
)
def test_azures_addresses(connect: Connect, host: str, version: str | None, base_url: str) -> None:
    extra = {"model": "azure:deployed"} | ({"api_version": version} if version else {})
    upstream = target_upstream(connect(**(AZURE | {"host": host, "extra": extra})), None)
    assert (upstream.base_url, upstream.deployments) == (base_url, version is not None)


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


def test_anthropics_address_with_the_version_that_its_client_adds(connect: Connect) -> None:
    conn_id = connect(host="https://api.anthropic.com/v1", password="secret-key", extra={"model": "anthropic:m"})
    for ask in (target_upstream, optimizer_model):
        with pytest.raises(
            ModelConnectionError, match=r"^connection model_test: its host ends in /v1, .*; leave it out$"
        ):
            ask(conn_id, None)


@pytest.mark.parametrize(
    ("fields", "harness", "dialect", "base_url"),
    [
        ({"extra": {"model": "openai-chat:m"}}, "codex", "openai", "https://api.openai.com/v1"),
        ({"extra": {"model": "anthropic:m"}}, "claude_code", "anthropic", "https://api.anthropic.com/v1"),
        ({"extra": {"model": "anthropic:m"}}, "tools", "anthropic", "https://api.anthropic.com/v1"),
        ({"host": "http://vllm/v1", "extra": {"model": "openai-chat:m"}}, "claude_code", "anthropic", "http://vllm/v1"),
        ({"host": "http://own", "extra": {"model": "anthropic:m"}}, "codex", "openai", "http://own/v1"),
        (AZURE | {"extra": {"model": "azure:m"}}, "codex", "openai", "https://r.openai.azure.com/openai/v1"),
    ],
)
def test_the_agent_clis_send_their_own_wire_format(
    connect: Connect, fields: dict[str, Any], harness: HarnessName, dialect: str, base_url: str
) -> None:
    upstream = target_upstream(connect(**({"password": "secret-key"} | fields)), None, harness)
    assert (upstream.dialect, upstream.base_url) == (dialect, base_url)


@pytest.mark.parametrize(
    ("fields", "harness", "path"),
    [
        ({"extra": {"model": "openai-chat:m"}}, "claude_code", "/v1/messages"),
        ({"extra": {"model": "openai:m"}}, "claude_code", "/v1/messages"),
        ({"extra": {"model": "anthropic:m"}}, "codex", "/v1/responses"),
        (AZURE | {"extra": {"model": "azure:m"}}, "claude_code", "/v1/messages"),
        ({"conn_type": "pydanticai_bedrock", "extra": {"model": "bedrock:m"}}, "codex", "/v1/responses"),
        ({"conn_type": "pydanticai_bedrock", "extra": {"model": "bedrock:m"}}, "claude_code", "/v1/messages"),
    ],
)
def test_a_harness_that_the_server_does_not_understand(
    connect: Connect, fields: dict[str, Any], harness: HarnessName, path: str
) -> None:
    conn_id = connect(**({"password": "secret-key"} | fields))
    with pytest.raises(
        ModelConnectionError,
        match=rf"^connection model_test: model.harness {harness} posts {path}, which [\w-]+ does not have; use harness",
    ):
        target_upstream(conn_id, None, harness)


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

    def demanding(request: Request) -> Document:
        raise Refusal(400, "there is no prompt")

    both = provider(demanding)
    connect(host=f"{both.address}/v1", password="secret-key", extra={"model": "openai-chat:m"})
    check_harness(target_upstream(conn_id, None, harness), harness)
    assert (both.last.path, both.last.body) == (path, {"model": "m"})
    connect(host="http://127.0.0.1:1/v1", extra={"model": "openai-chat:m"})
    with pytest.raises(ModelUnreachable, match=r"^connection model_test: no model server answers"):
        check_harness(target_upstream(conn_id, None, harness), harness)


@pytest.mark.parametrize(
    ("model", "knobs", "message"),
    [
        ("openai:m", {"seed": 7}, "model.seed = 7: requests to /v1/responses have no field"),
        ("anthropic:m", {"seed": 0}, "model.seed = 0: requests to /v1/messages have no field"),
        ("openai-chat:m", {"seed": 7, "harness": "codex"}, "model.seed = 7: requests to /v1/responses have no field"),
        ("openai:m", {"thinking": "off"}, "model.thinking = 'off': requests to /v1/responses have no such switch"),
        ("anthropic:m", {"image_detail": "low"}, "model.image_detail = 'low': requests to /v1/messages have no field"),
        (
            "openai:m",
            {"harness": "codex", "image_detail": "low"},
            "model.image_detail = 'low': the CLI of harness codex",
        ),
        (
            "openai:m",
            {"thinking_budget": 512},
            "model.thinking_budget = 512: requests to /v1/responses have no limit to thinking in tokens; unset it, and "
            "set model.reasoning_effort",
        ),
        (
            "anthropic:m",
            {"temperature": 0.5},
            "model.temperature = 0.5: Anthropic's own API takes no temperature; unset",
        ),
        (
            "openai-chat:m",
            {"harness": "codex", "temperature": 0.0},
            "model.temperature = 0.0: the CLI of harness codex",
        ),
    ],
)
def test_knobs_that_the_target_would_never_be_told(
    connect: Connect, model: str, knobs: dict[str, Any], message: str
) -> None:
    group = ModelGroup(**knobs)
    upstream = target_upstream(connect(password="secret-key", extra={"model": model}), None, group.harness)
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        check_sampling(upstream, group)


def test_a_temperature_goes_to_servers_that_are_like_anthropics(connect: Connect) -> None:
    minimax = connect(host="https://api.minimax.io/anthropic", password="k", extra={"model": "anthropic:MiniMax-M2.7"})
    check_sampling(target_upstream(minimax, None), ModelGroup(temperature=0.5))
    check_optimizer(ModelGroup(optimizer_conn_id=minimax, optimizer_temperature=0.5))
    claude = connect("claude", host="https://api.anthropic.com/", password="k", extra={"model": "anthropic:m"})
    fallen = connect(password="k", extra={"model": "openai:m", "fallback_conn_ids": [claude]})
    with pytest.raises(ConfigError, match=r"^model\.optimizer_temperature = 0.0: Anthropic's own API takes no"):
        check_optimizer(ModelGroup(optimizer_conn_id=fallen, optimizer_temperature=0.0))


def test_the_optimizers_thinking_is_switched_where_there_is_a_switch(connect: Connect) -> None:
    named = connect(extra={"model": "openai:m"})
    message = r"^model\.optimizer_thinking = 'off': .* no such switch; unset it, and set model\.optimizer_reasoning_eff"
    with pytest.raises(ConfigError, match=message):
        check_optimizer(ModelGroup(optimizer_conn_id=named, optimizer_thinking="off"))
    check_optimizer(ModelGroup(optimizer_conn_id=connect(extra={"model": "openai-chat:m"}), optimizer_thinking="off"))


def test_a_limit_to_thinking_goes_where_there_is_one(connect: Connect) -> None:
    group = ModelGroup(thinking_budget=512)
    check_sampling(target_upstream(connect(password="k", extra={"model": "anthropic:m"}), None), group)
    check_sampling(target_upstream(connect(host="http://127.0.0.1:9/v1"), None), group)
    claude = {"model": "bedrock:eu.anthropic.claude-haiku-4-5", "region_name": "eu-west-1"}
    check_sampling(target_upstream(connect(conn_type="pydanticai_bedrock", extra=claude), None), group)
    nova = connect(conn_type="pydanticai_bedrock", extra=claude | {"model": "bedrock:amazon.nova-lite-v1:0"})
    message = r"^model\.thinking_budget = 512: requests to bedrock, for model amazon\.nova-lite-v1:0, have no limit"
    with pytest.raises(ConfigError, match=message):
        check_sampling(target_upstream(nova, None), group)
    optimizer = ModelGroup(optimizer_conn_id=nova, optimizer_thinking_budget=512)
    with pytest.raises(ConfigError, match=r"^model\.optimizer_thinking_budget = 512: .* set model\.optimizer_reas"):
        check_optimizer(optimizer)
    check_optimizer(optimizer.model_copy(update={"optimizer_thinking_budget": None}))


def test_knobs_that_the_target_is_told(connect: Connect) -> None:
    check_sampling(target_upstream(connect(extra={"model": "openai:m"}), None), ModelGroup(image_detail="original"))
    everything = ModelGroup(seed=7, thinking="on", temperature=0.5, reasoning_effort="low")
    check_sampling(target_upstream(connect(password="k"), None), everything)
    vllm = connect(host="http://127.0.0.1:9/v1", extra={"model": "vllm:Qwen/Qwen3-8B"})
    check_sampling(target_upstream(vllm, None), everything)
    claude = target_upstream(connect(password="k", extra={"model": "anthropic:m"}), None, "claude_code")
    check_sampling(claude, ModelGroup(harness="claude_code", thinking="off", reasoning_effort="low"))
    bedrock = connect(conn_type="pydanticai_bedrock", extra={"model": "bedrock:m", "region_name": "eu-west-1"})
    check_sampling(target_upstream(bedrock, None), everything.model_copy(update={"seed": None}))
    with pytest.raises(ConfigError, match=r"^model.seed = 7: requests to bedrock have no field for a seed"):
        check_sampling(target_upstream(bedrock, None), everything)


def test_fallbacks_of_a_target_in_their_order(connect: Connect) -> None:
    connect("second", host="http://127.0.0.1:8/v1", password="key-2", extra={"model": "openai-chat:m2"})
    connect("third", conn_type="pydanticai_bedrock", extra={"model": "bedrock:m3", "region_name": "eu-west-1"})
    conn_id = connect(
        host="http://127.0.0.1:9/v1",
        password="key-1",
        extra={"model": "openai-chat:m1", "fallback_conn_ids": ["second", " third ", ""]},
    )
    upstream = target_upstream(conn_id, "openai-chat:configured")
    assert [(each.conn_id, each.model) for each in (upstream, *upstream.fallbacks)] == [
        (conn_id, "configured"),
        ("second", "m2"),
        ("third", "m3"),
    ]
    assert upstream.secrets() == {"key-1", "key-2"}
    model = optimizer_model(conn_id, None)
    assert model.model_name == "fallback:m1,m2,m3"


def test_a_fallback_in_another_wire_format(connect: Connect) -> None:
    connect("second", password="key-2", extra={"model": "anthropic:m2"})
    conn_id = connect(password="key-1", extra={"model": "openai-chat:m1", "fallback_conn_ids": ["second"]})
    with pytest.raises(
        ModelConnectionError, match=r"^connection second: it speaks anthropic, and model_test, .* openai-c"
    ):
        target_upstream(conn_id, None)
    assert optimizer_model(conn_id, None).model_name == "fallback:m1,m2"
    assert target_dialect(conn_id, None) is None


@pytest.mark.parametrize(
    ("fallbacks", "message"),
    [
        ("second", "connection model_test: fallback_conn_ids is a list of connection ids, not 'second'"),
        ([7], "connection model_test: fallback_conn_ids is a list"),
        ({"second": 1}, "connection model_test: fallback_conn_ids is a list"),
        (["model_test"], "connection model_test: fallback_conn_ids names a connection twice, or the connection itself"),
        (["second", "second"], "connection model_test: fallback_conn_ids names a connection twice"),
        (["nested"], "connection nested: as a fallback of model_test it may have none of its own"),
        (["missing"], "connection missing does not exist"),
        (["unnamed"], "connection unnamed names no model"),
    ],
)
def test_fallbacks_that_cannot_be(connect: Connect, fallbacks: object, message: str) -> None:
    connect("second", password="key-2", extra={"model": "openai-chat:m2"})
    connect("nested", password="key-3", extra={"model": "openai-chat:m3", "fallback_conn_ids": ["second"]})
    connect("unnamed", password="key-4", extra={})
    conn_id = connect(password="key-1", extra={"model": "openai-chat:m1", "fallback_conn_ids": fallbacks})
    for ask in (target_upstream, optimizer_model, check):
        with pytest.raises(ModelConnectionError, match="^" + re.escape(message)):
            ask(conn_id, None)


def test_every_fallback_is_checked(connect: Connect, serve: Callable[[int], Server]) -> None:
    first, second = serve(200), serve(401)
    host = f"http://127.0.0.1:{second.server_port}/v1"
    connect("second", host=host, password="key-2", extra={"model": "openai-chat:m2"})
    extra = {"model": "openai-chat:m1", "fallback_conn_ids": ["second"]}
    conn_id = connect(host=f"http://127.0.0.1:{first.server_port}/v1", password="key-1", extra=extra)
    with pytest.raises(ModelConnectionError, match=r"^connection second: .* refuses the key \(401\)"):
        check(conn_id)
    assert (first.seen, second.seen) == ([("/v1/models", "Bearer key-1")], [("/v1/models", "Bearer key-2")])
