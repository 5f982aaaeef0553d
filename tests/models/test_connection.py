from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import Connection

from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.errors import ConfigError, ModelConnectionError
from skillopt_airflow.models.connection import (
    check_optimizer,
    model_name,
    optimizer_model,
    search_upstream,
    target_dialect,
    target_upstream,
)
from skillopt_airflow.models.providers import check_sampling
from skillopt_airflow.models.server_check import check
from tests.models.conftest import Connect


def test_the_configured_model_wins_and_a_provider_has_its_own_address(connect: Connect) -> None:
    conn_id = connect(password="secret-key", extra={"model": "openai-chat:m"})
    assert model_name(conn_id, None) == "openai-chat:m"
    assert model_name(conn_id, "openai:x") == "openai:x"
    upstream = target_upstream(conn_id, "openai:x")
    assert (upstream.dialect, upstream.base_url) == ("openai", "https://api.openai.com/v1")
    upstream = target_upstream(connect(password="secret-key", extra={}), "anthropic:x")
    assert (upstream.dialect, upstream.base_url) == ("anthropic", "https://api.anthropic.com/v1")


@pytest.mark.parametrize(
    ("own", "model"), [("openai-chat:m", "anthropic:x"), ("openai-chat:m", "mistral:x"), ("mistral:m", "openai:x")]
)
def test_the_key_of_a_provider_is_not_sent_to_another(connect: Connect, own: str, model: str) -> None:
    conn_id = connect(password="secret-key", extra={"model": own})
    for ask in (target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match=rf"^connection model_test: .* host .*{own}.*{model}"):
            ask(conn_id, model)
    assert model_name(connect(host="http://127.0.0.1:9/v1", extra={"model": own}), model) == model
    # Where the workers' environment has the keys, there is none to be sent to another.
    assert model_name(connect(extra={"model": own}), model) == model


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


def refused(conn_id: str, words: str, *ways: Callable[..., object]) -> None:
    """All ways to a model name the connection and what is wrong, and none shows its key."""
    for ask in ways or (target_upstream, optimizer_model):
        with pytest.raises(ModelConnectionError, match=f"^connection {words}") as found:
            ask(conn_id, None)
        assert "secret-key" not in str(found.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extra": None}, "model_test names no model"),
        ({"extra": {"model": ""}}, "model_test names no model"),
        ({"extra": {"model": 7}}, "model_test names no model"),
        ({"extra": ["openai-chat:m"]}, "model_test names no model"),
        ({"extra": {"model": "gpt-5"}}, "model_test: model 'gpt-5'"),
        ({"extra": {"model": "nope:m"}}, "model_test: model 'nope:m'"),
        ({"extra": {"model": "openai-chat:"}}, "model_test: model 'openai-chat:'"),
        ({"conn_type": "http"}, "model_test: .*'http'"),
    ],
)
def test_a_connection_without_a_model(connect: Connect, fields: dict[str, Any], words: str) -> None:
    refused(connect(**{"host": "http://127.0.0.1:9/v1", "password": "secret-key"} | fields), words)
    refused("model_missing", "model_missing does not exist", model_name, target_upstream, optimizer_model, check)


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
    refused(conn_id, f"model_test: type .* '{wanted}'$", model_name, target_upstream, optimizer_model)


def test_a_provider_of_pydantic_ai_without_a_dialect_of_ours_is_translated(connect: Connect) -> None:
    conn_id = connect(host="http://127.0.0.1:9/v1", password="secret-key", extra={"model": "vllm:Qwen/Qwen3-8B"})
    upstream = target_upstream(conn_id, None)
    assert (upstream.provider, upstream.model) == ("vllm", "Qwen/Qwen3-8B")
    assert upstream.secrets().keys() == {"secret-key"}
    assert target_dialect(conn_id, None) is None
    check(conn_id)


AZURE = {"conn_type": "pydanticai_azure", "password": "secret-key", "host": "https://r.openai.azure.com/openai/v1"}


@pytest.mark.parametrize(
    ("fields", "extra", "words"),
    [
        ({"host": None}, {}, "it has no host"),
        ({"host": "https://r.openai.azure.com"}, {}, "its host needs an api_version"),
        ({}, {"api_version": "2024-10-21"}, "a host that ends in /v1"),
        ({"password": None}, {}, "it has no password"),
        ({}, {"azure_auth": "cli"}, "it has a password and azure_auth"),
        ({"password": None}, {"azure_auth": "browser"}, "azure_auth"),
        ({"password": None}, {"azure_auth": "cli", "client_id": "c"}, "client_id"),
        ({"password": None}, {"azure_auth": "cli", "azure_scope": "ai.azure.com"}, "azure_auth .*azure_scope"),
        ({}, {"azure_scope": "https://ai.azure.com/.default"}, "azure_scope"),
    ],
)
def test_azures_fields(connect: Connect, fields: dict[str, Any], extra: dict[str, str], words: str) -> None:
    conn_id = connect(**(AZURE | fields | {"extra": {"model": "azure:deployed"} | extra}))
    refused(conn_id, f"model_test: {words}")


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


def test_anthropics_address_with_the_version_that_its_client_adds(connect: Connect) -> None:
    conn_id = connect(host="https://api.anthropic.com/v1", password="secret-key", extra={"model": "anthropic:m"})
    refused(conn_id, "model_test: its host ends in /v1")


@pytest.mark.parametrize(
    ("fields", "harness", "dialect", "base_url"),
    [
        ({"extra": {"model": "openai-chat:m"}}, "codex", "openai", "https://api.openai.com/v1"),
        ({"extra": {"model": "anthropic:m"}}, "claude_code", "anthropic", "https://api.anthropic.com/v1"),
        ({"extra": {"model": "anthropic:m"}}, "tools", "anthropic", "https://api.anthropic.com/v1"),
        (
            {"host": "http://vllm/v1/", "extra": {"model": "openai-chat:m"}},
            "claude_code",
            "anthropic",
            "http://vllm/v1",
        ),
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
    ("model", "harness", "knob", "value", "where"),
    [
        ("openai-chat:m", "codex", "reasoning_effort", "on", "/v1/responses"),
        ("openai:m", "chat", "reasoning_effort", "off", "/v1/responses"),
        ("openai:m", "chat", "reasoning_effort", 512, "/v1/responses"),
        ("anthropic:m", "chat", "temperature", 0.5, "Anthropic"),
        ("openai-chat:m", "codex", "temperature", 0.0, "harness codex"),
    ],
)
def test_knobs_that_the_target_would_never_be_told(
    connect: Connect, model: str, harness: HarnessName, knob: str, value: Any, where: str
) -> None:
    upstream = target_upstream(connect(password="secret-key", extra={"model": model}), None, harness)
    with pytest.raises(ConfigError, match=rf"^model\.{knob} = {value!r}: .*{where}"):
        check_sampling(upstream, ModelGroup(**{"harness": harness, knob: value}))


def test_a_temperature_goes_to_servers_that_are_like_anthropics(connect: Connect) -> None:
    minimax = connect(host="https://api.minimax.io/anthropic", password="k", extra={"model": "anthropic:MiniMax-M2.7"})
    check_sampling(target_upstream(minimax, None), ModelGroup(temperature=0.5))
    check_optimizer(ModelGroup(optimizer_conn_id=minimax, optimizer_temperature=0.5))
    claude = connect("claude", host="https://api.anthropic.com/", password="k", extra={"model": "anthropic:m"})
    fallen = connect(password="k", extra={"model": "openai:m", "fallback_conn_ids": [claude]})
    with pytest.raises(ConfigError, match=r"^model\.optimizer_temperature = 0.0: Anthropic"):
        check_optimizer(ModelGroup(optimizer_conn_id=fallen, optimizer_temperature=0.0))


def test_the_optimizers_thinking_is_switched_where_there_is_a_switch(connect: Connect) -> None:
    named = connect(extra={"model": "openai:m"})
    with pytest.raises(ConfigError, match=r"^model\.optimizer_reasoning_effort = 'off': .*low"):
        check_optimizer(ModelGroup(optimizer_conn_id=named, optimizer_reasoning_effort="off"))
    check_optimizer(
        ModelGroup(optimizer_conn_id=connect(extra={"model": "openai-chat:m"}), optimizer_reasoning_effort="off")
    )


def test_a_limit_to_thinking_goes_where_there_is_one(connect: Connect) -> None:
    group = ModelGroup(reasoning_effort=512)
    check_sampling(target_upstream(connect(password="k", extra={"model": "anthropic:m"}), None), group)
    check_sampling(target_upstream(connect(host="http://127.0.0.1:9/v1"), None), group)
    claude = {"model": "bedrock:eu.anthropic.claude-haiku-4-5", "region_name": "eu-west-1"}
    check_sampling(target_upstream(connect(conn_type="pydanticai_bedrock", extra=claude), None), group)
    nova = connect(conn_type="pydanticai_bedrock", extra=claude | {"model": "bedrock:amazon.nova-lite-v1:0"})
    with pytest.raises(ConfigError, match=r"^model\.reasoning_effort = 512: .*amazon\.nova-lite-v1:0"):
        check_sampling(target_upstream(nova, None), group)
    optimizer = ModelGroup(optimizer_conn_id=nova, optimizer_reasoning_effort=512)
    with pytest.raises(ConfigError, match=r"^model\.optimizer_reasoning_effort = 512"):
        check_optimizer(optimizer)
    check_optimizer(optimizer.model_copy(update={"optimizer_reasoning_effort": None}))


def test_knobs_that_the_target_is_told(connect: Connect) -> None:
    everything = ModelGroup(temperature=0.5, reasoning_effort="low")
    check_sampling(target_upstream(connect(password="k"), None), everything)
    vllm = connect(host="http://127.0.0.1:9/v1", extra={"model": "vllm:Qwen/Qwen3-8B"})
    check_sampling(target_upstream(vllm, None), everything)
    claude = target_upstream(connect(password="k", extra={"model": "anthropic:m"}), None, "claude_code")
    check_sampling(claude, ModelGroup(harness="claude_code", reasoning_effort="off"))
    bedrock = connect(conn_type="pydanticai_bedrock", extra={"model": "bedrock:m", "region_name": "eu-west-1"})
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
    assert upstream.secrets().keys() == {"key-1", "key-2"}
    model = optimizer_model(conn_id, None)
    assert model.model_name == "fallback:m1,m2,m3"


def test_a_fallback_in_another_wire_format(connect: Connect) -> None:
    connect("second", password="key-2", extra={"model": "anthropic:m2"})
    conn_id = connect(password="key-1", extra={"model": "openai-chat:m1", "fallback_conn_ids": ["second"]})
    refused(conn_id, "second: .* anthropic, .* model_test .* openai-chat", target_upstream)
    assert optimizer_model(conn_id, None).model_name == "fallback:m1,m2"
    assert target_dialect(conn_id, None) is None


@pytest.mark.parametrize(
    ("fallbacks", "words"),
    [
        ("second", "model_test: fallback_conn_ids = 'second'"),
        ([7], r"model_test: fallback_conn_ids = \[7\]"),
        (["model_test"], "model_test: fallback_conn_ids names a connection twice"),
        (["second", "second"], "model_test: fallback_conn_ids names a connection twice"),
        (["nested"], "nested: .* fallback of model_test"),
        (["missing"], "missing does not exist"),
        (["unnamed"], "unnamed names no model"),
    ],
)
def test_fallbacks_that_cannot_be(connect: Connect, fallbacks: object, words: str) -> None:
    connect("second", password="key-2", extra={"model": "openai-chat:m2"})
    connect("nested", password="key-3", extra={"model": "openai-chat:m3", "fallback_conn_ids": ["second"]})
    connect("unnamed", password="key-4", extra={})
    conn_id = connect(password="key-1", extra={"model": "openai-chat:m1", "fallback_conn_ids": fallbacks})
    refused(conn_id, words, target_upstream, optimizer_model, check)


def connection(**fields: Any) -> Connection:
    return Connection(**{"conn_id": "skillopt_search", "conn_type": "http"} | fields)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "https://search.example.org/", "extra": '{"kind": "searxng"}'}, "https://search.example.org/"),
        ({"host": "search.example.org", "extra": '{"kind": "searxng"}'}, "https://search.example.org"),
        ({"host": "searxng", "schema": "http", "port": 8080, "extra": '{"kind": "searxng"}'}, "http://searxng:8080"),
        ({"password": "k", "extra": '{"kind": "brave"}'}, "https://api.search.brave.com"),
    ],
)
def test_a_connection_leads_to_its_server(fields: dict[str, Any], address: str) -> None:
    upstream = search_upstream(connection(**fields))
    assert upstream.base_url == address
    assert upstream.api_key.get_secret_value() == fields.get("password", "")
    assert "k" not in repr(upstream.api_key)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": "https://a.example"}, '"kind": "searxng"'),
        ({"host": "https://a.example", "extra": '{"kind": "bing"}'}, '"kind": "brave"'),
        ({"conn_type": "pydanticai", "extra": '{"kind": "brave"}'}, "type 'http'"),
        ({"extra": '{"kind": "searxng"}'}, "no usable host"),
        ({"host": "file:///etc/passwd", "extra": '{"kind": "searxng"}'}, "no usable host"),
    ],
)
def test_what_is_no_search_server_is_told_how_to_be_one(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"search\.conn_id: connection skillopt_search") as refused:
        search_upstream(connection(**fields))
    assert said in str(refused.value)
