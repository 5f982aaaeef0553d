"""Trainings as Airflow itself knows them: their DAG runs, and the tasks that stop one from going on."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from skillopt_airflow.pipeline.dag_ids import train_dag_id
from skillopt_airflow.pipeline.epochs import CHILD

MOST_TASKS = 20
"""Tasks of one state that are named."""
MOST_TRAININGS = 20
"""Trainings under way that are listed; more are counted."""
UNDER_WAY = (DagRunState.QUEUED, DagRunState.RUNNING)


class TrainingDagRun(NamedTuple):
    """The DAG run of a training."""

    dag_id: str
    run_id: str
    state: str
    """As Airflow has it; empty if it has no such run any more."""
    failed: tuple[str, ...] = ()
    """Its tasks that failed, by their ids."""
    waiting: tuple[str, ...] = ()
    """Those that wait for a person's answer."""
    mapped: frozenset[str] = frozenset()
    """Those of both that have an instance a chunk: Airflow shows them at another address."""

    @property
    def goes_on(self) -> bool:
        """Return whether it is under way, or will be."""
        return self.state in UNDER_WAY

    @property
    def address(self) -> str:
        """Return its page's address below Airflow's base path."""
        return f"dags/{quote(self.dag_id)}/runs/{quote(self.run_id, safe='')}"

    def task_address(self, task_id: str) -> str:
        """Return the address of the page of one of its tasks, below Airflow's base path."""
        return f"{self.address}/tasks/{quote(task_id)}{'/mapped' if task_id in self.mapped else ''}"


class TrainingUnderWay(NamedTuple):
    """A training in a list of those that go on."""

    benchmark: str
    dag_id: str
    run_id: str
    state: str
    began: datetime | None
    """None while it is queued."""

    @property
    def report(self) -> str:
        """Return the address of its report, below this app's."""
        return f"dag_runs/{quote(self.dag_id)}/{quote(self.run_id, safe='')}/report"


class TrainingsUnderWay(NamedTuple):
    """The latest trainings that go on, and how many there are."""

    listed: Sequence[TrainingUnderWay]
    total: int


def training_dag_run(session: Session, benchmark: str, run_id: str) -> TrainingDagRun:
    """Return the DAG run of the training that a DAG run is, or is a part of."""
    dag_id = train_dag_id(benchmark)
    training = run_id.rpartition(CHILD)[0] if CHILD in run_id else run_id
    row = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == training)
    state = session.execute(row).scalar()
    if state is None:
        return TrainingDagRun(dag_id, training, "")
    tasks = (
        select(TaskInstance.task_id, TaskInstance.state, func.max(TaskInstance.map_index).label("last"))
        .where(
            TaskInstance.dag_id == dag_id,
            TaskInstance.run_id == training,
            TaskInstance.state.in_((TaskInstanceState.FAILED, TaskInstanceState.AWAITING_INPUT)),
        )
        .group_by(TaskInstance.task_id, TaskInstance.state)
        .order_by(TaskInstance.task_id)
        .limit(MOST_TASKS)
    )
    found = session.execute(tasks).all()
    failed, waiting = (
        tuple(row.task_id for row in found if row.state == state)
        for state in (TaskInstanceState.FAILED, TaskInstanceState.AWAITING_INPUT)
    )
    mapped = frozenset(row.task_id for row in found if row.last >= 0)
    return TrainingDagRun(dag_id, training, str(state), failed, waiting, mapped)


def trainings_under_way(session: Session, benchmarks: Collection[str]) -> TrainingsUnderWay:
    """Return the trainings of these benchmarks that go on, the latest first."""
    names = {train_dag_id(name): name for name in benchmarks}
    goes_on = DagRun.dag_id.in_(names), DagRun.state.in_(UNDER_WAY)
    latest = (
        select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date)
        .where(*goes_on)
        .order_by(DagRun.run_after.desc())
        .limit(MOST_TRAININGS)
    )
    listed = [
        TrainingUnderWay(names[row.dag_id], row.dag_id, row.run_id, str(row.state), row.start_date)
        for row in session.execute(latest)
    ]
    return TrainingsUnderWay(listed, session.execute(select(func.count()).where(*goes_on)).scalar_one())
