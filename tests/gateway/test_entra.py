import asyncio
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.gateway.backends import EntraToken
from skillopt_airflow.gateway.upstream import AzureIdentity
from tests.gateway import dialects
from tests.gateway.conftest import Serve
from tests.gateway.scripted_provider import Asked, Document, failure

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
