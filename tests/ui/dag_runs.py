"""Airflow's tables of DAG runs and task instances, in memory."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from airflow.api_fastapi.common.db.common import _get_session
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from sqlalchemy import create_engine, insert, update
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from skillopt_airflow.ui.pages import app

__all__ = ["DagRuns", "Trigger", "dag_runs"]
MOMENT = datetime(2026, 11, 21, tzinfo=UTC)


class DagRuns:
    """What the pages find there."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def add(self, dag_id: str, run_id: str, state: str = "running", conf: dict[str, Any] | None = None) -> None:
        row = {"dag_id": dag_id, "run_id": run_id, "conf": conf, "run_type": "manual", "state": state}
        more = {"run_after": MOMENT, "start_date": MOMENT, "log_template_id": 1, "span_status": "ended"}
        self.session.execute(insert(DagRun).values(**row, **more))

    def end(self, run_id: str, state: str) -> None:
        self.session.execute(update(DagRun).where(DagRun.run_id == run_id).values(state=state))

    def add_task(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        row = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "state": state, "map_index": map_index}
        more = {"pool": "p", "pool_slots": 1, "queue": "q", "priority_weight": 1, "operator": "o", "try_number": 1}
        rest = {"id": uuid4(), "max_tries": 0, "executor_config": b""}
        self.session.execute(insert(TaskInstance).values(**row, **more, **rest))


@contextmanager
def dag_runs() -> Iterator[DagRuns]:
    """Empty ones, which the pages look into."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    for table in ("dag_run", "task_instance"):
        DagRun.metadata.tables[table].create(engine)
    with closing(Session(engine)) as session:
        app.dependency_overrides[_get_session] = lambda: session
        yield DagRuns(session)
        del app.dependency_overrides[_get_session]
    engine.dispose()
