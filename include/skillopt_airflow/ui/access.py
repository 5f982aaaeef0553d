"""Access to the pages, and the buckets that they read.

A benchmark's pages require read access to the runs of its training DAG in Airflow. The module also finds the training
that a DAG run belongs to. Clients of buckets are cached, because making one takes longer than showing a page.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import Depends, HTTPException, Request
from pydantic import ValidationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, publish_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import run_storage
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run_record import RunRef

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.objects import ObjectStore


def benchmark_of(dag_id: str, *id_functions: Callable[[str], str]) -> str | None:
    """Return the benchmark whose DAG has this id; `id_functions` come from `dag_ids`."""
    return next((name for name in benchmarks.names() if dag_id in [id_of(name) for id_of in id_functions]), None)


def training_of(benchmark: str, dag_id: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    """Return the training of a DAG run, whose conf can override the storage.

    Raises:
        ConfigError: the conf has an invalid or forbidden storage.
        DataError: no training triggered the DAG run of an epoch.
    """
    if dag_id == train_dag_id(benchmark):
        storage = run_storage(benchmark_config(benchmark), conf)
        return RunRef(benchmark=benchmark, run=run_name(run_id), storage=storage)
    try:
        run = RunRef.model_validate(dict(conf))
    except ValidationError as error:
        raise DataError(f"{dag_id}, run {run_id}: no training triggered this DAG run") from error
    if run.benchmark != benchmark or run.run != run_name(run.run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no run of {benchmark}")
    # Anyone who can trigger the DAG can choose the storage, so check it.
    run_storage(benchmark_config(benchmark), {"overrides": {"storage": run.storage.model_dump()}})
    return run


def may_read(benchmark: str, request: Request, user: GetUserDep) -> None:
    """Require read access to the runs of the benchmark's DAG: 401 without a login, 403 without permission.

    An unknown benchmark gives 403 too, so the page doesn't reveal which benchmarks exist.
    """
    requires_access_dag("GET", DagAccessEntity.RUN, train_dag_id(benchmark))(request, user)
    if benchmark not in benchmarks.names():
        raise HTTPException(403, "Forbidden")


def may_read_dag_run(dag_id: str, request: Request, user: GetUserDep) -> None:
    """Require read access to the DAG's runs and, for epochs and publications, to those of the training DAG."""
    requires_access_dag("GET", DagAccessEntity.RUN, dag_id)(request, user)
    benchmark = benchmark_of(dag_id, train_dag_id, epoch_dag_id, publish_dag_id)
    if benchmark is not None:
        may_read(benchmark, request, user)


def readable_benchmarks(request: Request, user: GetUserDep) -> Sequence[str]:
    readable = []
    for name in sorted(benchmarks.names()):
        with suppress(HTTPException):
            may_read(name, request, user)
            readable.append(name)
    return readable


Readable = Annotated[Sequence[str], Depends(readable_benchmarks)]
"""The sorted benchmarks that the user can read; a page must not show others."""


CLIENT_OPTIONS: Mapping[str, Any] = {"connect_timeout": 3, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
"""Short timeouts: a page blocks one of the API server's few threads, which task heartbeats need too."""
MAX_CLIENTS = 32


def open_bucket(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """Open a bucket of a benchmark or run. Raises ConfigError if its connection isn't usable."""
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
