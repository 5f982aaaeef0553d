"""For a process with an Airflow of its own: a training goes on whose epoch had begun before all workers got other code.

Argument: a folder with a DAG file of `train_searchqa` and `train_searchqa_epoch`. The training's task of the epoch and
the first task of the epoch's DAG run are run as a worker runs them; printed is how they ended, the DAG runs of epochs,
and what the first task returned.
"""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk import DAG
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline import airflow_connections
from skillopt_airflow.pipeline.many_hosts import code_version
from skillopt_airflow.training.seed_and_final import start
from tests.pipeline.stored_dag import store_dags
from tests.training.in_process import Training

TRAINING = "manual__2026-11-21T04:00:00+00:00"
EPOCH = f"{TRAINING}__epoch_01"
FORMER = {"code": "0123456789ab", "storage": {"prefix": "former/"}, "offset": 1, "part": 1}
"""Of what the epoch's DAG run was triggered with: the former code, storage, and part."""


def create_run(dag: DAG, run_id: str, conf: JsonObject, state: DagRunState) -> None:
    """A DAG run of which every task has failed."""
    with create_session() as session:
        stored = DBDagBag().get_latest_version_of_dag(dag.dag_id, session=session)
        assert stored is not None
        run = stored.create_dagrun(
            run_id=run_id,
            conf=conf,
            run_after=datetime.now(UTC),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=state,
            session=session,
        )
        for one in run.task_instances:
            one.state = TaskInstanceState.FAILED


def ended(dag: DAG, run_id: str, task_id: str) -> str:
    """The state in which a task's process leaves it."""
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == run_id)).one()
        one = run.get_task_instance(task_id, session=session)
    assert one is not None
    ran = _run_task(ti=one, task=dag.task_dict[task_id])
    assert ran is not None
    assert ran.ti.state is not None
    return str(ran.ti.state.value)


def started() -> Training:
    """A training whose first step is next."""
    training = Training.of(train__num_epochs=1)
    training.run_containers(training.prepare())
    start(training.run)
    return training


if __name__ == "__main__":
    train, epoch = store_dags(Path(sys.argv[1]))
    # Only the comparison of codes asks for it here.
    os.environ["AIRFLOW__CORE__EXECUTOR"] = "CeleryExecutor"
    training = started()
    airflow_connections.AirflowConnections = lambda: training.models
    ref = training.run.ref.model_dump(mode="json") | {"code": code_version("searchqa")}
    create_run(train, TRAINING, {}, DagRunState.RUNNING)
    create_run(epoch, EPOCH, ref | {"epoch": 1} | FORMER, DagRunState.FAILED)
    with create_session() as session:
        # The task was cleared, and has run with the present code.
        where = {"dag_id": train.dag_id, "task_id": "prepare", "run_id": TRAINING}
        XComModel.set("run", ref, serialize=False, session=session, **where)
    states = [ended(train, TRAINING, "epoch_01"), ended(epoch, EPOCH, "plan")]
    with create_session() as session:
        runs = list(session.scalars(select(DagRun.run_id).where(DagRun.dag_id == epoch.dag_id)))
        returned = select(XComModel.value).where(XComModel.task_id == "plan", XComModel.key == "return_value")
        print(json.dumps({"states": states, "runs": runs, "chunks": session.scalars(returned).all()}))
