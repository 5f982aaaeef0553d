"""From an Airflow connection to a model: the only code that reads the providers' credentials."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from pydantic import SecretStr, ValidationError

from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.errors import ConfigError, ModelConnectionError
from skillopt_airflow.core.wire_formats import Dialect
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import SEARCH_SERVERS, SearchKind, SearchUpstream
from skillopt_airflow.models.providers import (
    DIALECTS,
    OWN_TYPES,
    ModelConnection,
    azure_upstream,
    check_thinking,
    client_arguments,
    for_harness,
    http_upstream,
    translated_upstream,
)

if TYPE_CHECKING:
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    from airflow.sdk import Connection
    from pydantic_ai.models import Model

    from skillopt_airflow.core.config.resource_groups import ModelGroup


CREATE = (
    'type \'http\', the server\'s URL as host, its key as password, and {"kind": "searxng"}, '
    '{"kind": "brave"} or {"kind": "tavily"} as extra'
)


def search_upstream(connection: Any) -> SearchUpstream:
    """Return the search server of an Airflow connection. Raises ConfigError if a field is missing or invalid."""
    conn_id, extra = connection.conn_id, connection.extra_dejson
    kind = extra.get("kind") if isinstance(extra, Mapping) else None
    if connection.conn_type != "http" or kind not in get_args(SearchKind):
        raise ConfigError(f"search.conn_id: connection {conn_id} isn't a search server. Set {CREATE}")
    host = connection.host or ""
    if host and "://" not in host:
        port = f":{connection.port}" if connection.port else ""
        host = f"{connection.schema or 'https'}://{host}{port}"
    url, key = host or SEARCH_SERVERS[cast("SearchKind", kind)].address, SecretStr(connection.password or "")
    try:
        return SearchUpstream(conn_id=conn_id, kind=kind, base_url=url, api_key=key)
    except ValidationError:
        raise ConfigError(
            f"search.conn_id: connection {conn_id} has no usable host. Set the URL of the {kind} server, such as "
            "https://search.example.org"
        ) from None


GENERIC = "pydanticai"


def target_upstream(conn_id: str, model: str | None, harness: HarnessName = "chat") -> Upstream:
    """Return the server of a target's calls, in the wire format of the harness.

    Raises ModelConnectionError if the connection or a fallback is missing or invalid, or lacks the wire format.
    """
    first, *others = [for_harness(harness, connection, upstream_of(connection)) for connection in chain(conn_id, model)]
    for other in others:
        if other.dialect != first.dialect:
            raise ModelConnectionError(
                f"connection {other.conn_id}: its wire format is {other.dialect}, and that of {conn_id} is "
                f"{first.dialect}. Choose a fallback with the same wire format"
            )
    return first.model_copy(update={"fallbacks": tuple(others)})


def target_dialect(conn_id: str, model: str | None) -> Dialect | None:
    """Return the wire format of a connection; None if requests are translated or a fallback has another format.

    Raises ModelConnectionError, as `target_upstream`.
    """
    upstreams = [upstream_of(connection) for connection in chain(conn_id, model)]
    dialects = {None if upstream.provider else upstream.dialect for upstream in upstreams}
    return dialects.pop() if len(dialects) == 1 else None


def optimizer_model(conn_id: str, model: str | None) -> "Model":
    """Return the pydantic-ai model of a connection and its fallbacks. Raises ModelConnectionError."""
    from pydantic_ai.models.fallback import FallbackModel

    from skillopt_airflow.models.model_errors import is_unavailable

    models = [model_of(connection) for connection in chain(conn_id, model)]
    return FallbackModel(*models, fallback_on=is_unavailable) if len(models) > 1 else models[0]


def model_name(conn_id: str, model: str | None) -> str:
    """Return the configured model, or the connection's own, as `provider:name`. Raises ModelConnectionError."""
    connection = _read_connection(conn_id, model)
    return f"{connection.provider}:{connection.model}"


def exists(conn_id: str) -> bool:
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return False
    return True


def host(conn_id: str) -> str:
    """Return the connection's host; empty for the provider's default URL."""
    return _airflow_connection(conn_id).host or ""


def check_optimizer(model: "ModelGroup") -> None:
    """Check that the optimizer and its fallbacks support the settings.

    Raises:
        ConfigError: with the key and a remedy.
        ModelConnectionError: as `target_upstream`.
    """
    for connection in chain(model.optimizer_conn_id, model.optimizer):
        check_thinking(upstream_of(connection), "optimizer_", model)


def chain(conn_id: str, model: str | None) -> list[ModelConnection]:
    """Return the connection and its fallbacks, each with its own model. Raises ModelConnectionError."""
    first = _read_connection(conn_id, model)
    value: object = first.extra.get("fallback_conn_ids", [])
    if not (isinstance(value, list) and all(isinstance(other, str) for other in value)):
        raise first.error(f"fallback_conn_ids = {value!r}: expected a list of connection IDs")
    # Airflow's form adds a blank line at the end of the list.
    ids = [other.strip() for other in value if other.strip()]
    if len({conn_id, *ids}) != 1 + len(ids):
        raise first.error("fallback_conn_ids names a connection twice, or the connection itself. Remove it")
    fallbacks = [_read_connection(other, None) for other in ids]
    for fallback in fallbacks:
        if fallback.extra.get("fallback_conn_ids"):
            raise fallback.error(f"a fallback of {conn_id} can't have fallbacks. List them all in {conn_id}")
    return [first, *fallbacks]


def _read_connection(conn_id: str, model: str | None) -> ModelConnection:
    """Return a connection with the chosen model, after checking its type."""
    stored = _airflow_connection(conn_id)
    hook = _hook(conn_id)
    extra: object = stored.extra_dejson
    fields = extra if isinstance(extra, dict) else {}
    name = fields.get("model") if model is None else model
    vendor = hook.model_provider
    example = f"{vendor or 'openai-chat'}:NAME"
    if not isinstance(name, str) or not name:
        raise ModelConnectionError(f'connection {conn_id} names no model. Set {{"model": "{example}"}} in its extra')
    provider, own_name = _split(name, vendor)
    if not provider or not own_name:
        raise ModelConnectionError(
            f"connection {conn_id}: model {name!r} isn't of the form PROVIDER:NAME. Set it as in {example}; for an "
            "OpenAI-compatible server, the provider is openai-chat"
        )
    wanted = OWN_TYPES.get(provider, GENERIC)
    if stored.conn_type != wanted and (wanted != GENERIC or stored.conn_type in OWN_TYPES.values()):
        raise ModelConnectionError(
            f"connection {conn_id}: type {stored.conn_type!r} doesn't support {provider}. Use type {wanted!r}"
        )
    connection = ModelConnection(
        conn_id=conn_id,
        conn_type=stored.conn_type,
        host=stored.host or "",
        password=SecretStr(stored.password or ""),
        extra=fields,
        provider=provider,
        model=own_name,
    )
    _check_vendor(connection, vendor)
    return connection


def _check_vendor(connection: ModelConnection, vendor: str | None) -> None:
    """Refuse to send a provider's key to another provider's default URL."""
    own = connection.extra.get("model")
    if connection.host or not connection.password.get_secret_value() or not isinstance(own, str):
        return
    provider, _ = _split(own, vendor)
    if provider and _provider_class(provider) != _provider_class(connection.provider):
        raise connection.error(
            f"it has no host and its own model is {own}, so its key isn't {connection.provider}'s. For "
            f"{connection.provider}:{connection.model}, use a connection of that provider"
        )


def _split(name: str, vendor: str | None) -> tuple[str, str]:
    """Return a model's provider and name. Without a provider, it's the vendor of the connection's type."""
    provider, _, own_name = name.partition(":")
    if _provider_class(provider) is None:
        # Bedrock's model names have colons, too.
        return (vendor, name) if vendor else ("", "")
    return provider, own_name


def _airflow_connection(conn_id: str) -> "Connection":
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ModelConnectionError(
            f"connection {conn_id} does not exist. Create it with type 'pydanticai', the provider's URL as host, "
            'the key as password and {"model": "openai-chat:NAME"} as extra'
        ) from None


def _hook(conn_id: str) -> "PydanticAIHook":
    """Return Airflow's hook of the connection, which has the arguments of its type.

    Don't use its models: if a provider refuses an argument, they fall back to the environment's credentials.
    """
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook

    try:
        hook = PydanticAIHook.get_hook(conn_id, hook_params={"fallback_conn_ids": []})
    except (ValueError, ImportError) as error:
        raise ModelConnectionError(f"connection {conn_id}: {error}") from error
    return cast("PydanticAIHook", hook)


def _provider_class(name: str) -> object:
    """Return the class of a provider, its name if it isn't installed, or None if it's unknown."""
    from pydantic_ai.providers import infer_provider_class

    try:
        return infer_provider_class(name)
    except ImportError:
        return name
    except ValueError:
        return None


def is_translated(connection: ModelConnection) -> bool:
    """Return whether the gateway has to translate requests for the provider."""
    return connection.conn_type != OWN_TYPES["azure"] and connection.provider not in DIALECTS


def upstream_of(connection: ModelConnection) -> Upstream:
    """Return the server of a connection. Raises ModelConnectionError if a field is invalid."""
    if connection.conn_type == OWN_TYPES["azure"]:
        return azure_upstream(connection)
    if connection.provider in DIALECTS:
        return http_upstream(connection)
    return translated_upstream(connection, _arguments(connection))


def _arguments(connection: ModelConnection) -> dict[str, Any]:
    """Return the arguments of pydantic-ai's provider. Raises ModelConnectionError if a field is invalid or unused."""
    provider = _provider_class(connection.provider)
    if connection.conn_type == GENERIC and isinstance(provider, type):
        return client_arguments(connection, provider)
    key, host = connection.password.get_secret_value(), connection.host
    arguments = _hook(connection.conn_id)._get_provider_kwargs(key or None, host or None, connection.extra)
    for field, value in (("host", host), ("password", key)):
        if value and value not in arguments.values():
            raise connection.error(f"type {connection.conn_type} ignores its {field}. Move it to the extra")
    return arguments


def model_of(connection: ModelConnection) -> "Model":
    """Return the pydantic-ai model of a connection. Raises ModelConnectionError if a field is invalid."""
    from skillopt_airflow.gateway.translation import provider_model

    upstream = None if is_translated(connection) else upstream_of(connection)
    if upstream is not None and upstream.identity is not None:
        from skillopt_airflow.models.optimizer import azure_model

        return azure_model(upstream, upstream.identity)
    model = provider_model(connection.conn_id, f"{connection.provider}:{connection.model}", _arguments(connection))
    return _with_max_tokens(model) if upstream is not None and upstream.takes_max_tokens else model


def _with_max_tokens(model: "Model") -> "Model":
    """Make chat completions send the limit as `max_tokens`. Other models are returned unchanged."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    if not isinstance(model, OpenAIChatModel) or model.provider is None:
        return model
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model.model_name, provider=model.provider, profile=profile)
