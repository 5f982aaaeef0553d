"""The questions that wait for somebody's approval in Airflow: publications and rollbacks."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.orm import Session

from skillopt_airflow.store.keys import run_name

MOST = 200
"""Questions that are read; a page shows far fewer."""


class WaitingApproval(NamedTuple):
    """A task that goes on when somebody has answered."""

    dag_id: str
    run_id: str
    task_id: str
    subject: str
    since: datetime
    target: str
    """The model that the DAG run's form names; empty if it names none."""
    run: str
    """The training whose skill waits, as its documents have it; of a rollback, nothing that exists."""

    @property
    def address(self) -> str:
        """Return the page on which it is answered, below Airflow's base path."""
        return f"dags/{quote(self.dag_id)}/runs/{quote(self.run_id, safe='')}/tasks/{self.task_id}/required_actions"


def waiting_approvals(session: Session, dag_ids: Collection[str]) -> Sequence[WaitingApproval]:
    """Return what waits in the runs of these DAGs, the longest waiting first; who may answer is up to Airflow."""
    wanted = (
        select(
            TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, HITLDetail.subject, HITLDetail.created_at,
            DagRun.conf,
        )
        .select_from(HITLDetail)
        .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        .where(
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.state == TaskInstanceState.AWAITING_INPUT,
            HITLDetail.responded_at.is_(None),
        )
        .order_by(HITLDetail.created_at)
        .limit(MOST)
    )  # fmt: skip
    return [_waiting(row) for row in session.execute(wanted)]


def _waiting(row: Any) -> WaitingApproval:
    form = row.conf if isinstance(row.conf, dict) else {}
    run = str(form["run"]) if "run" in form else run_name(row.run_id)
    return WaitingApproval(row.dag_id, row.run_id, row.task_id, row.subject, row.created_at, _target(form), run)


def _target(form: Mapping[str, Any]) -> str:
    """Return the target of a run by its form, as trainings, publications and rollbacks have it."""
    overrides = form.get("overrides")
    more = overrides if isinstance(overrides, dict) else {}
    named = (form.get("target"), form.get("model.target"), more.get("model.target"))
    return next((name for name in named if isinstance(name, str)), "")
