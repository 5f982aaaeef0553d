"""The pydantic-ai model of an Azure connection with an identity, which Airflow's hook doesn't support."""

from typing import Any, cast

from openai import AsyncAzureOpenAI, AsyncOpenAI
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers.azure import AzureProvider

from skillopt_airflow.gateway.backends import EntraToken
from skillopt_airflow.gateway.translation import without_environment
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream
from skillopt_airflow.models.providers import AZURE_DIALECTS


class IdentityProvider(AzureProvider):
    """Closes its client, which the base class doesn't."""

    async def __aexit__(self, *error: Any) -> bool | None:
        await self.client.close()
        return await super().__aexit__(*error)


def azure_model(upstream: Upstream, identity: AzureIdentity) -> Model:
    """Return the model of an Azure connection, for one `async with` block."""
    token = EntraToken(identity)
    client = (
        AsyncAzureOpenAI(
            base_url=upstream.base_url, api_version=upstream.query["api-version"], azure_ad_token_provider=token.get
        )
        if upstream.deployments
        else AsyncOpenAI(base_url=upstream.base_url, api_key=token.get)
    )
    # The base class accepts both clients, but its annotation names only the one for dated API versions.
    provider = IdentityProvider(openai_client=cast("AsyncAzureOpenAI", client))
    name = next(provider for provider, dialect in AZURE_DIALECTS.items() if dialect == upstream.dialect)
    return infer_model(
        f"{name}:{upstream.model}", provider_factory=lambda _: without_environment(provider, has_url=True)
    )
