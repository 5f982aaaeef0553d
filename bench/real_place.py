"""The setup of a training with a real model: examples/ledger as a benchmark, an S3 server, and connections."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.s3_server import server_in
from local import objectstore
from local.environment import (
    OPTIMIZER_CONNECTION,
    S3_CONNECTION,
    TARGET_CONNECTION,
    model_connection,
    own_variables,
    s3_connection,
)
from local.home import PROJECT, Home
from skillopt_airflow.benchmarks import LIST_VARIABLE, SEED_FILE
from skillopt_airflow.core.config.resource_groups import StorageGroup

EXAMPLE = PROJECT / "examples" / "ledger"


@contextmanager
def place(folder: Path, address: str, model: str) -> Iterator[Mapping[str, str]]:
    """Run an S3 server in a folder, and yield the environment variables for a training.

    Args:
        folder: emptied first; contains the results of the training.
        address: base URL of the model server for target and optimizer.
        model: the model, such as openai-chat:NAME.
    """
    shutil.rmtree(folder, ignore_errors=True)
    benchmark = folder / EXAMPLE.name
    shutil.copytree(EXAMPLE / "benchmark", benchmark)
    shutil.copy(EXAMPLE / "skill" / SEED_FILE, benchmark)
    connection = model_connection(address, model)
    with server_in(folder) as s3:
        for bucket in (StorageGroup().bucket, StorageGroup().artifact_bucket):
            objectstore.client(s3).create_bucket(Bucket=bucket)
        yield own_variables(Home.at(folder), os.environ) | {
            # The hook logs each client.
            "AIRFLOW__LOGGING__NAMESPACE_LEVELS": "airflow.providers.amazon=WARNING",
            LIST_VARIABLE: str(benchmark),
            S3_CONNECTION: s3_connection(s3),
            TARGET_CONNECTION: connection,
            OPTIMIZER_CONNECTION: connection,
        }
