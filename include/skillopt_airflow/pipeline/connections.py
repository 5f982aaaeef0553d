"""What a run needs from Airflow's connections: the object store and the models."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from skillopt_airflow.core.config import ModelGroup, StorageGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.sampling import sampling_settings
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.training.run import RunRef, TrainingRun

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.core.protocols import Optimizer, Target
    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.training.models import OnCall


class ConnectedModels:
    """The models behind a run's connections; looked up when they are asked for."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    @property
    def _model(self) -> ModelGroup:
        return self._run.config.model

    def optimizer(self, on_call: "OnCall") -> "AbstractContextManager[Optimizer]":
        """The optimizer behind pydantic-ai."""
        from skillopt_airflow.models.connection import optimizer_model
        from skillopt_airflow.models.optimizer import PydanticAIOptimizer

        model = self._model
        connected = optimizer_model(model.optimizer_conn_id, model.optimizer)
        return PydanticAIOptimizer(
            connected,
            on_call,
            reasoning_effort=model.optimizer_reasoning_effort,
            max_attempts=model.max_attempts,
            call_timeout=model.call_timeout,
        )

    def target(self, on_call: "OnCall") -> "AbstractContextManager[Target]":
        """The target behind pydantic-ai, with the settings of its rollouts."""
        from skillopt_airflow.models.connection import optimizer_model, target_dialect
        from skillopt_airflow.models.target import PydanticAITarget

        model = self._model
        settings = sampling_settings(
            target_dialect(model.target_conn_id, model.target),
            max_tokens=model.max_tokens,
            temperature=model.temperature,
            seed=model.seed,
            reasoning_effort=model.reasoning_effort,
            thinking=model.thinking,
        )
        return PydanticAITarget(optimizer_model(model.target_conn_id, model.target), on_call, settings)

    def upstream(self) -> "Upstream":
        """Where the gateway sends a target's calls."""
        from skillopt_airflow.models.connection import target_upstream

        model = self._model
        return target_upstream(model.target_conn_id, model.target, model.harness)


def connected(ref: RunRef) -> TrainingRun:
    """The run with the store and the models of its Airflow connections."""
    run = TrainingRun(ref, object_store(ref.storage, ref.storage.bucket))
    run.models = ConnectedModels(run)
    return run


def open_run(ref: JsonObject) -> TrainingRun:
    """The run behind a task's reference."""
    return connected(RunRef.model_validate(ref))


def object_store(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """A bucket behind the run's Airflow connection."""
    from skillopt_airflow.store.objects import ObjectStore

    return ObjectStore(s3_client(storage), bucket)


def published_skills(storage: StorageGroup, benchmark: str, target: str) -> "ArtifactStore":
    """The skills published for a benchmark and target model."""
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.keys import ArtifactKeys

    keys = ArtifactKeys(storage.prefix, benchmark, target)
    return ArtifactStore(object_store(storage, storage.artifact_bucket), keys)


def signing_store(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """The same, with signed addresses of the one kind that every region and server takes."""
    from botocore.config import Config

    from skillopt_airflow.store.objects import ObjectStore

    hook = _s3_hook(storage)
    client: S3Client = hook.get_client_type(config=hook.config.merge(Config(signature_version="s3v4")))
    return ObjectStore(client, bucket)


def attach_storage(storage: StorageGroup) -> None:
    """Let this process's ObjectStoragePath reach the store by `s3://<conn_id>@<bucket>/...`.

    Airflow's own way would need s3fs, which holds boto3 to a version of its own.
    """
    from airflow.sdk.io import attach
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import S3FileSystem

    hook = _s3_hook(storage)
    credentials, server = hook.get_credentials(), hook.get_conn().meta
    address = urlsplit(server.endpoint_url)
    files = S3FileSystem(
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=credentials.token,
        region=server.region_name,
        endpoint_override=address.netloc,
        scheme=address.scheme,
    )
    attach("s3", storage.conn_id, fs=ArrowFSWrapper(files))


def s3_client(storage: StorageGroup) -> "S3Client":
    """The client of the run's Airflow connection."""
    client: S3Client = _s3_hook(storage).get_conn()
    return client


def check_connection(key: str, conn_id: str, create: str) -> None:
    """See that Airflow has the connection that a key of the configuration names.

    Args:
        key: the key, by its path.
        conn_id: its value.
        create: how such a connection is made.

    Raises:
        ConfigError: it has not.
    """
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"{key} = {conn_id}: Airflow has no such connection; create it with {create}, or name another one"
        ) from None


def _s3_hook(storage: StorageGroup) -> "AwsGenericHook[Any]":
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    # The hook itself would go on with whatever credentials the worker has.
    check_connection(
        "storage.conn_id", storage.conn_id, "type 'aws', without credentials if those of the workers are meant"
    )
    return AwsGenericHook(aws_conn_id=storage.conn_id, client_type="s3")
