"""Every provider of pydantic-ai in both roles: its client has the connection's address and key, or none is made."""

import inspect
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic_ai.providers import infer_provider_class

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.gateway.translation import translated_model
from skillopt_airflow.models.connection import optimizer_model, target_upstream
from skillopt_airflow.models.providers import NO_KEY
from skillopt_airflow.models.server_check import check
from tests.gateway import dialects
from tests.gateway.through_backend import ask
from tests.models.conftest import Connect, Serve
from tests.models.test_providers import ARGUMENTS, optimize, text_of

HOST, KEY, OTHER = "http://own.example:8000", "key-of-the-connection", "environment"
OWN_TYPES = {"azure", "azure-responses", "bedrock", "google-cloud"}
CASES = re.findall(r"case (.*):\n", inspect.getsource(infer_provider_class))
PROVIDERS = [name for case in CASES for name in re.findall(r"'([\w-]+)'", case) if name not in OWN_TYPES]
OF_EACH_KIND = {"openai", "openai-chat", "anthropic", "google", "mistral", "deepseek", "litellm", "openrouter"}
NAMES = {"bedrock-mantle": "openai.gpt-oss-120b", "openrouter": "org/m"}
"""Models of providers that refuse other names."""
PREFIXES = {name.upper().replace("-", "_") for name in PROVIDERS} | {
    *("CO", "COPILOT", "DASHSCOPE", "GEMINI", "GITHUB_COPILOT", "GOOGLE_GEMINI", "HF", "VERCEL_AI_GATEWAY")
}
KEYS = ("API_KEY", "TOKEN", "AUTH_TOKEN", "INFERENCE_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID")
ADDRESSES = ("BASE_URL", "API_URL", "INFERENCE_URL", "API_BASE")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and accounts under the names that the providers' clients read."""
    for prefix in PREFIXES:
        for ending in KEYS:
            monkeypatch.setenv(f"{prefix}_{ending}", OTHER)
        monkeypatch.setenv(f"{prefix}_CUSTOM_HEADERS", "X-Trace: 1")
    monkeypatch.setenv("AWS_REGION", OTHER)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", OTHER)
    monkeypatch.setenv("SNOWFLAKE_ACCOUNT", OTHER)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses under the names that the providers' clients read."""
    for name in (f"{prefix}_{ending}" for prefix in PREFIXES for ending in ADDRESSES):
        monkeypatch.setenv(name, f"http://{OTHER}.invalid/v1")


def connection(connect: Connect, provider: str, *, host: bool, key: bool) -> str:
    fields = {"host": HOST if provider == "anthropic" else f"{HOST}/v1"} if host else {}
    extra = {"model": f"{provider}:{NAMES.get(provider, 'm')}"}
    return connect(**fields, **({"password": KEY} if key else {}), extra=extra)


def made(conn_id: str) -> list[Any]:
    """The provider of each role's client, or the sentence that refuses the connection."""
    found: list[Any] = []
    for role in ("optimizer", "target"):
        try:
            upstream = target_upstream(conn_id, None)
            if role == "target" and not upstream.provider:
                if HOST not in upstream.base_url:
                    check(conn_id)
                found.append((upstream.base_url, {upstream.api_key.get_secret_value() or NO_KEY}))
                continue
            model: Any = optimizer_model(conn_id, None) if role == "optimizer" else translated_model(upstream, 1.0)
            provider = getattr(model, "provider", None) or model._provider
            found.append((str(provider.base_url), sent(provider)))
        except ModelConnectionError as error:
            found.append(str(error))
    return found


def sent(provider: Any) -> set[str]:
    """Keys, accounts and headers of clients of the SDKs of OpenAI and Anthropic, with which most providers are made."""
    values: set[str] = set()
    for client in vars(provider).values():
        if hasattr(client, "_custom_headers"):
            values |= {str(client.api_key), *map(str, client.copy().default_headers.values())}
    return {value for value in values if KEY in value or OTHER in value or NO_KEY in value}


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("addressed", [False, True], ids=["keys", "keys and addresses"])
@pytest.mark.parametrize(
    "provider", [pytest.param(name, marks=() if name in OF_EACH_KIND else pytest.mark.nightly) for name in PROVIDERS]
)
def test_no_client_has_the_address_or_the_key_of_the_environment(
    connect: Connect, request: pytest.FixtureRequest, provider: str, addressed: bool
) -> None:
    if addressed:
        request.getfixturevalue("addresses")
    for host, key in ((False, True),) if addressed else ((True, True), (True, False), (False, True)):
        for client in made(connection(connect, provider, host=host, key=key)):
            if isinstance(client, str):
                assert client.startswith("connection model_test: ")
                continue
            address, values = client
            assert not host or urlsplit(address).netloc == urlsplit(HOST).netloc
            assert OTHER not in address
            assert not [value for value in values if OTHER in value]
            assert values <= ({KEY, f"Bearer {KEY}"} if key else {NO_KEY, f"Bearer {NO_KEY}"})


OWN_ADDRESS = ["cerebras", "deepseek", "fireworks", "meta", "nebius", "openrouter", "ovhcloud", "together"]
OWN_ADDRESS += ["crusoe", "vercel"]


@pytest.mark.parametrize("provider", OWN_ADDRESS)
def test_a_host_beside_a_provider_with_its_own_address_is_refused(connect: Connect, provider: str) -> None:
    for said in made(connection(connect, provider, host=True, key=True)):
        assert f"provider {provider} has its own address. Remove the host, or write openai-chat:" in said
    for address, values in made(connection(connect, provider, host=False, key=True)):
        assert HOST not in address
        assert KEY in values


TAKES_HOST = ["alibaba", "github-copilot", "heroku", "litellm", "moonshotai", "ollama", "sambanova", "vllm", "zai"]
TAKES_HOST += ["anthropic", "openai", "openai-chat", "openai-responses", "snowflake"]


@pytest.mark.nightly
@pytest.mark.parametrize("provider", TAKES_HOST)
def test_a_host_is_used_where_the_client_takes_one(connect: Connect, provider: str) -> None:
    for address, values in made(connection(connect, provider, host=True, key=True)):
        assert address.startswith(HOST)
        assert KEY in values
    for _, values in made(connection(connect, provider, host=True, key=False)):
        assert NO_KEY in values


@pytest.mark.parametrize("provider", ["litellm", "ollama", "snowflake", "vllm", "bedrock-mantle"])
def test_a_provider_without_an_address_needs_a_host(connect: Connect, provider: str) -> None:
    conn_id = connection(connect, provider, host=False, key=True)
    assert all("no default address. Set the URL of the server as its host" in said for said in made(conn_id))
    with pytest.raises(ModelConnectionError, match="no default address"):
        check(conn_id)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("provider", "key", "words"),
    [
        *((name, True, "takes no key") for name in ("openai-codex", "openai-chatgpt", "gateway/openai")),
        *((name, False, "no password") for name in ("deepseek", "moonshotai", "openai-chat", "anthropic")),
    ],
)
def test_keys_that_a_provider_does_not_take_or_that_are_the_environments(
    connect: Connect, provider: str, key: bool, words: str
) -> None:
    for said in made(connection(connect, provider, host=False, key=key)):
        assert words in said
        assert provider in said


@pytest.mark.usefixtures("environment", "addresses")
@pytest.mark.parametrize("named", ["openai-chat", "openai", "litellm", "vllm", "moonshotai", "anthropic"])
def test_calls_carry_the_connections_key_only(connect: Connect, provider: Serve, named: str) -> None:
    dialect = dialects.anthropic if named == "anthropic" else dialects.openai
    server = provider(dialect(KEY, ARGUMENTS))
    host = server.address if named == "anthropic" else f"{server.address}/v1"
    conn_id = connect(host=host, password=KEY, extra={"model": f"{named}:m"})
    assert text_of(ask(target_upstream(conn_id, None))) == "Paris"
    assert optimize(conn_id).order == [1, 0]
    assert not [one for one in server.requests for value in one.headers.values() if OTHER in value]


@pytest.mark.parametrize("header", ["Authorization: Bearer other", "x-api-key: other", "X-Trace: 1\nX-Api-Key:other"])
@pytest.mark.parametrize("named", ["openai-chat", "deepseek", "anthropic"])
def test_headers_of_the_environment_do_not_replace_the_key(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, named: str, header: str
) -> None:
    for sdk in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{sdk}_CUSTOM_HEADERS", header)
    with pytest.raises(ModelConnectionError, match=r"^connection model_test: headers of the environment"):
        optimizer_model(connection(connect, named, host=False, key=True), None)


CLOUD: dict[str, dict[str, Any]] = {
    "pydanticai_bedrock": {"model": "bedrock:amazon.nova-lite-v1:0", "region_name": "eu-west-1"},
    "pydanticai_vertex": {"model": "google-cloud:gemini-2.5-flash", "project": "p"},
}


@pytest.mark.parametrize("field", ["host", "password"])
@pytest.mark.parametrize("conn_type", CLOUD)
def test_a_field_that_the_type_ignores_is_refused(connect: Connect, conn_type: str, field: str) -> None:
    conn_id = connect(conn_type=conn_type, extra=CLOUD[conn_type], **{field: "https://own.example"})
    for role in (optimizer_model, target_upstream):
        with pytest.raises(ModelConnectionError, match=f"type {conn_type} ignores its {field}"):
            role(conn_id, None)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AWS_BEARER_TOKEN_BEDROCK", OTHER), ("AWS_ENDPOINT_URL", f"http://{OTHER}.invalid:9000")],
)
def test_bedrocks_keys_and_address_are_not_replaced(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    keys = {"aws_access_key_id": "ID", "aws_secret_access_key": "SECRET"}
    conn_id = connect(conn_type="pydanticai_bedrock", extra=CLOUD["pydanticai_bedrock"] | keys)
    monkeypatch.setenv(variable, value)
    for role in (optimizer_model, lambda *_: translated_model(target_upstream(conn_id, None), 1.0)):
        with pytest.raises(ModelConnectionError, match=f"connection model_test: {variable}"):
            role(conn_id, None)
