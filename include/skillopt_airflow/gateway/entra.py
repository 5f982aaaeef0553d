"""Entra ID tokens for Azure OpenAI, from a managed identity or from `az login`."""

import asyncio
from collections.abc import Callable

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.gateway.upstream import AzureIdentity


class EntraToken:
    """The token of an identity, fetched when it is first needed and again shortly before it expires."""

    def __init__(self, identity: AzureIdentity) -> None:
        self._identity = identity
        self._source: Callable[[], str] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> str:
        """Return the token without blocking the event loop.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(self.fetch)

    def fetch(self) -> str:
        """Return the token.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        from azure.core.exceptions import AzureError

        try:
            if self._source is None:
                self._source = _source(self._identity)
            return self._source()
        # A workload identity without a client id is a ValueError.
        except (AzureError, ValueError) as error:
            raise ModelConnectionError(f"no token for Azure: {error}") from error


def _source(identity: AzureIdentity) -> Callable[[], str]:
    """Return a function that caches the token and renews it some minutes before it expires."""
    from azure.identity import AzureCliCredential, ManagedIdentityCredential, get_bearer_token_provider

    if identity.kind == "cli":
        return get_bearer_token_provider(AzureCliCredential(), identity.scope)
    return get_bearer_token_provider(ManagedIdentityCredential(client_id=identity.client_id), identity.scope)
