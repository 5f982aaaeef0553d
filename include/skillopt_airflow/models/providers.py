"""The servers of each provider's connections: URLs, wire formats and credentials, without any requests."""

import inspect
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError

from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.config.sampling import Effort
from skillopt_airflow.core.errors import ConfigError, ModelConnectionError
from skillopt_airflow.core.values.types import Value
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect
from skillopt_airflow.gateway.upstream import ADDRESS_ARGUMENTS, AzureIdentity, Upstream

DIALECTS: Mapping[str, Dialect] = {
    provider: dialect for dialect, spoken in WIRE_FORMATS.items() for provider in (dialect, *spoken.aliases)
}
"""Wire formats by provider, for connections of type pydanticai."""
AZURE_DIALECTS: Mapping[str, Dialect] = {"azure": "openai-chat", "azure-responses": "openai"}
OWN_TYPES = {
    "azure": "pydanticai_azure",
    "azure-responses": "pydanticai_azure",
    "bedrock": "pydanticai_bedrock",
    "google-cloud": "pydanticai_vertex",
}
"""Connection types of the providers that need more than a key and a URL."""
THINKING_LIMITS = frozenset({"google", "google-cloud", "google-gla", "google-vertex", "openrouter"})
"""Translated providers that can limit thinking in tokens. Claude on Bedrock can, too."""
ADDRESSES = frozenset(wire_format.address for wire_format in WIRE_FORMATS.values())
"""URLs of the providers themselves, each with its own wire format only."""
KEY_ARGUMENTS = ("api_key", "token")
NO_KEY = "the-connection-has-no-key"
"""Sent to a server without keys. Without any key, clients would use the environment's."""


class ModelConnection(Value):
    """The fields of a provider's Airflow connection."""

    conn_id: str
    conn_type: str
    host: str
    password: SecretStr
    extra: dict[str, Any] = Field(repr=False)
    """May hold secrets."""
    provider: str
    """pydantic-ai's name of the provider, before the colon of the model's name."""
    model: str
    """The provider's name of the model."""

    def error(self, message: str) -> ModelConnectionError:
        return ModelConnectionError(f"connection {self.conn_id}: {message}")


def http_upstream(connection: ModelConnection) -> Upstream:
    """Return the server of a connection of type pydanticai. Raises ModelConnectionError."""
    dialect, host = DIALECTS[connection.provider], connection.host.rstrip("/")
    wire_format = WIRE_FORMATS[dialect]
    if wire_format.client_adds_version and host:
        if host.endswith("/v1"):
            raise connection.error("its host ends in /v1, which the provider's client adds itself. Remove /v1")
        host += "/v1"
    return Upstream(
        conn_id=connection.conn_id,
        dialect=dialect,
        base_url=host or wire_format.address,
        model=connection.model,
        api_key=connection.password,
        auth=wire_format.key_header,
    )


def azure_upstream(connection: ModelConnection) -> Upstream:
    """Return the Azure OpenAI server of a connection of type pydanticai_azure. Raises ModelConnectionError.

    The host is the v1 API (ends in /v1), a serverless endpoint, or the resource, which needs an `api_version`.
    """
    if connection.provider not in AZURE_DIALECTS:
        raise connection.error(f"model {connection.provider}:{connection.model} isn't of the form azure:DEPLOYMENT")
    if not connection.host:
        raise connection.error(
            "it has no host. Set the resource's endpoint, https://RESOURCE.openai.azure.com/openai/v1"
        )
    identity = azure_identity(connection)
    host, version = connection.host.rstrip("/"), connection.extra.get("api_version")
    if (urlsplit(host).hostname or "").endswith(".models.ai.azure.com") and not host.endswith("/v1"):
        host += "/v1"
    dated = not host.endswith("/v1")
    if dated and not isinstance(version, str):
        raise connection.error(
            "its host needs an api_version. Add /openai/v1 to the host, or set api_version in its extra"
        )
    if not dated and version:
        raise connection.error("a host that ends in /v1 takes no api_version. Remove one of the two")
    return Upstream(
        conn_id=connection.conn_id,
        dialect=AZURE_DIALECTS[connection.provider],
        base_url=f"{host.removesuffix('/openai')}/openai" if dated else host,
        model=connection.model,
        api_key=connection.password,
        auth="api-key" if dated else "bearer",
        identity=identity,
        query={"api-version": str(version)} if dated else {},
        deployments=dated,
    )


def azure_identity(connection: ModelConnection) -> AzureIdentity | None:
    """Return the identity for Azure's tokens, or None if the connection has a key. Raises ModelConnectionError."""
    kind, client_id = connection.extra.get("azure_auth"), connection.extra.get("client_id")
    scope = {"scope": connection.extra["azure_scope"]} if "azure_scope" in connection.extra else {}
    has_key = bool(connection.password.get_secret_value())
    if kind is None:
        if scope:
            raise connection.error("azure_scope is for the token of an identity. Set azure_auth, or remove azure_scope")
        if not has_key:
            raise connection.error(
                'it has no password. Set the key, or {"azure_auth": "managed_identity"} in its extra'
            )
        return None
    if has_key:
        raise connection.error("it has a password and azure_auth. Keep one of them")
    try:
        identity = AzureIdentity.model_validate({"kind": kind, "client_id": client_id, **scope})
    except ValidationError:
        raise connection.error(
            'azure_auth has to be "managed_identity" or "cli", client_id a string, and azure_scope a URL such as '
            "https://ai.azure.com/.default"
        ) from None
    if identity.kind == "cli" and client_id is not None:
        raise connection.error("client_id is for a managed identity. Remove it")
    return identity


def check_has_key(connection: ModelConnection) -> None:
    """Raise ModelConnectionError if host and password are missing: clients would use the environment's key."""
    if not (connection.host or connection.password.get_secret_value()):
        raise connection.error(
            f"it has no password. Set the key of {connection.provider}; the environment's isn't used"
        )


def client_arguments(connection: ModelConnection, provider: Any) -> dict[str, str]:
    """Return the arguments of pydantic-ai's provider class. Raises ModelConnectionError if it doesn't take them."""
    accepted, subject = inspect.signature(provider.__init__).parameters, f"provider {connection.provider}"
    instead = f"write openai-chat:{connection.model} with the URL of an OpenAI-compatible server as host"
    key, url = (next((name for name in names if name in accepted), "") for names in (KEY_ARGUMENTS, ADDRESS_ARGUMENTS))
    if not key or "/" in connection.provider:
        raise connection.error(f"{subject} takes no key from a connection. Choose another one, or {instead}")
    if connection.host and not url:
        raise connection.error(f"{subject} has its own address. Remove the host, or {instead}")
    if not connection.host and not accepted.keys().isdisjoint(("account", "region_name")):
        # The environment would complete the URL.
        raise connection.error(f"{subject} has no default address. Set the URL of the server as its host")
    check_has_key(connection)
    host = connection.host
    if not host and connection.provider in DIALECTS:
        wire_format = WIRE_FORMATS[DIALECTS[connection.provider]]
        host = wire_format.address.removesuffix("/v1" if wire_format.client_adds_version else "")
    return {key: connection.password.get_secret_value() or NO_KEY} | ({url: host} if host else {})


def translated_upstream(connection: ModelConnection, arguments: Mapping[str, Any]) -> Upstream:
    """Return the upstream of a provider for which the gateway translates requests with pydantic-ai.

    Raises ModelConnectionError if an argument can't be sent to the gateway's process.
    """
    try:
        text = json.dumps(arguments)
    except TypeError:
        raise connection.error(
            "its credentials can't be sent to the gateway. Use an API key, or those of the worker's environment"
        ) from None
    return Upstream(
        conn_id=connection.conn_id,
        dialect="openai-chat",
        base_url="",
        model=connection.model,
        provider=connection.provider,
        arguments=SecretStr(text),
    )


def for_harness(harness: HarnessName, connection: ModelConnection, upstream: Upstream) -> Upstream:
    """Return the upstream in a harness's wire format. Raises ModelConnectionError if the server doesn't support it."""
    dialect = HARNESSES[harness].wire_format
    if dialect is None or dialect == upstream.dialect:
        return upstream
    wire_format = WIRE_FORMATS[dialect]
    is_other_provider = upstream.base_url in ADDRESSES - {wire_format.address}
    is_azure = connection.conn_type == OWN_TYPES["azure"] and dialect not in AZURE_DIALECTS.values()
    if upstream.provider or is_other_provider or is_azure:
        raise connection.error(
            f"model.harness {harness} posts /v1/{wire_format.path}, which {connection.provider} does not have. Use "
            f"harness chat or tools, or a connection of type pydanticai to a server that has it, with {dialect}:NAME "
            "as its model"
        )
    return upstream.model_copy(update={"dialect": dialect})


def check_sampling(upstream: Upstream, model: ModelGroup) -> None:
    """Raise ConfigError, with the key and a remedy, unless the target's requests have a field for each setting."""
    if HARNESSES[model.harness].is_cli and model.temperature is not None:
        raise ConfigError(
            f"model.temperature = {model.temperature}: the CLI of harness {model.harness} has no option for it. Unset "
            "model.temperature"
        )
    for server in (upstream, *upstream.fallbacks):
        check_thinking(server, "", model)


def check_thinking(upstream: Upstream, role: str, model: ModelGroup) -> None:
    """Check that requests have fields for the thinking settings, and that Anthropic's API gets no temperature.

    `role` is the prefix of the knobs' names: `optimizer_`, or empty for the target. Raises ConfigError.
    """
    effort: Effort | None = getattr(model, f"{role}reasoning_effort")
    temperature = getattr(model, f"{role}temperature")
    key, wire_format = f"model.{role}", upstream.wire_format
    path, instead = f"/v1/{wire_format.path}", "Name an effort, such as low, or unset it"
    if temperature is not None and upstream.dialect == "anthropic" and upstream.base_url == wire_format.address:
        raise ConfigError(f"{key}temperature = {temperature}: Anthropic's own API takes no temperature; unset it")
    if effort in ("on", "off") and not wire_format.sets(thinking=effort == "on"):
        raise ConfigError(f"{key}reasoning_effort = {effort!r}: requests to {path} have no such switch. {instead}")
    if not isinstance(effort, int):
        return
    limits = wire_format.sets(thinking_budget=effort)
    if upstream.provider:
        path = f"{upstream.provider}, for model {upstream.model},"
        is_claude = upstream.provider == "bedrock" and "anthropic" in upstream.model
        limits = upstream.provider in THINKING_LIMITS or is_claude
    if not limits:
        raise ConfigError(
            f"{key}reasoning_effort = {effort}: requests to {path} can't limit thinking in tokens. {instead}"
        )
