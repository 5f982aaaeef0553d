"""From an Airflow connection to a model: the one place that reads the credentials of providers."""

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
    OWN_TYPES,
    SPEAKS,
    Connected,
    azure_upstream,
    check_thinking,
    client_arguments,
    http_upstream,
    spoken_by,
    translated_upstream,
)

if TYPE_CHECKING:
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    from airflow.sdk import Connection
    from pydantic_ai.models import Model

    from skillopt_airflow.core.config.resource_groups import ModelGroup


KIND = "kind"
CREATE = (
    'type \'http\', the server\'s address as host, its key as password, and {"kind": "searxng"}, '
    '{"kind": "brave"} or {"kind": "tavily"} as extra'
)


def search_upstream(connection: Any) -> SearchUpstream:
    """Return the search server of an Airflow connection.

    Raises:
        ConfigError: a field of it is missing or cannot be right.
    """
    conn_id, extra = connection.conn_id, connection.extra_dejson
    kind = extra.get(KIND) if isinstance(extra, Mapping) else None
    if connection.conn_type != "http" or kind not in get_args(SearchKind):
        raise ConfigError(f"search.conn_id: connection {conn_id} is no search server; give it {CREATE}")
    host = connection.host or ""
    if host and "://" not in host:
        port = f":{connection.port}" if connection.port else ""
        host = f"{connection.schema or 'https'}://{host}{port}"
    server = SEARCH_SERVERS[cast("SearchKind", kind)]
    address = host or server.address
    try:
        return SearchUpstream(
            conn_id=conn_id, kind=kind, base_url=address, api_key=SecretStr(connection.password or "")
        )
    except ValidationError:
        raise ConfigError(
            f"search.conn_id: connection {conn_id} has no usable host; set the address of the {kind} server, such as "
            "https://search.example.org"
        ) from None


GENERIC = "pydanticai"


def target_upstream(conn_id: str, model: str | None, harness: HarnessName = "chat") -> Upstream:
    """Return the server of a target's calls, in the wire format of the harness.

    Raises:
        ModelConnectionError: the connection, or one of its fallbacks, is missing, of another type, names no usable
            model, or its server does not speak what the harness does.
    """
    first, *others = [spoken_by(harness, connected, upstream_of(connected)) for connected in chain(conn_id, model)]
    for other in others:
        if other.dialect != first.dialect:
            raise ModelConnectionError(
                f"connection {other.conn_id}: it speaks {other.dialect}, and {conn_id}, whose fallback it is, "
                f"{first.dialect}; what a sandbox sends fits one of them only"
            )
    return first.model_copy(update={"fallbacks": tuple(others)})


def target_dialect(conn_id: str, model: str | None) -> Dialect | None:
    """Return the wire format of a connection; None if its provider has its own, or its fallbacks another.

    Raises:
        ModelConnectionError: as `target_upstream`.
    """
    upstreams = [upstream_of(connected) for connected in chain(conn_id, model)]
    spoken = {None if upstream.provider else upstream.dialect for upstream in upstreams}
    return spoken.pop() if len(spoken) == 1 else None


def optimizer_model(conn_id: str, model: str | None) -> "Model":
    """Return the pydantic-ai model of a connection and its fallbacks (any `pydanticai*` type).

    Raises:
        ModelConnectionError: the connection, or one of its fallbacks, is missing or does not lead to a model.
    """
    from pydantic_ai.models.fallback import FallbackModel

    from skillopt_airflow.models.model_errors import is_unavailable

    models = [model_of(connected) for connected in chain(conn_id, model)]
    return FallbackModel(*models, fallback_on=is_unavailable) if len(models) > 1 else models[0]


def model_name(conn_id: str, model: str | None) -> str:
    """Return the configured model, or the connection's own, as `provider:name`.

    Raises:
        ModelConnectionError: the connection is missing, of another type, or names no usable model.
    """
    connected = _connected(conn_id, model)
    return f"{connected.provider}:{connected.model}"


def exists(conn_id: str) -> bool:
    """Return whether Airflow has the connection."""
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return False
    return True


def host(conn_id: str) -> str:
    """Return the address of a server other than the provider's own; empty for that one."""
    address: str | None = _connection(conn_id).host
    return "" if address is None else address


def check_optimizer(model: "ModelGroup") -> None:
    """Refuse settings that the optimizer, or one of its fallbacks, would never receive.

    Raises:
        ConfigError: naming the key and what to do.
        ModelConnectionError: as `target_upstream`.
    """
    for connected in chain(model.optimizer_conn_id, model.optimizer):
        check_thinking(upstream_of(connected), "optimizer_", model)


def chain(conn_id: str, model: str | None) -> list[Connected]:
    """Return the connection and its fallbacks, each of which names its own model; raises ModelConnectionError."""
    first = _connected(conn_id, model)
    named: object = first.extra.get("fallback_conn_ids", [])
    if not (isinstance(named, list) and all(isinstance(other, str) for other in named)):
        raise first.error(f"fallback_conn_ids is a list of connection ids, not {named!r}")
    # Airflow's form leaves a blank line at the end of the list.
    ids = [other.strip() for other in named if other.strip()]
    if len({conn_id, *ids}) != 1 + len(ids):
        raise first.error("fallback_conn_ids names a connection twice, or the connection itself")
    fallbacks = [_connected(other, None) for other in ids]
    for fallback in fallbacks:
        if fallback.extra.get("fallback_conn_ids"):
            raise fallback.error(f"as a fallback of {conn_id} it may have none of its own; list them all there")
    return [first, *fallbacks]


def _connected(conn_id: str, model: str | None) -> Connected:
    """Return a connection with the chosen model, after checking that its type can reach the provider."""
    connection = _connection(conn_id)
    hook = _hook(conn_id)
    extra: object = connection.extra_dejson
    fields = extra if isinstance(extra, dict) else {}
    name = fields.get("model") if model is None else model
    vendor = hook.model_provider
    example = f"{vendor or 'openai-chat'}:NAME"
    if not isinstance(name, str) or not name:
        raise ModelConnectionError(f'connection {conn_id} names no model; set {{"model": "{example}"}} in its extra')
    provider, own_name = _split(name, vendor)
    if not provider or not own_name:
        raise ModelConnectionError(
            f"connection {conn_id}: model {name!r} should be written as a provider, a colon and the provider's name of "
            f"the model, such as {example}; for any OpenAI-compatible server the provider is openai-chat"
        )
    wanted = OWN_TYPES.get(provider, GENERIC)
    if connection.conn_type != wanted and (wanted != GENERIC or connection.conn_type in OWN_TYPES.values()):
        raise ModelConnectionError(
            f"connection {conn_id}: type {connection.conn_type!r} does not lead to {provider}; use type {wanted!r}"
        )
    connected = Connected(
        conn_id=conn_id,
        conn_type=connection.conn_type,
        host=connection.host or "",
        password=SecretStr(connection.password or ""),
        extra=fields,
        provider=provider,
        model=own_name,
    )
    _check_vendor(connected, vendor)
    return connected


def _check_vendor(connected: Connected, vendor: str | None) -> None:
    """Refuse to send the key of a provider to another one's own address.

    Raises:
        ModelConnectionError: the connection has a key and no host, and its own model is another provider's than the
            chosen one.
    """
    own = connected.extra.get("model")
    if connected.host or not connected.password.get_secret_value() or not isinstance(own, str):
        return
    provider, _ = _split(own, vendor)
    if provider and _provider_class(provider) != _provider_class(connected.provider):
        raise connected.error(
            f"it has no host and its own model is {own}, so its key is not {connected.provider}'s; for "
            f"{connected.provider}:{connected.model} use a connection of that provider"
        )


def _split(name: str, vendor: str | None) -> tuple[str, str]:
    """Return provider and name of a model; the vendor of the connection's type, if any, where it names no provider."""
    provider, _, own_name = name.partition(":")
    if _provider_class(provider) is None:
        # A vendor's own name may hold a colon, such as Bedrock's versions.
        return (vendor, name) if vendor else ("", "")
    return provider, own_name


def _connection(conn_id: str) -> "Connection":
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ModelConnectionError(
            f"connection {conn_id} does not exist; create it with type 'pydanticai', the provider's address as host, "
            'the key as password and {"model": "openai-chat:NAME"} as extra'
        ) from None


def _hook(conn_id: str) -> "PydanticAIHook":
    """Return Airflow's hook of the connection, which knows the arguments of its type.

    Its models aren't used: where a provider refuses an argument, they go on with the environment's credentials.
    """
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook

    try:
        hook = PydanticAIHook.get_hook(conn_id, hook_params={"fallback_conn_ids": []})
    except (ValueError, ImportError) as error:
        raise ModelConnectionError(f"connection {conn_id}: {error}") from error
    return cast("PydanticAIHook", hook)


def _provider_class(name: str) -> object:
    """Return what several names of a provider have in common, the name itself where it is not installed; or None."""
    from pydantic_ai.providers import infer_provider_class

    try:
        return infer_provider_class(name)
    except ImportError:
        return name
    except ValueError:
        return None


def is_translated(connected: Connected) -> bool:
    """Return whether the gateway translates the provider's requests, which are in no wire format of ours."""
    return connected.conn_type != OWN_TYPES["azure"] and connected.provider not in SPEAKS


def upstream_of(connected: Connected) -> Upstream:
    """Return the server of a connection; raises ModelConnectionError if a field is wrong."""
    if connected.conn_type == OWN_TYPES["azure"]:
        return azure_upstream(connected)
    if connected.provider in SPEAKS:
        return http_upstream(connected)
    # A model cannot be passed to a gateway in another process, but its arguments can.
    return translated_upstream(connected, _arguments(connected))


def _arguments(connected: Connected) -> dict[str, Any]:
    """Return the arguments of pydantic-ai's provider; raises ModelConnectionError if a field is wrong or unused."""
    provider = _provider_class(connected.provider)
    if connected.conn_type == GENERIC and isinstance(provider, type):
        return client_arguments(connected, provider)
    key, host = connected.password.get_secret_value(), connected.host
    arguments = _hook(connected.conn_id)._get_provider_kwargs(key or None, host or None, connected.extra)
    for field, value in (("host", host), ("password", key)):
        if value and value not in arguments.values():
            raise connected.error(f"type {connected.conn_type} ignores its {field}. Move it to the extra")
    return arguments


def model_of(connected: Connected) -> "Model":
    """Return the pydantic-ai model of a connection; raises ModelConnectionError if a field is wrong."""
    from skillopt_airflow.gateway.translation import provider_model

    upstream = None if is_translated(connected) else upstream_of(connected)
    if upstream is not None and upstream.identity is not None:
        from skillopt_airflow.models.azure import azure_model

        return azure_model(upstream, upstream.identity)
    model = provider_model(connected.conn_id, f"{connected.provider}:{connected.model}", _arguments(connected))
    return _limited_by_max_tokens(model) if upstream is not None and upstream.takes_max_tokens else model


def _limited_by_max_tokens(model: "Model") -> "Model":
    """Return a model of chat completions that is told its limit as `max_tokens`; any other is as it was."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    if not isinstance(model, OpenAIChatModel) or model.provider is None:
        return model
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model.model_name, provider=model.provider, profile=profile)
