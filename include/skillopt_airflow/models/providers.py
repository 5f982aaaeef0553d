"""The servers behind the connections of each provider: addresses, wire formats, credentials; no requests."""

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

SPEAKS: Mapping[str, Dialect] = {
    provider: dialect for dialect, spoken in WIRE_FORMATS.items() for provider in (dialect, *spoken.aliases)
}
"""The wire format by the provider in a model's name, for connections of type pydanticai."""
AZURE_DIALECTS: Mapping[str, Dialect] = {"azure": "openai-chat", "azure-responses": "openai"}
OWN_TYPES = {
    "azure": "pydanticai_azure",
    "azure-responses": "pydanticai_azure",
    "bedrock": "pydanticai_bedrock",
    "google-cloud": "pydanticai_vertex",
}
"""Providers that need more than a key and an address, and the connection type that has it."""
BUDGETED = frozenset({"google", "google-cloud", "google-gla", "google-vertex", "openrouter"})
"""Providers with formats of their own that limit thinking by a number of tokens, besides Claude on Bedrock."""
ADDRESSES = frozenset(wire_format.address for wire_format in WIRE_FORMATS.values())
"""Addresses of the providers themselves, which have only their own wire formats."""
KEY_ARGUMENTS = ("api_key", "token")
NO_KEY = "the-connection-has-no-key"
"""Sent to a server without keys: clients would take the environment's in the place of none."""


class Connected(Value):
    """The fields of an Airflow connection that matter to a provider."""

    conn_id: str
    conn_type: str
    host: str
    password: SecretStr
    extra: dict[str, Any] = Field(repr=False)
    """Some providers keep their secrets here."""
    provider: str
    """pydantic-ai's name of the provider, before the colon of the model's name."""
    model: str
    """The provider's name of the model."""

    def error(self, message: str) -> ModelConnectionError:
        return ModelConnectionError(f"connection {self.conn_id}: {message}")


def http_upstream(connected: Connected) -> Upstream:
    """Return the server behind a connection of type pydanticai.

    Raises:
        ModelConnectionError: its host cannot be right.
    """
    dialect, host = SPEAKS[connected.provider], connected.host.rstrip("/")
    wire_format = WIRE_FORMATS[dialect]
    if wire_format.client_adds_version and host:
        if host.endswith("/v1"):
            raise connected.error("its host ends in /v1, which the provider's client adds itself; leave it out")
        host += "/v1"
    return Upstream(
        conn_id=connected.conn_id,
        dialect=dialect,
        base_url=host or wire_format.address,
        model=connected.model,
        api_key=connected.password,
        auth=wire_format.key_header,
    )


def azure_upstream(connected: Connected) -> Upstream:
    """Return the Azure OpenAI server behind a connection of type pydanticai_azure.

    Its host is the v1 API (ends in /v1), a serverless endpoint, or the resource, which needs an `api_version`.

    Raises:
        ModelConnectionError: a field that is missing, or does not go with another.
    """
    if connected.provider not in AZURE_DIALECTS:
        raise connected.error(f"model {connected.provider}:{connected.model} should be written as azure:DEPLOYMENT")
    if not connected.host:
        raise connected.error(
            "it has no host; set the resource's endpoint, https://RESOURCE.openai.azure.com/openai/v1"
        )
    identity = azure_identity(connected)
    host, version = connected.host.rstrip("/"), connected.extra.get("api_version")
    if (urlsplit(host).hostname or "").endswith(".models.ai.azure.com") and not host.endswith("/v1"):
        host += "/v1"
    dated = not host.endswith("/v1")
    if dated and not isinstance(version, str):
        raise connected.error(
            "its host needs an api_version; end the host in /openai/v1, or set api_version in its extra"
        )
    if not dated and version:
        raise connected.error("a host that ends in /v1 takes no api_version; take one of the two away")
    return Upstream(
        conn_id=connected.conn_id,
        dialect=AZURE_DIALECTS[connected.provider],
        base_url=f"{host.removesuffix('/openai')}/openai" if dated else host,
        model=connected.model,
        api_key=connected.password,
        auth="api-key" if dated else "bearer",
        identity=identity,
        query={"api-version": str(version)} if dated else {},
        deployments=dated,
    )


def azure_identity(connected: Connected) -> AzureIdentity | None:
    """Return the identity that asks for Azure's tokens, if the connection has no key.

    Raises:
        ModelConnectionError: both, neither, or another word than the two that there are.
    """
    kind, client_id = connected.extra.get("azure_auth"), connected.extra.get("client_id")
    scope = {"scope": connected.extra["azure_scope"]} if "azure_scope" in connected.extra else {}
    has_key = bool(connected.password.get_secret_value())
    if kind is None:
        if scope:
            raise connected.error("azure_scope is what an identity's token is for; set azure_auth, or take it away")
        if not has_key:
            raise connected.error('it has no password; set the key, or {"azure_auth": "managed_identity"} in its extra')
        return None
    if has_key:
        raise connected.error("it has a password and azure_auth; keep one of them")
    try:
        identity = AzureIdentity.model_validate({"kind": kind, "client_id": client_id, **scope})
    except ValidationError:
        raise connected.error(
            'azure_auth is "managed_identity" or "cli", client_id a text, and azure_scope an address such as '
            "https://ai.azure.com/.default"
        ) from None
    if identity.kind == "cli" and client_id is not None:
        raise connected.error("client_id is for a managed identity; take it away")
    return identity


def check_has_key(connected: Connected) -> None:
    """Raise ModelConnectionError without host and password, where clients would take a key of the environment."""
    if not (connected.host or connected.password.get_secret_value()):
        raise connected.error(f"it has no password. Set the key of {connected.provider}; the environment's isn't used")


def client_arguments(connected: Connected, provider: Any) -> dict[str, str]:
    """Return the arguments of pydantic-ai's class of a provider; raises ModelConnectionError if it takes no such."""
    taken, named = inspect.signature(provider.__init__).parameters, f"provider {connected.provider}"
    instead = f"write openai-chat:{connected.model} with the URL of an OpenAI-compatible server as host"
    key, address = (next((name for name in names if name in taken), "") for names in (KEY_ARGUMENTS, ADDRESS_ARGUMENTS))
    if not key or "/" in connected.provider:
        raise connected.error(f"{named} takes no key from a connection. Choose another one, or {instead}")
    if connected.host and not address:
        raise connected.error(f"{named} has its own address. Remove the host, or {instead}")
    if not connected.host and not taken.keys().isdisjoint(("account", "region_name")):
        # The environment would complete the address.
        raise connected.error(f"{named} has no default address. Set the URL of the server as its host")
    check_has_key(connected)
    host = connected.host
    if not host and connected.provider in SPEAKS:
        spoken = WIRE_FORMATS[SPEAKS[connected.provider]]
        host = spoken.address.removesuffix("/v1" if spoken.client_adds_version else "")
    return {key: connected.password.get_secret_value() or NO_KEY} | ({address: host} if host else {})


def translated_upstream(connected: Connected, arguments: Mapping[str, Any]) -> Upstream:
    """Return the upstream of a provider with its own wire format, which the gateway reaches through pydantic-ai.

    Raises:
        ModelConnectionError: an argument cannot be given to another process.
    """
    try:
        text = json.dumps(arguments)
    except TypeError:
        raise connected.error(
            "its credentials cannot be handed to the gateway; use an API key, or those of the worker's environment"
        ) from None
    return Upstream(
        conn_id=connected.conn_id,
        dialect="openai-chat",
        base_url="",
        model=connected.model,
        provider=connected.provider,
        arguments=SecretStr(text),
    )


def spoken_by(harness: HarnessName, connected: Connected, upstream: Upstream) -> Upstream:
    """Return the connection's upstream in the wire format of a harness.

    Raises:
        ModelConnectionError: the server does not have that format.
    """
    dialect = HARNESSES[harness].wire_format
    if dialect is None or dialect == upstream.dialect:
        return upstream
    spoken = WIRE_FORMATS[dialect]
    anothers = upstream.base_url in ADDRESSES - {spoken.address}
    azures = connected.conn_type == OWN_TYPES["azure"] and dialect not in AZURE_DIALECTS.values()
    if upstream.provider or anothers or azures:
        raise connected.error(
            f"model.harness {harness} posts /v1/{spoken.path}, which {connected.provider} does not have; use "
            f"harness chat or tools, or a connection of type pydanticai to a server that has it, with {dialect}:NAME "
            "as its model"
        )
    return upstream.model_copy(update={"dialect": dialect})


def check_sampling(upstream: Upstream, model: ModelGroup) -> None:
    """Refuse settings that the target would never receive.

    Raises:
        ConfigError: naming the key and what to do.
    """
    if HARNESSES[model.harness].is_cli and model.temperature is not None:
        raise ConfigError(
            f"model.temperature = {model.temperature}: the CLI of harness {model.harness} has no option for it; unset "
            "model.temperature"
        )
    for server in (upstream, *upstream.fallbacks):
        check_thinking(server, "", model)


def check_thinking(upstream: Upstream, role: str, model: ModelGroup) -> None:
    """Refuse a temperature that Anthropic's own API answers 400 to, and thinking that a request has no field for.

    Args:
        role: what the names of the knobs begin with, `optimizer_` or nothing for the target.

    Raises:
        ConfigError: naming the key and what to do.
    """
    effort: Effort | None = getattr(model, f"{role}reasoning_effort")
    temperature = getattr(model, f"{role}temperature")
    key, wire_format = f"model.{role}", upstream.wire_format
    path, instead = f"/v1/{wire_format.path}", "name an effort, such as low, or unset it"
    if temperature is not None and upstream.dialect == "anthropic" and upstream.base_url == wire_format.address:
        raise ConfigError(f"{key}temperature = {temperature}: Anthropic's own API takes no temperature; unset it")
    if effort in ("on", "off") and not wire_format.sets(thinking=effort == "on"):
        raise ConfigError(f"{key}reasoning_effort = {effort!r}: requests to {path} have no such switch; {instead}")
    if not isinstance(effort, int):
        return
    limits = wire_format.sets(thinking_budget=effort)
    if upstream.provider:
        path = f"{upstream.provider}, for model {upstream.model},"
        limits = upstream.provider in BUDGETED or (upstream.provider == "bedrock" and "anthropic" in upstream.model)
    if not limits:
        raise ConfigError(
            f"{key}reasoning_effort = {effort}: requests to {path} have no limit to thinking in tokens; {instead}"
        )
