"""Airflow's pools, which the scheduler tells the tasks, since a task cannot ask Airflow for them.

Airflow calls the listener in the scheduler, which sees the database, before it schedules the first task of a DAG run.
The pools are kept in an Airflow Variable, which every task can read.
"""

import json
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

VARIABLE = "skillopt_pools"
"""Airflow Variable: a JSON object with the slots of each pool."""
DESCRIPTION = "Slots of Airflow's pools, kept by skillopt's plugin for tasks that name one"
TAG = "skillopt"
"""Of the DAGs whose runs need to know."""


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Keep the pools where tasks can read them; called in the scheduler, for every DAG."""
    dag = getattr(dag_run, "dag", None)
    if dag is None or TAG not in dag.tags:
        return
    from airflow.utils.session import create_session

    # A session of its own: what the scheduler does at this moment must neither be committed nor broken.
    with create_session(scoped=False) as session:
        keep_pools(session)


def keep_pools(session: "Session") -> None:
    """Store the present pools, if they are others than those that are stored."""
    from airflow.models import Variable
    from airflow.models.pool import Pool
    from sqlalchemy import select

    pools = {str(pool.pool): pool.slots for pool in session.scalars(select(Pool))}
    stored = session.scalar(select(Variable).where(Variable.key == VARIABLE))
    if stored is None or json.loads(stored.val) != pools:
        Variable.set(VARIABLE, json.dumps(pools), DESCRIPTION, session=session)
