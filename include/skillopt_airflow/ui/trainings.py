"""The training that a DAG run belongs to, and the place of its documents."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.pipeline.addresses import epoch_dag_id, train_dag_id
from skillopt_airflow.pipeline.params import run_storage
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run import RunRef


def trained_benchmark(dag_id: str) -> str | None:
    """Return the benchmark whose trainings, or parts of them, the DAG runs; None for another DAG."""
    for name in benchmarks.names():
        if dag_id in (train_dag_id(name), epoch_dag_id(name)):
            return name
    return None


def training_of(benchmark: str, dag_id: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    """Return the training behind a DAG run with this conf, which may override the storage.

    Raises:
        ConfigError: the run was triggered with a storage that cannot be, or that no run may name.
        DataError: an epoch's DAG run was not triggered by a training.
    """
    config = benchmark_config(benchmark)
    if dag_id == train_dag_id(benchmark):
        storage = run_storage(config, conf)
        return RunRef(benchmark=benchmark, run=run_name(run_id), storage=storage)
    try:
        training = RunRef.model_validate(dict(conf))
    except ValidationError as error:
        raise DataError(f"{dag_id}, run {run_id}: no training triggered it, so it belongs to none") from error
    if training.benchmark != benchmark or training.run != run_name(training.run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no training of {benchmark}")
    # Whoever triggered the epoch by hand may have named any.
    run_storage(config, {"overrides": {"storage": training.storage.model_dump()}})
    return training
