"""The model server behind a connection, and what the gateway adds to a request for it."""

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, SerializationInfo, field_serializer

from skillopt_airflow.core.values.types import JsonObject, Value
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

MAX_TOKENS_HOSTS = (".mistral.ai", ".deepseek.com")
"""Ends of hosts whose chat completions refuse, or ignore, the newer name of the limit of an answer."""
AZURE_CLOUDS = (".azure.com", ".azure.us", ".azure.cn")
MISTRALS = ("mistral", "ministral", "magistral")
"""Beginnings of the names of Mistral's models, by which their deployments on Azure are recognized."""
ADDRESS_ARGUMENTS = ("base_url", "api_base", "azure_endpoint")
"""Names of the address among a provider's arguments."""
SECRET_WORDS = ("key", "secret", "token")
"""Words in the names of a provider's arguments whose values are secrets."""


class AzureIdentity(Value):
    """The identity whose Entra ID token goes to Azure instead of a key."""

    kind: Literal["managed_identity", "cli"]
    """The identity of the machine or pod, or whoever is logged in with `az login`."""
    client_id: str | None = None
    """A user-assigned managed identity; the system-assigned one when unset."""
    scope: str = Field(default="https://cognitiveservices.azure.com/.default", pattern=r"^https://[^\s/]+/\S+$")
    """What the token is for."""


class Upstream(Value):
    """A model server, the one model that may be called there, and the credentials for it."""

    conn_id: str = ""
    """The Airflow connection, for messages."""
    dialect: Dialect
    """The wire format of the requests."""
    base_url: str
    """Address up to and including the version, such as https://host/v1; empty if the requests are translated."""
    model: str = Field(min_length=1)
    """The provider's name of the model, without the prefix."""
    api_key: SecretStr = SecretStr("")
    """Empty for a server without keys, and where `identity` or `arguments` hold the credentials."""
    auth: str = "bearer"
    """The header that carries the key; `bearer` is the header Authorization."""
    identity: AzureIdentity | None = None
    """Asked for a token in the place of the key."""
    query: dict[str, str] = Field(default_factory=dict)
    """Parameters of every request's address."""
    deployments: bool = False
    """True if chat completions lie below deployments/<model>, as in Azure's dated API versions."""
    provider: str = ""
    """pydantic-ai's name of a provider with a wire format of its own, such as bedrock: requests are translated."""
    arguments: SecretStr = SecretStr("{}")
    """The arguments of that provider as a JSON object."""
    fallbacks: tuple["Upstream", ...] = ()
    """Other servers of the same wire format, in the order in which they are tried."""

    @property
    def wire_format(self) -> WireFormat:
        return WIRE_FORMATS[self.dialect]

    @property
    def takes_max_tokens(self) -> bool:
        """Return whether its chat completions limit an answer by `max_tokens`, and not by `max_completion_tokens`."""
        host = urlsplit(self.base_url).hostname or ""
        return host.endswith(MAX_TOKENS_HOSTS) or (
            host.endswith(AZURE_CLOUDS) and self.model.lower().startswith(MISTRALS)
        )

    def secrets(self) -> frozenset[str]:
        """Return every secret, including those of the fallbacks."""
        arguments: JsonObject = json.loads(self.arguments.get_secret_value())
        texts = {self.api_key.get_secret_value()} | {
            value
            for name, value in arguments.items()
            if isinstance(value, str) and any(word in name for word in SECRET_WORDS)
        }
        return frozenset(texts - {""}).union(*(fallback.secrets() for fallback in self.fallbacks))

    def revealed(self) -> JsonObject:
        """Return the upstream as JSON with its secrets, for a pipe to the gateway's process and nothing else."""
        return self.model_dump(mode="json", context={"reveal": True})

    @field_serializer("api_key", "arguments", when_used="json")
    def _secret(self, secret: SecretStr, info: SerializationInfo) -> str:
        return secret.get_secret_value() if info.context == {"reveal": True} else str(secret)
