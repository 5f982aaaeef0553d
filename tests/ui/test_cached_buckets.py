from urllib.parse import quote

import pytest

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.ui import access

STORAGE = StorageGroup(conn_id="pages_s3")


def connect(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    uri = f"aws://key-of-pages:secret-of-pages@/?region_name=us-east-1&endpoint_url={quote(endpoint, safe='')}"
    monkeypatch.setenv("AIRFLOW_CONN_PAGES_S3", uri)


def test_a_client_is_kept_until_its_connection_changes_and_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "http://127.0.0.1:9")
    runs, artifacts = (access.open_bucket(STORAGE, name) for name in ("runs", "artifacts"))
    assert (runs.bucket, artifacts.bucket) == ("runs", "artifacts")
    assert runs._client is artifacts._client
    found = runs._client.meta.config
    assert found.retries["total_max_attempts"] * (found.connect_timeout + found.read_timeout) < 30
    connect(monkeypatch, "http://127.0.0.1:10")
    changed = access.open_bucket(STORAGE, "runs")
    assert changed._client.meta.endpoint_url == "http://127.0.0.1:10"


def test_a_connection_that_is_missing_or_of_no_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="pages_s3"):
        access.open_bucket(STORAGE, "runs")
    connect(monkeypatch, "minio:9000")
    with pytest.raises(ConfigError, match=r"storage\.conn_id = pages_s3: .* minio:9000"):
        access.open_bucket(STORAGE, "runs")
