"""The buckets that pages read, behind clients that are kept: to make one takes longer than to show a page."""

from collections.abc import Mapping
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline.airflow_connections import AirflowConnections
from skillopt_airflow.ui.pages import app

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.objects import ObjectStore

PATIENCE: Mapping[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
"""A page holds one of the few threads of the API server, which the heartbeats of running tasks need as well."""


class KeptClients:
    """One S3 client for each connection, made anew when the connection has changed; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[str, tuple[str, S3Client]] = {}

    def of(self, storage: StorageGroup) -> "S3Client":
        """Return the client of `storage.conn_id`.

        Raises:
            ConfigError: Airflow has no such connection, or no client can be made of it.
        """
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        with self._lock:
            now = _state(storage.conn_id)
            kept = self._kept.get(storage.conn_id)
            if kept is not None and kept[0] == now:
                return kept[1]
            try:
                client = AirflowConnections().s3_client(storage, Config(**PATIENCE))
            except (ValueError, BotoCoreError, ClientError) as error:
                raise ConfigError(
                    f"storage.conn_id = {storage.conn_id}: no S3 client can be made of this connection: {error}"
                ) from error
            self._kept[storage.conn_id] = now, client
            return client


app.state.clients = KeptClients()


def open_bucket(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """Open a bucket of a benchmark or run.

    Raises:
        ConfigError: Airflow has no connection `storage.conn_id`.
    """
    from skillopt_airflow.store.objects import ObjectStore

    clients: KeptClients = app.state.clients
    return ObjectStore(clients.of(storage), bucket, f"connection {storage.conn_id} (storage.conn_id)")


class KeptConnections(AirflowConnections):
    """The outside world of a run whose documents a page reads."""

    def object_store(self, storage: StorageGroup, bucket: str) -> "ObjectStore":
        """Open a bucket behind a client that is kept."""
        return open_bucket(storage, bucket)


def _state(conn_id: str) -> str:
    """Return what changes with the connection; empty where there is none."""
    try:
        return sha256(BaseHook.get_connection(conn_id).get_uri().encode()).hexdigest()
    except AirflowNotFoundException:
        return ""
