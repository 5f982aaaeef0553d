"""From an Airflow connection to a model: the one place that reads the credentials of providers."""

from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from pydantic import SecretStr

from skillopt_airflow.core.errors import ModelConnectionError, ModelUnavailable, ModelUnreachable
from skillopt_airflow.core.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.wire_formats import Dialect
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.providers import (
    ADDRESSES,
    OWN_TYPES,
    SPEAKS,
    Connected,
    azure_upstream,
    check_temperature,
    check_thinking,
    check_thinking_budget,
    http_upstream,
    spoken_by,
    translated_upstream,
)

if TYPE_CHECKING:
    import httpx
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    from airflow.sdk import Connection
    from pydantic_ai.models import Model

    from skillopt_airflow.core.resource_groups import ModelGroup

GENERIC = "pydanticai"
AWAY = (502, 503, 504)
"""What a proxy answers while the server behind it starts."""
CHECK_SECONDS = 20.0
JSON_CONTENT = {"content-type": "application/json"}


def target_upstream(conn_id: str, model: str | None, harness: HarnessName = "chat") -> Upstream:
    """Return the server of a target's calls, in the wire format of the harness.

    Raises:
        ModelConnectionError: the connection, or one of its fallbacks, is missing, of another type, names no usable
            model, or its server does not speak what the harness does.
    """
    first, *others = [spoken_by(harness, connected, _upstream(connected)) for connected in _chain(conn_id, model)]
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
    upstreams = [_upstream(connected) for connected in _chain(conn_id, model)]
    spoken = {None if upstream.provider else upstream.dialect for upstream in upstreams}
    return spoken.pop() if len(spoken) == 1 else None


def optimizer_model(conn_id: str, model: str | None) -> "Model":
    """Return the pydantic-ai model of a connection and its fallbacks, by Airflow's hook (any `pydanticai*` type).

    Raises:
        ModelConnectionError: the connection, or one of its fallbacks, is missing or does not lead to a model.
    """
    from pydantic_ai.models.fallback import FallbackModel

    from skillopt_airflow.models.optimizer import is_unavailable

    models = [_model(connected) for connected in _chain(conn_id, model)]
    # Airflow's hook does the same, but knows no Azure identities.
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
    for connected in _chain(model.optimizer_conn_id, model.optimizer):
        upstream = _upstream(connected)
        check_temperature(upstream, "model.optimizer_temperature", model.optimizer_temperature)
        check_thinking_budget(upstream, "model.optimizer_thinking_budget", model.optimizer_thinking_budget)
        check_thinking(upstream, "model.optimizer_thinking", model.optimizer_thinking)


def check(conn_id: str, model: str | None = None) -> None:
    """Ask the servers of a connection and its fallbacks for their models, so that a wrong address or key shows early.

    Any HTTP answer but 401 and a redirect will do, since not every compatible server lists its models; after 403, 502,
    503 and 504 a call without a prompt tells. A provider's own address is not asked; of a provider whose requests are
    translated, only the connection's fields are looked at.

    Raises:
        ModelConnectionError: the address is none, or leads to another one; the key is refused or malformed; or a field
            is wrong.
        ModelUnavailable: the server has no answer now; ModelUnreachable if nothing answers at the address.
    """
    for connected in _chain(conn_id, model):
        if _is_translated(connected):
            _model(connected)
            continue
        _check_key(connected)
        if connected.host:
            _check(connected, _upstream(connected))


def check_harness(upstream: Upstream, harness: HarnessName) -> None:
    """Ask custom servers whether they have the path that an agent CLI posts to, without calling a model.

    Raises:
        ModelConnectionError: a server does not have it.
        ModelUnreachable: none answers there.
    """
    for server in (upstream, *upstream.fallbacks):
        if HARNESSES[harness].wire_format is not None and server.base_url not in ADDRESSES:
            _check_path(server, harness)


def _check_path(server: Upstream, harness: HarnessName) -> None:
    import httpx

    try:
        response = _once(server, _unprompted(server))
    except httpx.HTTPError as error:
        raise ModelUnreachable(f"connection {server.conn_id}: no model server answers ({error})") from error
    if response.status_code in (404, 405):
        raise ModelConnectionError(
            f"connection {server.conn_id}: model.harness {harness} posts /v1/{server.wire_format.path}, and "
            f"{server.base_url} has no such path ({response.status_code}); use harness chat or tools, or a connection "
            "to a server that has it"
        )


def _once(upstream: Upstream, body: bytes | None = None) -> "httpx.Response":
    """Return the response to one call or, without a body, to a request for the list of models."""
    import asyncio

    from skillopt_airflow.gateway.backends import HttpBackend

    async def asked() -> "httpx.Response":
        async with aclosing(HttpBackend(upstream, CHECK_SECONDS)) as backend:
            response = await (backend.list_models() if body is None else backend.send(body, JSON_CONTENT))
            await response.aclose()
            return response

    return asyncio.run(asked())


def _check_key(connected: Connected) -> None:
    key = connected.password.get_secret_value()
    if not (key.isascii() and key.isprintable()):
        raise connected.error(
            "its password holds a character that no HTTP header can carry, such as a line break copied along; "
            "enter the key again"
        )


def _check(connected: Connected, upstream: Upstream) -> None:
    import httpx

    try:
        response = _once(upstream)
        if response.status_code in (403, *AWAY):
            # A key may lack the right to list the models, and a proxy the way to the list.
            response = _once(upstream, _unprompted(upstream))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = connected.error(f"no model server answers at {connected.host} ({error}); correct its host")
        is_address = not isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)
        raise ModelUnreachable(str(said)) if is_address else said from error
    except ModelConnectionError as error:
        raise connected.error(f"{error}; correct its azure_auth") from error
    if response.has_redirect_location:
        # The gateway follows none: the key is for this server alone. Within it, other paths may still answer.
        elsewhere = response.url.join(response.headers["location"])
        if (elsewhere.scheme, elsewhere.netloc) != (response.url.scheme, response.url.netloc):
            address = str(elsewhere).removesuffix("/models")
            raise connected.error(f"{connected.host} redirects to {address}; correct its host")
    if response.status_code in (401, 403):
        what = "password" if upstream.identity is None else "azure_auth, or the identity's role on the resource"
        raise connected.error(f"{connected.host} refuses the key ({response.status_code}); correct its {what}")
    if response.status_code in AWAY:
        said = connected.error(f"{connected.host} has no answer now ({response.status_code}); try again when it has")
        raise ModelUnavailable(str(said))


def _unprompted(server: Upstream) -> bytes:
    """Return a call that there is nothing to answer to, and that only tells whether the server would take one."""
    import json

    return json.dumps({"model": server.model}).encode()


def _chain(conn_id: str, model: str | None) -> list[Connected]:
    """Return the connection and its fallbacks, each of which names its own model."""
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
        ModelConnectionError: the connection has no host, and its own model is another provider's than the chosen one.
    """
    own = connected.extra.get("model")
    if connected.host or not isinstance(own, str):
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


def _hook(conn_id: str, **parameters: str) -> "PydanticAIHook":
    """Return Airflow's hook of the connection; the fallbacks are ours, because it knows no Azure identities."""
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook

    try:
        hook = PydanticAIHook.get_hook(conn_id, hook_params={"fallback_conn_ids": [], **parameters})
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


def _is_translated(connected: Connected) -> bool:
    return connected.conn_type != OWN_TYPES["azure"] and connected.provider not in SPEAKS


def _upstream(connected: Connected) -> Upstream:
    if connected.conn_type == OWN_TYPES["azure"]:
        return azure_upstream(connected)
    if connected.provider in SPEAKS:
        return http_upstream(connected)
    hook = _hook(connected.conn_id)
    # The hook's model cannot be passed to a gateway in another process, but its arguments can.
    arguments = hook._get_provider_kwargs(
        connected.password.get_secret_value() or None, connected.host or None, connected.extra
    )
    return translated_upstream(connected, arguments)


def _model(connected: Connected) -> "Model":
    from pydantic_ai.exceptions import UserError

    # Checks what Airflow's hook would ignore, or report less clearly.
    upstream = None if _is_translated(connected) else _upstream(connected)
    if upstream is not None and upstream.identity is not None:
        from skillopt_airflow.models.azure import azure_model

        return azure_model(upstream, upstream.identity)
    hook = _hook(connected.conn_id, model_id=f"{connected.provider}:{connected.model}")
    try:
        model = hook.get_conn()
    except (ValueError, ImportError, UserError) as error:
        raise connected.error(str(error)) from error
    return _limited_by_max_tokens(model) if upstream is not None and upstream.takes_max_tokens else model


def _limited_by_max_tokens(model: "Model") -> "Model":
    """Return a model of chat completions that is told its limit as `max_tokens`; any other is as it was."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    if not isinstance(model, OpenAIChatModel) or model.provider is None:
        return model
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model.model_name, provider=model.provider, profile=profile)
