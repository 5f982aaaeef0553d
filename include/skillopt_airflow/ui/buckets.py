"""Buckets with cached S3 clients, because creating a client takes longer than rendering a page."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.objects import ObjectStore

CLIENT_OPTIONS: Mapping[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
"""Short timeouts: a page blocks one of the API server's few threads, which task heartbeats need too."""
MAX_CLIENTS = 32


def open_bucket(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """Open a bucket of a benchmark or run.

    Raises:
        ConfigError: Airflow has no usable connection `storage.conn_id`.
    """
    from skillopt_airflow.store.objects import ObjectStore

    client = _client(storage.conn_id, _state(storage.conn_id))
    return ObjectStore(client, bucket, f"connection {storage.conn_id} (storage.conn_id)")


@lru_cache(maxsize=MAX_CLIENTS)
def _client(conn_id: str, state: str) -> "S3Client":
    """Return a client, which threads can share; `state` changes with the connection."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return AirflowConnections().s3_client(StorageGroup(conn_id=conn_id), Config(**CLIENT_OPTIONS))
    except (ValueError, BotoCoreError, ClientError) as error:
        raise ConfigError(f"storage.conn_id = {conn_id}: the connection gives no S3 client: {error}") from error


class CachedConnections(AirflowConnections):
    """Connections of a run whose documents a page reads, with cached clients."""

    def object_store(self, storage: StorageGroup, bucket: str) -> "ObjectStore":
        return open_bucket(storage, bucket)


def _state(conn_id: str) -> str:
    """Return a hash of the connection; empty if it doesn't exist."""
    try:
        return sha256(BaseHook.get_connection(conn_id).get_uri().encode()).hexdigest()
    except AirflowNotFoundException:
        return ""
