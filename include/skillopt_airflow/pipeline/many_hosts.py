"""The needs of a run whose tasks run on several hosts; where LocalExecutor runs them, there are none."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.deployment import plain_address
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.training.deployment_file import VARIABLE, deployment

ONE_HOST = ("LocalExecutor", "SequentialExecutor")
S3 = "s3://"
POD_VARIABLE = "AIRFLOW_IS_K8S_EXECUTOR_POD"
"""Set in a pod of KubernetesExecutor, whose template says LocalExecutor for what runs in it."""


def is_spread() -> bool:
    """Return whether tasks may run on several hosts: what starts them is another executor than LocalExecutor."""
    from airflow.sdk.configuration import conf

    # Those of teams follow behind semicolons.
    executors = re.split("[,;]", str(conf.get("core", "executor", fallback=ONE_HOST[0])))
    return POD_VARIABLE in os.environ or any(not executor.strip().endswith(ONE_HOST) for executor in executors)


def check_data(benchmark: str, config: TrainConfig) -> None:
    """Refuse data that only one host may have; what a benchmark's folder holds, all have.

    Raises:
        ConfigError: naming the key and what to do.
    """
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
                f"{key} = {address}: the tasks run on several hosts, which may not all have this folder: put the data "
                f"into S3 or the benchmark's folder, or list the folder under shared_folders in the file that "
                f"{VARIABLE} names"
            )


def check_image(config: TrainConfig, digest: str) -> None:
    """Refuse an image that no registry has, where each worker asks an engine of its own.

    Raises:
        ConfigError: naming the image and what to do.
    """
    if is_spread() and config.sandbox.docker_conn_id is None and "@sha256:" not in digest:
        raise ConfigError(
            f"the sandbox image {config.image} has no digest, so it was built on this worker's engine and may be "
            "another one on the next: push it to a registry, and name that in sandbox.registry, or the image in "
            "sandbox.image"
        )
