import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.gateway.backends import EntraToken, HttpClients, export_upstream
from skillopt_airflow.gateway.retries import open_backend
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream
from tests.gateway import dialects
from tests.gateway.conftest import Serve
from tests.gateway.scripted_provider import Asked, Document, failure

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
    document = export_upstream(first)
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
        export_upstream(upstream)


class Counted:
    """Answers every request when as many as `together` are there, and counts its connections."""

    def __init__(self) -> None:
        self.connections = 0
        self._open = 0
        self.together = asyncio.Barrier(1)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await self.together.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, asyncio.BrokenBarrierError):
            pass
        finally:
            writer.close()
            await writer.wait_closed()
            self._open -= 1

    async def gone(self) -> None:
        while self._open:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def counted() -> AsyncIterator[tuple[Counted, str]]:
    one = Counted()
    async with await asyncio.start_server(one.answer, "127.0.0.1", 0) as server:
        yield one, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def get(clients: HttpClients, url: str) -> bytes:
    response = await clients.send("GET", url)
    try:
        return await response.aread()
    finally:
        await response.aclose()


def test_requests_at_the_same_time_have_a_connection_each_and_the_next_use_them_again():
    async def scene() -> None:
        clients = HttpClients(5.0)
        async with counted() as (server, url):
            for together in (1, 3, 1, 3, 2):
                server.together = asyncio.Barrier(together)
                answers = await asyncio.gather(*(get(clients, url) for _ in range(together)))
                assert answers == [b"ok"] * together
            assert server.connections == 3
            await clients.aclose()
            await server.gone()

    asyncio.run(scene())


def test_after_a_request_that_failed_or_was_given_up_the_next_succeeds():
    async def scene() -> None:
        clients = HttpClients(5.0)
        with pytest.raises(httpx.ConnectError):
            await get(clients, "http://127.0.0.1:9/")
        async with counted() as (server, url):
            server.together = asyncio.Barrier(2)
            given_up = asyncio.ensure_future(get(clients, url))
            while not server.together.n_waiting:
                await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            await server.together.abort()
            server.together = asyncio.Barrier(1)
            assert await get(clients, url) == b"ok"
            assert server.connections == 2
            await clients.aclose()
            await server.gone()

    asyncio.run(scene())


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "br", "GZIP", "zstd", "x", "identity, gzip"])
def test_a_compressed_answer_is_refused_before_it_is_unpacked(encoding):
    asked = []

    async def pack(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = gzip.compress(bytes(2**20))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        writer.close()

    async def main():
        server = await asyncio.start_server(pack, "127.0.0.1", 0)
        clients = HttpClients(5.0)
        try:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises(httpx.DecodingError, match="compressed"):
                await clients.send("GET", url)
        finally:
            await clients.aclose()
            server.close()

    asyncio.run(main())
    assert b"accept-encoding: identity" in asked[0].lower()


MANAGED = AzureIdentity(kind="managed_identity")


def test_callers_at_the_same_time_share_a_token(provider: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = provider(dialects.instance_metadata("entra-token"))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", metadata.address)

    async def callers() -> list[str]:
        token = EntraToken(MANAGED)
        return await asyncio.gather(*(token.get() for _ in range(8)))

    assert asyncio.run(callers()) == ["entra-token"] * 8
    assert len(metadata.requests) == 1


def test_a_token_that_ends_soon_is_fetched_again(provider: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def short_lived(request: Asked) -> Document:
        given.append(f"token-{len(given)}")
        return dialects.instance_metadata(given[-1])(request) | {"expires_in": "60"}  # type: ignore[operator]

    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", provider(short_lived).address)
    token = EntraToken(MANAGED)
    assert token.fetch() == "token-0"
    assert token.fetch() != "token-0"


def test_a_machine_without_an_identity(provider: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = provider(lambda asked: failure(400, "Identity not found"))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", none.address)
    with pytest.raises(ModelConnectionError, match=r"^no token for Azure: ManagedIdentityCredential"):
        EntraToken(MANAGED).fetch()
    # A workload identity without a client ID.
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    monkeypatch.setenv("AZURE_TENANT_ID", "t")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.delenv("AZURE_CLIENT_ID", raising=False)
    with pytest.raises(ModelConnectionError, match=r"^no token for Azure: Workload identity"):
        EntraToken(MANAGED).fetch()
