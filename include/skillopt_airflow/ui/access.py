"""Access to the pages: one of a benchmark is for those who may read the runs of its training DAG in Airflow."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.batch_apis import IsAuthorizedDagRequest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
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


def readable_benchmarks(user: GetUserDep) -> Sequence[str]:
    """Return the benchmarks of whose training DAG the user may read the runs, in order; 401 without a login."""
    dags = {train_dag_id(name): name for name in benchmarks.names()}
    return sorted(dags[dag_id] for dag_id in readable_dags(dags, user))


Readable = Annotated[Sequence[str], Depends(readable_benchmarks)]
"""The benchmarks that the user of a request may see; nothing of another one belongs on the page."""


def readable_dags(dag_ids: Iterable[str], user: GetUserDep) -> set[str]:
    """Return those of the DAGs whose runs the user may read.

    Auth managers answer for many DAGs in one call where all are allowed, and some say in one call which ones may be.
    """
    manager, teams = get_auth_manager(), DagModel.get_dag_id_to_team_name_mapping(sorted(dag_ids))
    asked, by_team = {}, defaultdict(set)
    for dag_id in dag_ids:
        team = teams.get(dag_id)
        details = DagDetails(id=dag_id, team_name=team)
        asked[dag_id] = IsAuthorizedDagRequest(method="GET", access_entity=DagAccessEntity.RUN, details=details)
        by_team[team].add(dag_id)
    if manager.batch_is_authorized_dag(list(asked.values()), user=user):
        return set(asked)
    some = (
        manager.filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", team_name=team)
        for team, ids in by_team.items()
    )
    return {one for ids in some for one in ids if manager.batch_is_authorized_dag([asked[one]], user=user)}
