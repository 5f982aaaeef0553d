from typing import Any

import pytest
from airflow.sdk import Connection

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.models.search_connection import search_upstream


def connection(**fields: Any) -> Connection:
    return Connection(**{"conn_id": "skillopt_search", "conn_type": "http"} | fields)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "https://search.example.org/", "extra": '{"kind": "searxng"}'}, "https://search.example.org/"),
        ({"host": "search.example.org", "extra": '{"kind": "searxng"}'}, "https://search.example.org"),
        (
            {"host": "searxng", "schema": "http", "port": 8080, "extra": '{"kind": "searxng"}'},
            "http://searxng:8080",
        ),
        ({"password": "k", "extra": '{"kind": "brave"}'}, "https://api.search.brave.com"),
    ],
)
def test_a_connection_leads_to_its_server(fields: dict[str, Any], address: str) -> None:
    upstream = search_upstream(connection(**fields))
    assert upstream.base_url == address
    assert upstream.api_key.get_secret_value() == fields.get("password", "")
    assert "k" not in repr(upstream.api_key)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": "https://a.example"}, '"kind": "searxng"'),
        ({"host": "https://a.example", "extra": '{"kind": "bing"}'}, '"kind": "brave"'),
        ({"conn_type": "pydanticai", "extra": '{"kind": "brave"}'}, "type 'http'"),
        ({"extra": '{"kind": "searxng"}'}, "no usable host"),
        ({"host": "file:///etc/passwd", "extra": '{"kind": "searxng"}'}, "no usable host"),
    ],
)
def test_what_is_no_search_server_is_told_how_to_be_one(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"search\.conn_id: connection skillopt_search") as refused:
        search_upstream(connection(**fields))
    assert said in str(refused.value)
