"""For a process with an Airflow of its own: a failed night and two late ones go through Airflow's own parts.

Arguments: a folder with the DAG file `regate.py`. What is left out is that tasks run.
"""

import asyncio
import json
import selectors
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
import uuid6
from airflow._shared.module_loading import import_string
from airflow.dag_processing.processor import DagFileProcessorProcess, in_process_api_server
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.trigger import Trigger
from airflow.models.xcom import XComModel
from airflow.sdk.api.client import Client
from airflow.sdk.log import logging_processors
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

from tests.pipeline.stored_dag import BUNDLE, store_dag

DAG_ID, FILE = "regate_searchqa", "regate.py"
DAY = timedelta(days=1)


def create_run(run_type: DagRunType, night: datetime, session: Any) -> DagRun:
    """What the scheduler does when a night is over, or what a backfill does."""
    dag = DBDagBag().get_latest_version_of_dag(DAG_ID, session=session)
    assert dag is not None
    return dag.create_dagrun(
        run_id=run_type.generate_run_id(suffix=night.isoformat()),
        logical_date=night,
        data_interval=(night, night + DAY),
        run_after=night + DAY,
        run_type=run_type,
        triggered_by=DagRunTriggeredByType.TEST,
        state=DagRunState.QUEUED,
        session=session,
    )


def fail(night: datetime, folder: Path) -> None:
    """A task has failed, and with it the run; the DAG processor calls its callbacks."""
    with create_session() as session:
        run = create_run(DagRunType.SCHEDULED, night, session)
        for task in run.task_instances:
            at_fault = task.task_id == "prepare_night"
            task.state = TaskInstanceState.FAILED if at_fault else TaskInstanceState.UPSTREAM_FAILED
        session.flush()
        # What the task's own process left, see store_error.
        error = {"words": "24 of 24 items: model_error: who are you (for example item 3)", "lasting": False}
        where = {"dag_id": DAG_ID, "task_id": "prepare_night", "run_id": run.run_id}
        XComModel.set("error", error, serialize=False, session=session, **where)
        run.dag = DBDagBag().get_latest_version_of_dag(DAG_ID, session=session)
        run.set_state(DagRunState.RUNNING)
        _, callback = run.update_state(session=session, execute_callbacks=False)
        assert run.state == DagRunState.FAILED
        assert callback is not None
    api = in_process_api_server()
    client = Client(base_url=None, token="", dry_run=True, transport=api.transport)
    client.base_url = "http://in-process.invalid./"  # type: ignore[assignment]
    with (folder / "processor.log").open("wb") as log:
        process = DagFileProcessorProcess.start(
            id=uuid6.uuid7(),
            path=folder / FILE,
            bundle_path=folder,
            bundle_name=BUNDLE,
            dag_file_rel_path=FILE,
            callbacks=[callback],
            selector=selectors.DefaultSelector(),
            logger=structlog.wrap_logger(structlog.BytesLogger(log), processors=logging_processors(json_output=True)),
            logger_filehandle=log,
            client=client,
        )
        while not process.is_ready:
            process._service_subprocess(0.1)


def be_late(run_type: DagRunType, night: datetime) -> None:
    """A night that was queued at its end."""
    with create_session() as session:
        run = create_run(run_type, night, session)
        session.flush()
        [deadline] = session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id))
        deadline.deadline_time -= datetime.now(UTC) - (night + DAY)


def look_at_deadlines() -> list[str]:
    """What the scheduler does in its loop; returns the runs that are late."""
    with create_session() as session:
        due = select(Deadline).where(Deadline.deadline_time < datetime.now(UTC), ~Deadline.missed)
        missed = list(session.scalars(due))
        for deadline in missed:
            deadline.handle_miss(session)
        return sorted(deadline.dagrun.run_id for deadline in missed)


async def trigger() -> None:
    """What the triggerer does with its triggers."""
    with create_session() as session:
        waiting = [import_string(one.classpath)(**one.kwargs) for one in session.scalars(select(Trigger))]
    for one in waiting:
        said = [event.payload async for event in one.run()]
        assert said[-1]["state"] == "success", said


if __name__ == "__main__":
    dags = Path(sys.argv[1])
    store_dag(dags)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    fail(today, dags)
    # The present night is not late, one of the week before is; a backfill of an old one never is.
    be_late(DagRunType.SCHEDULED, today - 7 * DAY)
    be_late(DagRunType.BACKFILL_JOB, today - 30 * DAY)
    print(json.dumps(look_at_deadlines()))
    asyncio.run(trigger())
