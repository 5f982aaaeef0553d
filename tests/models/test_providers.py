"""Each provider's connection against a server that takes only what the provider documents: the target by the gateway's
backend, the optimizer by Airflow's hook."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart

from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.config.sampling import sampling_settings
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.types import Message, ModelCall
from skillopt_airflow.models.connection import optimizer_model, target_dialect, target_upstream
from skillopt_airflow.models.optimizer import PydanticAIOptimizer
from skillopt_airflow.models.server_check import check
from skillopt_airflow.models.target import PydanticAITarget
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from tests.gateway import dialects
from tests.gateway.scripted_provider import Document, failure
from tests.gateway.through_backend import ask
from tests.models.conftest import Connect, Serve

KEY = "distinctive-key-1"
Request = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_key_in_the_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # Below that, botocore logs its headers, which Airflow masks.
    caplog.set_level(logging.INFO)
    yield
    logged = [record.getMessage() for record in caplog.get_records("call")]
    assert not [line for line in logged for secret in (KEY, "entra-token", "cli-token") if secret in line]


class Order(BaseModel):
    order: list[int]


ARGUMENTS = {"order": [1, 0]}


def optimize(conn_id: str, max_attempts: int = 1, **settings: Any) -> Order:
    calls: list[ModelCall] = []
    chosen = sampling_settings(target_dialect(conn_id, None), **settings)
    model = optimizer_model(conn_id, None)
    with PydanticAIOptimizer(model, calls.append, chosen, max_attempts=max_attempts) as optimizer:
        ordered = optimizer.ask("rank", "Order them.", "the edits", Order)
    assert [(call.http_status, call.prompt_tokens, call.completion_tokens) for call in calls] == [(200, 11, 3)]
    return ordered


def text_of(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def thought(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))


@pytest.mark.parametrize(("dialect", "path"), [("openai-chat", "/v1/chat/completions"), ("openai", "/v1/responses")])
def test_openai(connect: Connect, provider: Serve, dialect: str, path: str) -> None:
    server = provider(dialects.openai(KEY, ARGUMENTS))
    conn_id = connect(host=server.base_url, password=KEY, extra={"model": f"{dialect}:gpt-4.1"})
    check(conn_id)
    response = ask(target_upstream(conn_id, None))
    assert (text_of(response), response.usage.input_tokens, response.usage.output_tokens) == ("Paris", 11, 3)
    assert (server.last.path, server.last.body["model"]) == (path, "gpt-4.1")
    assert optimize(conn_id).order == [1, 0]
    assert server.last.path == path


def test_openais_knobs(connect: Connect, provider: Serve) -> None:
    server = provider(dialects.openai(KEY, ARGUMENTS))
    conn_id = connect(host=server.base_url, password=KEY, extra={"model": "openai-chat:gpt-4.1"})
    ask(target_upstream(conn_id, None), temperature=0.3, max_tokens=99)
    sent = server.last.body
    assert (sent["temperature"], sent["max_completion_tokens"]) == (0.3, 99)
    assert "reasoning_effort" not in sent
    for model, effort in (("openai-chat:gpt-5", "reasoning_effort"), ("openai:gpt-5", "reasoning")):
        ask(target_upstream(conn_id, model), reasoning_effort="low")
        assert server.last.body[effort] in ("low", {"effort": "low"})
    ask(target_upstream(conn_id, "openai:gpt-4.1"), temperature=0.3, max_tokens=99)
    sent = server.last.body
    assert (sent["temperature"], sent["max_output_tokens"]) == (0.3, 99)
    connect(host=server.base_url, password=KEY, extra={"model": "openai:gpt-5"})
    optimize(conn_id, reasoning_effort="high")
    assert server.last.body["reasoning"]["effort"] == "high"


@pytest.mark.nightly
@pytest.mark.parametrize("client_id", [None, "", "11111111-2222-3333-4444-555555555555"])
@pytest.mark.parametrize("dated", [False, True])
def test_azure_with_a_key_or_a_managed_identity(
    connect: Connect, provider: Serve, monkeypatch: pytest.MonkeyPatch, client_id: str | None, dated: bool
) -> None:
    """A managed identity's token is from the machine's metadata service, which azure-identity asks."""
    metadata = provider(dialects.instance_metadata("entra-token", client_id))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.address)
    key = KEY if client_id is None else "entra-token"
    header = ("api-key", key) if dated and client_id is None else ("authorization", f"Bearer {key}")
    server = provider(
        dialects.azure_dated("deployed", "2024-10-21", *header, ARGUMENTS)
        if dated
        else dialects.openai(key, ARGUMENTS, prefix="/openai/v1")
    )
    extra = {"model": "azure:deployed"}
    extra |= {} if client_id is None else {"azure_auth": "managed_identity"}
    extra |= {"client_id": client_id} if client_id else {}
    extra |= {"api_version": "2024-10-21"} if dated else {}
    fields = {"password": KEY} if client_id is None else {}
    host = server.address if dated else f"{server.address}/openai/v1"
    conn_id = connect(conn_type="pydanticai_azure", host=host, extra=extra, **fields)
    check(conn_id)
    assert text_of(ask(target_upstream(conn_id, None))) == "Paris"
    assert text_of(ask(target_upstream(conn_id, "azure-responses:deployed"), reasoning_effort="low")) == "Paris"
    assert server.last.body["reasoning"] == {"effort": "low"}
    asked = len(metadata.requests)
    assert optimize(conn_id, reasoning_effort="low").order == [1, 0]
    assert server.last.body["reasoning_effort"] == "low"
    assert len(metadata.requests) <= asked + (client_id is not None)


LOGGED_IN = """#!/bin/sh
test "$*" = "account get-access-token --output json --resource {resource}" || exit 2
echo '{{"accessToken": "cli-token", "expiresOn": "2100-01-01 00:00:00.000000", "tokenType": "Bearer"}}'
"""
"""The Azure CLI, as far as it gives tokens."""
FOUNDRY, GOVERNMENT = "https://ai.azure.com", "https://cognitiveservices.azure.us"


def test_an_azure_token_is_for_the_scope_that_the_connection_names(
    connect: Connect, provider: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = provider(dialects.instance_metadata("entra-token", resource=FOUNDRY))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.address)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "az").touch(0o755)
    for kind, token, resource in (
        ("managed_identity", "entra-token", FOUNDRY),
        ("cli", "cli-token", GOVERNMENT),
        ("cli", "cli-token", ""),
    ):
        (tmp_path / "az").write_text(LOGGED_IN.format(resource=resource or "https://cognitiveservices.azure.com"))
        server = provider(dialects.openai(token, ARGUMENTS, prefix="/openai/v1"))
        extra = {"model": "azure:deployed", "azure_auth": kind}
        extra |= {"azure_scope": f"{resource}/.default"} if resource else {}
        conn_id = connect(conn_type="pydanticai_azure", host=f"{server.address}/openai/v1", extra=extra)
        check(conn_id)
        assert text_of(ask(target_upstream(conn_id, None))) == "Paris"
        assert optimize(conn_id).order == [1, 0]


def test_anthropic(connect: Connect, provider: Serve) -> None:
    server = provider(dialects.anthropic(KEY, ARGUMENTS))
    conn_id = connect(host=server.address, password=KEY, extra={"model": "anthropic:claude-haiku-4-5"})
    check(conn_id)
    response = ask(target_upstream(conn_id, None))
    assert (text_of(response), response.usage.input_tokens, response.usage.output_tokens) == ("Paris", 11, 3)
    assert server.last.body["max_tokens"] == 2048
    assert server.last.headers["x-api-key"] == KEY
    assert "thinking" not in server.last.body
    assert optimize(conn_id).order == [1, 0]


ADAPTIVE = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    ("model", "knobs", "sent"),
    [
        ("claude-haiku-4-5", {"reasoning_effort": "high"}, {"thinking": {"type": "enabled", "budget_tokens": 16384}}),
        ("claude-haiku-4-5", {"reasoning_effort": "on"}, {"thinking": {"type": "enabled", "budget_tokens": 10000}}),
        ("claude-haiku-4-5", {"reasoning_effort": 3000}, {"thinking": {"type": "enabled", "budget_tokens": 3000}}),
        ("claude-haiku-4-5", {"reasoning_effort": "off"}, {}),
        ("claude-haiku-4-5", {}, {}),
        ("claude-sonnet-5", {"reasoning_effort": "low"}, ADAPTIVE),
        ("claude-sonnet-5", {"reasoning_effort": "off"}, {"thinking": {"type": "disabled"}}),
    ],
)
def test_anthropics_thinking(connect: Connect, provider: Serve, model: str, knobs: Request, sent: Request) -> None:
    server = provider(dialects.anthropic(KEY))
    conn_id = connect(host=server.address, password=KEY, extra={"model": f"anthropic:{model}"})
    response = ask(target_upstream(conn_id, None), max_tokens=20_000, **knobs)
    assert {name: server.last.body[name] for name in ADAPTIVE.keys() & server.last.body.keys()} == sent
    thinks = knobs.get("reasoning_effort") != "off" and knobs != {}
    assert (text_of(response), bool(thought(response))) == ("Paris", thinks)


@pytest.mark.parametrize("thinking", ["on", "off", None])
@pytest.mark.parametrize("server_side", [{"parser": True}, {"parser": False}])
def test_qwen_on_vllm(connect: Connect, provider: Serve, thinking: str | None, server_side: dict[str, bool]) -> None:
    server = provider(dialects.vllm(**server_side))
    conn_id = connect(host=server.base_url, extra={"model": "openai-chat:Qwen/Qwen3-8B"})
    check(conn_id)
    response = ask(target_upstream(conn_id, None), reasoning_effort=thinking)
    assert server.last.body.get("chat_template_kwargs") == (
        None if thinking is None else {"enable_thinking": thinking == "on"}
    )
    assert "authorization" not in server.last.headers
    assert text_of(response).strip() == "Paris"
    assert thought(response) == ("" if thinking == "off" else "France, so")


def test_thinking_that_the_template_opened_is_no_answer(connect: Connect, provider: Serve) -> None:
    server = provider(dialects.vllm(parser=False, opened=False))
    conn_id = connect(host=server.base_url, extra={"model": "openai-chat:Qwen/Qwen3.5-9B"})
    with PydanticAITarget(optimizer_model(conn_id, None), lambda call: None, {"max_tokens": 99}) as target:
        answer = target.ask("follow_up", [Message(role="user", content="The capital of France?")], {})
    assert answer.strip() == "Paris"


def test_minimax_by_chat_completions_and_by_its_messages(connect: Connect, provider: Serve) -> None:
    server = provider(dialects.minimax(KEY, ARGUMENTS))
    conn_id = connect(host=server.base_url, password=KEY, extra={"model": "openai-chat:MiniMax-M2.7"})
    response = ask(target_upstream(conn_id, None), temperature=1.0)
    assert (text_of(response).strip(), thought(response).strip()) == ("Paris", "France, so")
    host = f"{server.address}/anthropic"
    conn_id = connect(host=host, password=KEY, extra={"model": "anthropic:MiniMax-M2.7"})
    check(conn_id)
    assert text_of(ask(target_upstream(conn_id, None), temperature=0.3)) == "Paris"
    assert server.last.body["temperature"] == 0.3
    assert optimize(conn_id).order == [1, 0]
    assert server.last.path == "/anthropic/v1/messages"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("credentials", "authorization"),
    [
        ({"aws_access_key_id": "AKIATEST", "aws_secret_access_key": KEY}, "AWS4-HMAC-SHA256 Credential=AKIATEST/"),
        ({"api_key": KEY}, f"Bearer {KEY}"),
    ],
)
def test_bedrock(connect: Connect, provider: Serve, credentials: dict[str, str], authorization: str) -> None:
    model = "amazon.nova-lite-v1:0"
    server = provider(dialects.bedrock(model, authorization, ARGUMENTS))
    extra = {"model": f"bedrock:{model}", "region_name": "eu-west-1", "base_url": server.address} | credentials
    conn_id = connect(conn_type="pydanticai_bedrock", extra=extra)
    check(conn_id)
    response = ask(target_upstream(conn_id, None), temperature=0.3, max_tokens=99)
    assert (text_of(response), response.usage.input_tokens, response.usage.output_tokens) == ("Paris", 11, 3)
    sent = server.last.body
    assert sent["inferenceConfig"] == {"maxTokens": 99, "temperature": 0.3}
    assert (sent["system"], sent["messages"]) == (
        [{"text": "the skill"}],
        [{"role": "user", "content": [{"text": "The capital of France?"}]}],
    )
    assert optimize(conn_id).order == [1, 0]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDKs' pauses between two tries, without the waiting."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("anthropic._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda **_: 0.01)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("fields", "tries"),
    [
        ({"extra": {"model": "openai-chat:m"}}, 3),
        ({"extra": {"model": "openai:m"}}, 3),
        ({"extra": {"model": "anthropic:m"}}, 3),
        (
            {
                "conn_type": "pydanticai_bedrock",
                "extra": {"model": "bedrock:amazon.nova-lite-v1:0", "region_name": "eu-west-1", "api_key": KEY},
            },
            5,
        ),
    ],
)
def test_an_optimizers_client_tries_again_by_itself(
    connect: Connect, provider: Serve, fields: dict[str, Any], tries: int
) -> None:
    server = provider(lambda asked: failure(503))
    fields["extra"] |= {"base_url": server.address} if "conn_type" in fields else {}
    conn_id = connect(**({"host": server.address, "password": KEY} | fields))
    with pytest.raises(ModelError, match=r"^rank: the optimizer model answered 503"):
        optimize(conn_id, max_attempts=3)
    assert len(server.requests) == tries


@pytest.mark.usefixtures("hurried")
def test_an_optimizers_fallback_answers_when_the_first_cannot(connect: Connect, provider: Serve) -> None:
    first, second = provider(lambda asked: failure(503)), provider(dialects.anthropic(KEY, ARGUMENTS))
    connect("second", host=second.address, password=KEY, extra={"model": "anthropic:claude-haiku-4-5"})
    conn_id = connect(
        host=f"{first.address}/v1", password="key-1", extra={"model": "openai:gpt-5", "fallback_conn_ids": ["second"]}
    )
    assert optimize(conn_id, reasoning_effort="low").order == [1, 0]
    assert first.last.body["reasoning"]["effort"] == "low"
    assert second.last.body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    connect("unreachable", host="http://127.0.0.1:9/v1", extra={"model": "openai:m", "fallback_conn_ids": ["second"]})
    assert optimize("unreachable").order == [1, 0]
    connect("second", host=first.address, password=KEY, extra={"model": "anthropic:claude-haiku-4-5"})
    with pytest.raises(ModelError, match=r"^rank: .*503.*; .*503"):
        optimize(conn_id)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("status", [400, 401, 404])
def test_no_fallback_hides_what_is_wrong_with_an_optimizers_connection(
    connect: Connect, provider: Serve, status: int
) -> None:
    first, second = provider(lambda asked: failure(status)), provider(dialects.anthropic(KEY, ARGUMENTS))
    connect("second", host=second.address, password=KEY, extra={"model": "anthropic:claude-haiku-4-5"})
    extra = {"model": "openai:gpt-5", "fallback_conn_ids": ["second"]}
    conn_id = connect(host=f"{first.address}/v1", password="key-1", extra=extra)
    with pytest.raises(ModelError, match=rf"^rank: the optimizer model answered {status}"):
        optimize(conn_id)
    assert second.requests == []


@pytest.mark.usefixtures("hurried")
def test_a_question_to_the_target_takes_no_longer_than_a_call_of_the_run(connect: Connect, provider: Serve) -> None:
    def slow(request: object) -> Document:
        time.sleep(1.0)
        return {}

    server = provider(slow)
    connect("skillopt_target", host=server.base_url, password=KEY)
    model = ModelGroup(target_conn_id="skillopt_target", call_timeout=0.2)
    with (
        AirflowConnections().target(model, lambda call: None, lambda: None) as target,
        pytest.raises(ModelError, match="timed out"),
    ):
        target.ask("follow_up", [Message(role="user", content="Why?")], {})
    assert 4 <= len(server.requests) <= 5


@pytest.mark.usefixtures("hurried")
def test_a_key_that_a_server_repeats_is_in_no_error(connect: Connect, provider: Serve) -> None:
    server = provider(lambda asked: failure(401, f"incorrect key {KEY}"))
    own = {"host": server.base_url, "password": KEY}
    names = [connect(f"skillopt_{role}", **own) for role in ("target", "optimizer", "judge")]
    target, optimizer, _ = names
    model = ModelGroup(target_conn_id=target, optimizer_conn_id=optimizer, judge="openai-chat:m")
    models = AirflowConnections()
    with (
        models.target(model, lambda call: None, lambda: None) as asked,
        pytest.raises(ModelError, match=r"incorrect key \*\*\*"),
    ):
        asked.ask("follow_up", [Message(role="user", content="Why?")], {})
    for opened in (models.optimizer, models.judge):
        with (
            opened(model, lambda call: None, lambda: None) as other,
            pytest.raises(ModelError, match=r"incorrect key \*\*\*"),
        ):
            other.ask("rank", "Order them.", "the edits", Order)


@pytest.mark.parametrize("harness", ["chat", "codex"])
def test_the_models_of_a_run(connect: Connect, provider: Serve, harness: str) -> None:
    """A run's knobs on their way to the gateway's upstream, the target's questions and the optimizer."""
    server = provider(dialects.openai(KEY, ARGUMENTS))
    for conn_id, model in (("skillopt_target", "openai-chat:gpt-5"), ("skillopt_optimizer", "openai:gpt-5")):
        connect(conn_id, host=server.base_url, password=KEY, extra={"model": model})
    knobs = {"harness": harness, "reasoning_effort": "low"}
    knobs |= {"optimizer_reasoning_effort": "max", "optimizer_max_tokens": 500}
    model = TrainConfig.from_layers({"model": knobs}).model
    models, calls = AirflowConnections(), list[ModelCall]()
    assert models.upstream(model).dialect == ("openai" if harness == "codex" else "openai-chat")
    with models.target(model, calls.append, lambda: None) as target:
        assert target.ask("follow_up", [Message(role="user", content="Why?")], {}) == "Paris"
    sent = server.last.body
    assert (sent["reasoning_effort"], sent["max_completion_tokens"]) == ("low", 16384)
    with models.optimizer(model, calls.append, lambda: None) as optimizer:
        optimizer.ask("rank", "Order them.", "the edits", Order)
    assert (server.last.body["reasoning"]["effort"], server.last.body["max_output_tokens"]) == ("max", 500)
    assert [call.role for call in calls] == ["target", "optimizer"]
