"""From an Airflow connection to a model: the one place that reads the credentials of providers."""

from typing import TYPE_CHECKING, cast, get_args

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from include.core.errors import ModelConnectionError
from include.models.upstream import Upstream

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pydantic_ai.models import Model

DIALECTS = get_args(Upstream.model_fields["dialect"].annotation)
DEFAULT_BASE_URLS = {
    "openai-chat": "https://api.openai.com/v1",
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}


def target_upstream(conn_id: str, model: str | None) -> Upstream:
    """The address that the gateway forwards a target's calls to.

    Raises:
        ModelConnectionError: the connection is missing, of another type, or names no usable model.
    """
    connection = _connection(conn_id)
    if connection.conn_type != "pydanticai":
        raise ModelConnectionError(
            f"connection {conn_id}: a sandbox cannot reach type {connection.conn_type!r}; use type 'pydanticai'"
        )
    named = _model_name(connection, model)
    dialect, _, name = named.partition(":")
    if dialect not in DIALECTS or not name:
        raise ModelConnectionError(
            f"connection {conn_id}: model {named!r} should be written as one of {', '.join(DIALECTS)}, "
            "a colon and the provider's model name"
        )
    return Upstream(
        dialect=dialect,
        base_url=(connection.host or DEFAULT_BASE_URLS[dialect]).rstrip("/"),
        model=name,
        api_key=connection.password or "",
        auth="x-api-key" if dialect == "anthropic" else "bearer",
        conn_id=conn_id,
    )


def model_name(conn_id: str, model: str | None) -> str:
    """The configured model, or the connection's own, as `provider:name`."""
    return _model_name(_connection(conn_id), model)


def host(conn_id: str) -> str:
    """The address of a server other than the provider's own; empty for that one."""
    address: str | None = _connection(conn_id).host
    return "" if address is None else address


def optimizer_model(conn_id: str, model: str | None) -> "Model":
    """The pydantic-ai model of a connection, by Airflow's own hook (any `pydanticai*` type).

    Raises:
        ModelConnectionError: the connection is missing or does not lead to a model.
    """
    from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook
    from pydantic_ai.exceptions import UserError

    named = _model_name(_connection(conn_id), model)
    try:
        hook = PydanticAIHook.get_hook(conn_id, hook_params={"model_id": named})
        return cast("Model", hook.get_conn())
    except (ValueError, ImportError, UserError) as error:
        raise ModelConnectionError(f"connection {conn_id}: {error}") from error


def check(conn_id: str) -> None:
    """Ask the connection's server for its models, so that a wrong address or key shows before the first rollout.

    Any HTTP answer but 401 and 403 will do: not every compatible server lists its models.

    Raises:
        ModelConnectionError: nothing answers at the address, or the key is refused or malformed.
    """
    import httpx

    connection = _connection(conn_id)
    if not connection.host:
        return
    url = f"{connection.host.rstrip('/')}/models"
    key = connection.password or ""
    if not (key.isascii() and key.isprintable()):
        raise ModelConnectionError(
            f"connection {conn_id}: its password holds a character that no HTTP header can carry, such as a line break "
            "copied along; enter the key again"
        )
    # A server without keys is legal, an empty bearer token is not.
    headers = {"Authorization": f"Bearer {key}", "x-api-key": key} if key else {}
    try:
        response = httpx.get(url, headers=headers, timeout=20)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ModelConnectionError(
            f"connection {conn_id}: no model server answers at {connection.host} ({error}); correct its host"
        ) from error
    if response.status_code in (401, 403):
        raise ModelConnectionError(
            f"connection {conn_id}: {connection.host} refuses the key ({response.status_code}); correct its password"
        )


def _connection(conn_id: str) -> "Connection":
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ModelConnectionError(
            f"connection {conn_id} does not exist; create it with type 'pydanticai', the provider's address as host, "
            'the key as password and {"model": "openai-chat:NAME"} as extra'
        ) from None


def _model_name(connection: "Connection", model: str | None) -> str:
    extra: object = connection.extra_dejson
    own = extra.get("model") if isinstance(extra, dict) else None
    name = model if model is not None else own
    if not isinstance(name, str) or not name:
        raise ModelConnectionError(
            f'connection {connection.conn_id} names no model; set {{"model": "openai-chat:NAME"}} in its extra'
        )
    return name
