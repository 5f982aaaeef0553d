"""Access to the pages: one of a benchmark is for those who may read the runs of its training DAG in Airflow."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, HTTPException, Request

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, publish_dag_id, train_dag_id
from skillopt_airflow.ui.trainings import benchmark_of


def may_read(benchmark: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the runs of the benchmark's DAG; 401 without a login, 403 without the right.

    A benchmark that does not exist answers like one that the user may not read.
    """
    requires_access_dag("GET", DagAccessEntity.RUN, train_dag_id(benchmark))(request, user)
    if benchmark not in benchmarks.names():
        raise HTTPException(403, "Forbidden")


def may_read_dag_run(dag_id: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the DAG's runs and, behind a training's part or publication, those of its DAG."""
    requires_access_dag("GET", DagAccessEntity.RUN, dag_id)(request, user)
    benchmark = benchmark_of(dag_id, train_dag_id, epoch_dag_id, publish_dag_id)
    if benchmark is not None:
        may_read(benchmark, request, user)


def readable_benchmarks(request: Request, user: GetUserDep) -> Sequence[str]:
    """Return the benchmarks of whose training DAG the user may read the runs, in order; 401 without a login."""
    readable = []
    for name in sorted(benchmarks.names()):
        with suppress(HTTPException):
            may_read(name, request, user)
            readable.append(name)
    return readable


Readable = Annotated[Sequence[str], Depends(readable_benchmarks)]
"""The benchmarks that the user of a request may see; nothing of another one belongs on the page."""
