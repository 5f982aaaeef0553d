"""The training that a DAG run belongs to, and the place of its documents."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.pipeline.dag_ids import train_dag_id
from skillopt_airflow.pipeline.params import run_storage
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run_record import RunRef


def benchmark_of(dag_id: str, *ids: Callable[[str], str]) -> str | None:
    """Return the benchmark of which the DAG has one of the ids; None for another DAG.

    Args:
        dag_id: the DAG's.
        ids: name a benchmark's DAGs of some kinds, as functions of `dag_ids` do.
    """
    return next((name for name in benchmarks.names() if dag_id in [id_of(name) for id_of in ids]), None)


def training_of(benchmark: str, dag_id: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    """Return the training behind a DAG run with this conf, which may override the storage.

    Raises:
        ConfigError: the run was triggered with a storage that cannot be, or that no run may name.
        DataError: an epoch's DAG run was not triggered by a training.
    """
    if dag_id == train_dag_id(benchmark):
        storage = run_storage(benchmark_config(benchmark), conf)
        return RunRef(benchmark=benchmark, run=run_name(run_id), storage=storage)
    try:
        run = RunRef.model_validate(dict(conf))
    except ValidationError as error:
        raise DataError(f"{dag_id}, run {run_id}: no training triggered it, so nothing names its run") from error
    if run.benchmark != benchmark or run.run != run_name(run.run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no run of {benchmark}")
    # Whoever may trigger it may have named any storage.
    run_storage(benchmark_config(benchmark), {"overrides": {"storage": run.storage.model_dump()}})
    return run
