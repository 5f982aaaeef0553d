"""Nights that should be over: Airflow runs their DAG by its schedule, and the last one has not succeeded in time."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import func, select
from sqlalchemy.orm import Session


def late_dags(session: Session, patience: Mapping[str, timedelta], now: datetime) -> set[str]:
    """Return those of the DAGs whose newest scheduled night is late; a paused DAG has no nights to be late.

    Args:
        session: Airflow's database.
        patience: by DAG, the time after a night's end at which it is late.
        now: with a time zone.
    """
    due = select(DagModel.dag_id, DagModel.next_dagrun_create_after).where(
        DagModel.dag_id.in_(patience), DagModel.is_paused.is_(False), DagModel.is_stale.is_(False)
    )
    newest = (
        select(DagRun.dag_id, func.max(DagRun.logical_date).label("logical_date"))
        .where(DagRun.dag_id.in_(patience), DagRun.run_type.in_((DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB)))
        .group_by(DagRun.dag_id)
        .subquery()
    )
    # A night that a backfill has gone through again is a backfill's from then on, and late by nature.
    not_over = (DagRun.state != DagRunState.SUCCESS) & (DagRun.run_type == DagRunType.SCHEDULED)
    ended = select(DagRun.dag_id, DagRun.data_interval_end).join(
        newest, (newest.c.dag_id == DagRun.dag_id) & (newest.c.logical_date == DagRun.logical_date)
    )
    unfinished = {row.dag_id: row.data_interval_end for row in session.execute(ended.where(not_over))}
    return {
        dag_id
        for dag_id, due_at in session.execute(due)
        for moment in (due_at, unfinished.get(dag_id))
        if moment is not None and moment + patience[dag_id] < now
    }
