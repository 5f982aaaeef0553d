"""A connection's model server, its credentials and its deviations from the wire format."""

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, SerializationInfo, field_serializer

from skillopt_airflow.core.values.types import JsonObject, Value
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

MAX_TOKENS_HOSTS = (".mistral.ai", ".deepseek.com")
"""Suffixes of hosts whose chat completions refuse or ignore `max_completion_tokens`."""
AZURE_CLOUDS = (".azure.com", ".azure.us", ".azure.cn")
MISTRALS = ("mistral", "ministral", "magistral")
"""Prefixes of Mistral's model names, to recognize their deployments on Azure."""
ADDRESS_ARGUMENTS = ("base_url", "api_base", "azure_endpoint")
"""Providers' arguments with the URL."""
SECRET_WORDS = ("key", "secret", "token")
"""Words in the names of arguments with secrets."""


class AzureIdentity(Value):
    """An identity whose Entra ID token replaces the key."""

    kind: Literal["managed_identity", "cli"]
    """The identity of the machine or pod, or the user of `az login`."""
    client_id: str | None = None
    """ID of a user-assigned managed identity. Default: the system-assigned one."""
    scope: str = Field(default="https://cognitiveservices.azure.com/.default", pattern=r"^https://[^\s/]+/\S+$")


class Upstream(Value):
    """A model server, its credentials, and the model that may be called."""

    conn_id: str = ""
    """The Airflow connection, for messages."""
    dialect: Dialect
    """The wire format of the requests."""
    base_url: str
    """URL including the version, such as https://host/v1; empty if requests are translated."""
    model: str = Field(min_length=1)
    """The provider's name of the model, without the prefix."""
    api_key: SecretStr = SecretStr("")
    """Empty if there is no key, or if `identity` or `arguments` have the credentials."""
    auth: str = "bearer"
    """The header with the key; `bearer` means Authorization."""
    identity: AzureIdentity | None = None
    query: dict[str, str] = Field(default_factory=dict)
    """Query parameters of every request."""
    deployments: bool = False
    """True if the path begins with deployments/<model>, as in Azure's dated API versions."""
    provider: str = ""
    """pydantic-ai's name of a provider with another format, such as bedrock, for which requests are translated."""
    arguments: SecretStr = SecretStr("{}")
    """That provider's arguments as a JSON object."""
    fallbacks: tuple["Upstream", ...] = ()
    """Other servers with the same wire format, in the order of their use."""

    @property
    def wire_format(self) -> WireFormat:
        return WIRE_FORMATS[self.dialect]

    @property
    def takes_max_tokens(self) -> bool:
        """Return whether chat completions use `max_tokens` instead of `max_completion_tokens`."""
        host = urlsplit(self.base_url).hostname or ""
        return host.endswith(MAX_TOKENS_HOSTS) or (
            host.endswith(AZURE_CLOUDS) and self.model.lower().startswith(MISTRALS)
        )

    def secrets(self) -> dict[str, str]:
        """Return all secrets, including the fallbacks', with the connection of each."""
        arguments: JsonObject = json.loads(self.arguments.get_secret_value())
        texts = [
            self.api_key.get_secret_value(),
            *(
                value
                for name, value in arguments.items()
                if isinstance(value, str) and any(word in name for word in SECRET_WORDS)
            ),
        ]
        found = {text: self.conn_id for text in texts if text}
        for fallback in self.fallbacks:
            found |= fallback.secrets()
        return found

    def dump_with_secrets(self) -> JsonObject:
        """Return the upstream as JSON with its secrets. Use it only for a pipe to the gateway's process."""
        return self.model_dump(mode="json", context={"reveal": True})

    @field_serializer("api_key", "arguments", when_used="json")
    def _secret(self, secret: SecretStr, info: SerializationInfo) -> str:
        return secret.get_secret_value() if info.context == {"reveal": True} else str(secret)
