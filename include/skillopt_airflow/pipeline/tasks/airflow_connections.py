"""Airflow's connections as a run's `Connections`, and checks for tasks on several hosts."""

import os
import re
import threading
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import redact
from airflow.sdk import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.io import attach

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.deployment import plain_address
from skillopt_airflow.core.config.resource_groups import (
    JUDGE_CONN_ID,
    ModelGroup,
    SandboxGroup,
    SearchGroup,
    StorageGroup,
)
from skillopt_airflow.core.config.sampling import MODEL_ATTEMPTS, OutputForm, sampling_settings
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, ObjectMissing
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.params import check_fixed
from skillopt_airflow.sandbox.kubernetes.pod import require_digest
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE, benchmark_config, check_allowed, deployment
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
    from botocore.config import Config
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.core.values.model_protocols import Optimizer, Target
    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.gateway.web_search import SearchUpstream
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.training.run.connections import Begin, OnCall


class AirflowConnections:
    """Buckets, models, prices and the image from Airflow's connections, looked up on demand."""

    def __init__(self) -> None:
        # Airflow's secrets masker fails if two threads look up new connections concurrently.
        self._lookup = threading.Lock()

    def s3_client(self, storage: StorageGroup, config: "Config | None" = None) -> "S3Client":
        """Return the connection's client; `config` adds to its settings."""
        with self._lookup:
            hook = _s3_hook(storage)
            # The hook's own client reads the source of the whole call stack to name an operator in the user
            # agent: 0.4 s of CPU per task; the client itself takes 0.1 s.
            client: S3Client = hook.get_session(region_name=hook.region_name).client(
                "s3",
                endpoint_url=hook.conn_config.get_service_endpoint_url("s3"),
                config=hook.config if config is None else hook.config.merge(config),
                verify=hook.verify,
            )
            return client

    def object_store(self, storage: StorageGroup, bucket: str) -> "ObjectStore":
        from skillopt_airflow.store.objects import ObjectStore

        return ObjectStore(self.s3_client(storage), bucket, f"connection {storage.conn_id} (storage.conn_id)")

    def optimizer(
        self,
        model: ModelGroup,
        on_call: "OnCall",
        begin: "Begin",
        output: OutputForm = "auto",
        attempts: int = MODEL_ATTEMPTS,
    ) -> "AbstractContextManager[Optimizer]":
        return self._structured("optimizer", model, on_call, begin, output, attempts)

    def judge(
        self,
        model: ModelGroup,
        on_call: "OnCall",
        begin: "Begin",
        output: OutputForm = "auto",
        attempts: int = MODEL_ATTEMPTS,
    ) -> "AbstractContextManager[Optimizer]":
        return self._structured("judge", model, on_call, begin, output, attempts)

    def _structured(
        self, role: Role, model: ModelGroup, on_call: "OnCall", begin: "Begin", output: OutputForm, attempts: int
    ) -> "AbstractContextManager[Optimizer]":
        """Open the optimizer, or the judge, which has the provider's sampling and no limit of thinking."""
        from skillopt_airflow.models.connection import optimizer_model, target_dialect
        from skillopt_airflow.models.optimizer import PydanticAIOptimizer

        with self._lookup:
            own = role == "optimizer"
            settings = sampling_settings(
                target_dialect(model.optimizer_conn_id, model.optimizer) if own else None,
                max_tokens=model.optimizer_max_tokens,
                temperature=model.optimizer_temperature if own else None,
                reasoning_effort=model.optimizer_reasoning_effort if own else None,
                timeout=model.call_timeout,
            )
            return PydanticAIOptimizer(
                optimizer_model(*_models(model)[role]),
                on_call,
                settings,
                begin=begin,
                max_attempts=attempts,
                role=role,
                redact=_redacted,
                output=output,
                thinking_tokens=model.optimizer_thoughts if own else 0,
            )

    def target(self, model: ModelGroup, on_call: "OnCall", begin: "Begin") -> "AbstractContextManager[Target]":
        from skillopt_airflow.models.connection import optimizer_model, target_dialect
        from skillopt_airflow.models.target import PydanticAITarget

        with self._lookup:
            settings = sampling_settings(
                target_dialect(model.target_conn_id, model.target),
                max_tokens=model.max_tokens,
                temperature=model.temperature,
                reasoning_effort=model.reasoning_effort,
                timeout=model.call_timeout,
            )
            return PydanticAITarget(
                optimizer_model(model.target_conn_id, model.target),
                on_call,
                settings,
                begin=begin,
                max_attempts=MODEL_ATTEMPTS,
                redact=_redacted,
            )

    def upstream(self, model: ModelGroup) -> "Upstream":
        from skillopt_airflow.models.connection import target_upstream

        with self._lookup:
            return target_upstream(model.target_conn_id, model.target, model.harness)

    def search(self, search: SearchGroup) -> "SearchUpstream":
        from skillopt_airflow.models.connection import CREATE, search_upstream

        with self._lookup:
            conn_id = str(search.conn_id)
            check_connection("search.conn_id", conn_id, CREATE)
            return search_upstream(BaseHook.get_connection(conn_id))

    def prices(self, config: TrainConfig) -> Prices:
        from skillopt_airflow.models.connection import host
        from skillopt_airflow.models.metering import price_of

        models, overrides = _models(config.model), config.budget.prices
        return {role: price_of(str(name), overrides, host(conn_id)) for role, (conn_id, name) in models.items()}

    def item_images(self, config: TrainConfig, names: Sequence[str]) -> None:
        from skillopt_airflow.sandbox.docker.item_images import ensure_named

        ensure_named(names, config.sandbox)

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        """Return the image's digest after checking these roles' models and the engine."""
        from skillopt_airflow.sandbox.docker.connection import image_digest

        self._check_models(config.model, asked)
        if config.search.conn_id is not None:
            self.search(config.search)
        check_engine(config.sandbox)
        if config.sandbox.engine == "kubernetes":
            return require_digest(config.image)
        digest = image_digest(config.image, config.sandbox)
        check_image(config, digest)
        return digest

    def _check_models(self, model: ModelGroup, asked: Collection[Role]) -> None:
        from skillopt_airflow.models import connection, server_check
        from skillopt_airflow.models.providers import check_sampling

        models = {role: of for role, of in _models(model).items() if role in asked}
        upstream = self.upstream(model) if "target" in models else None
        if upstream is not None:
            check_sampling(upstream, model)
        if "optimizer" in models:
            connection.check_optimizer(model)
        for role, (conn_id, name) in models.items():
            if role != "target":
                connection.optimizer_model(conn_id, name)
        for conn_id, name in dict(models.values()).items():
            server_check.check(conn_id, name)
        if upstream is not None:
            server_check.check_harness(upstream, model.harness)


def _redacted(text: str) -> str:
    """Return the text without secrets of the connections looked up so far."""
    return str(redact(text))


def _models(model: ModelGroup) -> dict[Role, tuple[str, str | None]]:
    """Return connection and name of each model, with the judge if the run has one."""
    models: dict[Role, tuple[str, str | None]] = {
        "target": (model.target_conn_id, model.target),
        "optimizer": (model.optimizer_conn_id, model.optimizer),
    }
    if model.judge is not None:
        models["judge"] = (judge_conn_id(model), model.judge)
    return models


def judge_conn_id(model: ModelGroup) -> str:
    """Return the judge model's connection."""
    from skillopt_airflow.models.connection import exists

    return JUDGE_CONN_ID if exists(JUDGE_CONN_ID) else model.optimizer_conn_id


def open_run(ref: "RunRef | JsonObject") -> TrainingRun:
    """Open a reference's run. Raises ConfigError if it asks too much; an epoch's DAG can be triggered by hand."""
    opened = RunRef.model_validate(ref)
    own = benchmark_config(opened.benchmark)
    layers = {"storage": opened.storage.model_dump()}, nest(opened.overrides)
    asked = read_config(own.model_dump(), *layers)
    check_fixed(asked, own)
    check_allowed(asked, own)
    run = TrainingRun(opened, AirflowConnections())
    if opened.storage != own.storage:
        # Anyone who can write to that bucket can forge the record, so check it too.
        with suppress(ObjectMissing):
            check_allowed(run.config, own)
    return run


def check_engine(sandbox: SandboxGroup) -> None:
    """Raise ConfigError if the configuration names a connection of the engine that doesn't exist."""
    if sandbox.conn_id is not None:
        host = " and the engine's address, such as tcp://10.0.0.5:2376, as host" if sandbox.engine == "docker" else ""
        check_connection("sandbox.conn_id", sandbox.conn_id, f"type '{sandbox.engine}'{host}")


def attach_storage(storage: StorageGroup) -> None:
    """Register the store for this process's ObjectStoragePath, as `s3://<conn_id>@<bucket>/...`.

    Airflow's default needs s3fs, which pins boto3.
    """
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import S3FileSystem

    hook = _s3_hook(storage)
    credentials, server = hook.get_credentials(), hook.get_conn().meta
    address = urlsplit(server.endpoint_url)
    addressing = getattr(hook.config, "s3", None)
    files = S3FileSystem(
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=credentials.token,
        region=server.region_name,
        endpoint_override=address.netloc,
        scheme=address.scheme,
        tls_ca_file_path=hook.verify if isinstance(hook.verify, str) else None,
        force_virtual_addressing=addressing is not None and addressing.get("addressing_style") == "virtual",
    )
    attach("s3", storage.conn_id, fs=ArrowFSWrapper(files))


def check_connection(key: str, conn_id: str, create: str) -> None:
    """Raise ConfigError if the connection of a configuration key doesn't exist."""
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"{key} = {conn_id}: Airflow has no such connection. Create it with {create}, or name another one"
        ) from None


def _s3_hook(storage: StorageGroup) -> "AwsGenericHook[Any]":
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    # Without this check, the hook would fall back to the worker's credentials.
    check_connection("storage.conn_id", storage.conn_id, "type 'aws', without credentials to use the workers'")
    return AwsGenericHook(aws_conn_id=storage.conn_id, client_type="s3")


ONE_HOST = ("LocalExecutor", "SequentialExecutor")
S3 = "s3://"
POD_VARIABLE = "AIRFLOW_IS_K8S_EXECUTOR_POD"
"""Set in KubernetesExecutor's pods, whose own executor is LocalExecutor."""


def is_spread() -> bool:
    """Return whether tasks may run on several hosts: the executor isn't LocalExecutor."""
    # Executors of teams follow after semicolons.
    executors = re.split("[,;]", str(conf.get("core", "executor", fallback=ONE_HOST[0])))
    return POD_VARIABLE in os.environ or any(not executor.strip().endswith(ONE_HOST) for executor in executors)


def check_data(benchmark: str, config: TrainConfig) -> None:
    """Raise ConfigError for data that may be on one host only; all hosts have the benchmark's folder."""
    if not is_spread():
        return
    shared, folder = deployment().shared_folders, benchmarks.folder(benchmark)
    for key, address in (
        ("data.uri", config.data.uri),
        ("data.corpus", config.data.corpus),
        ("data.split_manifest", config.data.split_manifest),
        ("regate.fresh_uri", config.regate.fresh_uri),
    ):
        if address is None or address.startswith(S3):
            continue
        path = os.path.normpath(folder / plain_address(address))
        if not Path(path).is_relative_to(folder) and not any(fnmatchcase(path, pattern) for pattern in shared):
            raise ConfigError(
                f"{key} = {address}: the tasks run on several hosts, which may not all have this folder. Put the data "
                f"into S3 or the benchmark's folder, or list the folder under shared_folders in the file that "
                f"{VARIABLE} names"
            )


def check_image(config: TrainConfig, digest: str) -> None:
    """Raise ConfigError for an image without a registry if workers use separate engines."""
    if is_spread() and config.sandbox.conn_id is None and "@sha256:" not in digest:
        raise ConfigError(
            f"the sandbox image {config.image} has no digest, so it was built on this worker's engine and may differ "
            "on other workers. Push it to a registry, and name that in sandbox.registry, or the image in "
            "sandbox.image"
        )
