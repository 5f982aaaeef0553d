import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.gateway.backends import HttpClients, handed_over
from skillopt_airflow.gateway.fallbacks import open_backend
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream
from tests.gateway import dialects
from tests.gateway.conftest import Serve
from tests.gateway.scripted_provider import Asked, Document

BODY = {"model": "m", "messages": [{"role": "user", "content": "The capital of France?"}]}
KEY = "distinctive-key-1"


def echo(request: Asked) -> Document:
    return {"path": request.path}


def send(upstream: Upstream, body: Document = BODY, headers: dict[str, str] | None = None) -> httpx.Response:
    async def once() -> httpx.Response:
        backend = open_backend(upstream, timeout=2)
        try:
            response = await backend.send(json.dumps(body).encode(), {} if headers is None else headers)
            await response.aread()
            return response
        finally:
            await backend.aclose()

    return asyncio.run(once())


def test_the_clients_credentials_and_its_other_headers_stay_behind(provider: Serve) -> None:
    server = provider(echo)
    upstream = Upstream(dialect="anthropic", base_url=f"{server.address}/v1", model="m", api_key=SecretStr(KEY))
    sent = {"authorization": "Bearer stolen", "x-api-key": "stolen", "cookie": "stolen", "api-key": "stolen"}
    sent |= {"x-forwarded-for": "stolen", "openai-organization": "stolen", "content-type": "text/plain"}
    kept = "claude-code-20250219,context-management-2025-06-27"
    others = "context-1m-2025-08-07, mcp-client-2025-11-20,effort,x-effort-2025-11-24,effort-2025-11-24;x"
    send(upstream, headers=sent | {"anthropic-beta": f"{others}, {kept}", "anthropic-version": "2026-10-21"})
    assert "stolen" not in str(server.last.headers)
    assert server.last.headers["authorization"] == f"Bearer {KEY}"
    assert server.last.headers["content-type"] == "application/json"
    assert (server.last.headers["anthropic-beta"], server.last.headers["anthropic-version"]) == (kept, "2026-10-21")


@pytest.mark.parametrize(
    ("base_url", "model", "name"),
    [
        ("https://api.mistral.ai/v1", "mistral-small-latest", "max_tokens"),
        ("https://api.deepseek.com", "deepseek-chat", "max_tokens"),
        ("https://codestral.mistral.ai/v1", "codestral-latest", "max_tokens"),
        ("https://r.services.ai.azure.com/openai/v1", "Mistral-Large-3", "max_tokens"),
        ("https://r.openai.azure.com/openai/v1", "gpt-4.1", "max_completion_tokens"),
        ("http://vllm:8000/v1", "mistralai/Ministral-8B", "max_completion_tokens"),
    ],
)
def test_the_limit_of_an_answer_by_the_name_that_the_server_knows(
    monkeypatch: pytest.MonkeyPatch, base_url: str, model: str, name: str
) -> None:
    sent: list[bytes] = []

    async def answer(self: HttpClients, method: str, url: object, **request: Any) -> httpx.Response:
        sent.append(request["content"])
        return httpx.Response(200)

    monkeypatch.setattr(HttpClients, "send", answer)
    send(Upstream(dialect="openai-chat", base_url=base_url, model=model), BODY | {"max_completion_tokens": 9})
    assert json.loads(sent[0]) == BODY | {"model": model, name: 9}


def test_a_gateway_elsewhere_gets_a_token_in_the_place_of_an_identity(
    provider: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = provider(dialects.instance_metadata("entra-token"))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.address)
    server = provider(dialects.azure_dated("m", "2024-10-21", "authorization", "Bearer entra-token"))
    behind = Upstream(
        dialect="openai-chat",
        base_url=f"{server.address}/openai",
        model="m",
        auth="api-key",
        identity=AzureIdentity(kind="managed_identity"),
        query={"api-version": "2024-10-21"},
        deployments=True,
    )
    first = Upstream(dialect="openai-chat", base_url=server.address, model="m", fallbacks=(behind,))
    document = handed_over(first)
    monkeypatch.delenv("AZURE_POD_IDENTITY_AUTHORITY_HOST")
    (elsewhere,) = Upstream.model_validate(document).fallbacks
    assert elsewhere.identity is None
    assert "entra-token" not in repr(elsewhere)
    assert send(elsewhere).status_code == 200


def test_an_identity_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox gets an answer that is asked for again, and no gateway elsewhere is started."""
    program = tmp_path / "az"
    program.write_text("#!/bin/sh\necho \"Please run 'az login' to setup account.\" >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    address, cli = "http://127.0.0.1:1/openai/v1", AzureIdentity(kind="cli")
    upstream = Upstream(conn_id="azure_test", dialect="openai-chat", base_url=address, model="m", identity=cli)
    said = "connection azure_test: no token for Azure: Please run 'az login'"
    response = send(upstream)
    assert response.status_code == 502
    assert said in response.json()["error"]["message"]
    with pytest.raises(ModelConnectionError, match=f"^{said}"):
        handed_over(upstream)
