"""Alerts: a POST to the connection of `alerts.conn_id` when a run fails, and when a night is late."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.timezone import coerce_datetime, utcnow

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.addresses import run_address
from skillopt_airflow.pipeline.task_errors import failed_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

MOST_SECONDS = 20
"""An alert may take so long; Airflow ends the process that sends it soon after."""
NIGHTS = 60
"""Nights of a schedule that are looked at to find the longest one."""


LATE = timedelta(hours=6)
"""After a night's end."""


def on_failure(config: TrainConfig) -> "Callable[[Context], None] | None":
    """Return what Airflow calls when a run of a DAG has failed; None where nobody wants to know."""
    return None if config.alerts.conn_id is None else partial(tell_failure, config.alerts.conn_id)


def when_late(config: TrainConfig) -> DeadlineAlert | None:
    """Return the report of a night that is late by LATE; None where nobody wants to know."""
    if config.alerts.conn_id is None:
        return None
    # Airflow counts from the logical date, which is the beginning of the night.
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_LOGICAL_DATE,
        interval=longest_night(config.regate.schedule, config.regate.timezone) + LATE,
        callback=AsyncCallback(tell_late, kwargs={"conn_id": config.alerts.conn_id}),
    )


def tell_failure(conn_id: str, context: "Context") -> None:
    """Report which run failed, in which tasks and why; this runs where Airflow calls the callbacks of DAGs."""
    from airflow.providers.http.notifications.http import HttpNotifier

    dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
    failed = failed_tasks(dag_id, run_id).words
    why = failed if failed else f"no task failed: {context.get('reason')}"
    said = _message(dag_id, run_id, f"failed; {why}")
    HttpNotifier(http_conn_id=conn_id, json=said, extra_options={"timeout": MOST_SECONDS}).notify(context)


async def tell_late(conn_id: str, context: Mapping[str, Any]) -> None:
    """Report which night is late; this runs in the triggerer."""
    from airflow.providers.http.notifications.http import HttpNotifier

    run = context["dag_run"]
    # A past night that is backfilled or triggered by hand is late by nature.
    if run["run_type"] != "scheduled" or _began_late(run["queued_at"], context["deadline"]["deadline_time"]):
        return
    said = _message(
        run["dag_id"], run["dag_run_id"], f"is late: {run['state']}, but due by {context['deadline']['deadline_time']}"
    )
    await HttpNotifier(http_conn_id=conn_id, json=said).async_notify({})


def _began_late(queued: str | datetime | None, due: str | datetime) -> bool:
    """Return whether a night was begun when it was due already, such as when its DAG was paused until then."""
    return queued is not None and _moment(queued) > _moment(due)


def _moment(told: str | datetime) -> datetime:
    return told if isinstance(told, datetime) else datetime.fromisoformat(told)


def longest_night(schedule: str, timezone: str) -> timedelta:
    """Return the longest time between two dates of a schedule, such as a weekend if it has working days only.

    Where clocks are put back, one night of the year is an hour longer.
    """
    from airflow.timetables.interval import CronDataIntervalTimetable

    nights, longest = CronDataIntervalTimetable(schedule, timezone="UTC"), timedelta()
    end = coerce_datetime(utcnow())
    for _ in range(NIGHTS):
        night = nights.infer_manual_data_interval(run_after=end)
        # A sum of its own type: what Airflow has to store must be a plain timedelta.
        longest = max(longest, timedelta(seconds=(night.end - night.start).total_seconds()))
        end = night.start
    moves = len({datetime(2026, month, 1, tzinfo=ZoneInfo(timezone)).utcoffset() for month in range(1, 13)}) > 1
    return longest + timedelta(hours=moves)


def _message(dag_id: str, run_id: str, what: str) -> JsonObject:
    """Return the body of an alert; chat programs show its `text`."""
    link = run_address(dag_id, run_id)
    return {"text": f"{dag_id}, run {run_id}, {what}. {link}", "dag_id": dag_id, "run_id": run_id, "link": link}
