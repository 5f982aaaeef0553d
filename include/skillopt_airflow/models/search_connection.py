"""From the fields of an Airflow connection of type http to a search server."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import SecretStr, ValidationError

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.gateway.web_search import SEARCH_SERVERS, SearchKind, SearchUpstream

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
