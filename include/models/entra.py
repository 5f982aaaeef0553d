"""Entra ID tokens for Azure OpenAI, from a managed identity or from `az login`."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from include.core.errors import ModelConnectionError
from include.models.upstream import AzureIdentity, Upstream

if TYPE_CHECKING:
    from pydantic_ai.models import Model

SCOPE = "https://cognitiveservices.azure.com/.default"


class EntraToken:
    """The token of an identity, fetched when it is first needed and again shortly before it expires."""

    def __init__(self, identity: AzureIdentity) -> None:
        self._source = _source(identity)
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> str:
        """The token, without holding up the event loop.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(self.fetch)

    def fetch(self) -> str:
        """The token.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        from azure.core.exceptions import AzureError

        try:
            return self._source()
        except AzureError as error:
            raise ModelConnectionError(f"no token for Azure: {error}") from error


def _source(identity: AzureIdentity) -> Callable[[], str]:
    """Caches the token, and asks again some minutes before it expires."""
    from azure.identity import AzureCliCredential, ManagedIdentityCredential, get_bearer_token_provider

    if identity.kind == "cli":
        return get_bearer_token_provider(AzureCliCredential(), SCOPE)
    return get_bearer_token_provider(ManagedIdentityCredential(client_id=identity.client_id), SCOPE)


def azure_model(upstream: Upstream) -> "Model":
    """The pydantic-ai model of an Azure connection with an identity, which Airflow's hook does not have."""
    from openai import AsyncAzureOpenAI, AsyncOpenAI
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers.azure import AzureProvider

    if upstream.identity is None:
        raise ModelConnectionError(f"connection {upstream.conn_id}: it has no azure_auth")
    token = EntraToken(upstream.identity)
    client = (
        AsyncAzureOpenAI(
            base_url=upstream.base_url, api_version=upstream.query["api-version"], azure_ad_token_provider=token.get
        )
        if upstream.deployments
        else AsyncOpenAI(base_url=upstream.base_url, api_key=token.get)
    )
    # The provider is annotated for the dated API versions only; of the client it uses what both have.
    provider = AzureProvider(openai_client=cast("AsyncAzureOpenAI", client))
    name = "azure-responses" if upstream.dialect == "openai" else "azure"
    return infer_model(f"{name}:{upstream.model}", provider_factory=lambda _: provider)
