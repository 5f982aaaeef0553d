from collections.abc import Iterator
from urllib.parse import quote

import pytest

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.ui import buckets
from skillopt_airflow.ui.pages import app

STORAGE = StorageGroup(conn_id="pages_s3")


@pytest.fixture
def clients() -> Iterator[buckets.KeptClients]:
    before, kept = app.state.clients, buckets.KeptClients()
    app.state.clients = kept
    yield kept
    app.state.clients = before
    for _, client in kept._kept.values():
        client.close()


def connect(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    uri = f"aws://key-of-pages:secret-of-pages@/?region_name=us-east-1&endpoint_url={quote(endpoint, safe='')}"
    monkeypatch.setenv("AIRFLOW_CONN_PAGES_S3", uri)


def test_a_client_is_kept_until_its_connection_changes(
    monkeypatch: pytest.MonkeyPatch, clients: buckets.KeptClients
) -> None:
    connect(monkeypatch, "http://127.0.0.1:9")
    first = clients.of(STORAGE)
    assert clients.of(STORAGE) is first
    connect(monkeypatch, "http://127.0.0.1:10")
    second = clients.of(STORAGE)
    assert second.meta.endpoint_url == "http://127.0.0.1:10"
    first.close()


def test_buckets_of_one_connection_share_its_client(
    monkeypatch: pytest.MonkeyPatch, clients: buckets.KeptClients
) -> None:
    connect(monkeypatch, "http://127.0.0.1:9")
    runs, artifacts = (buckets.open_bucket(STORAGE, name) for name in ("runs", "artifacts"))
    assert (runs.bucket, artifacts.bucket) == ("runs", "artifacts")
    assert runs._client is artifacts._client


def test_a_connection_that_is_missing_is_named(clients: buckets.KeptClients) -> None:
    with pytest.raises(ConfigError, match="pages_s3"):
        buckets.open_bucket(STORAGE, "runs")
