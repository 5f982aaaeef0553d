"""Alerts: a POST to the connection of `alerts.conn_id` when a run fails, and when a night is late."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.addresses import run_address
from skillopt_airflow.pipeline.task_errors import failed_tasks

if TYPE_CHECKING:
    from airflow.sdk import Context

MOST_SECONDS = 20
"""An alert may take so long; Airflow ends the process that sends it soon after."""


LATE = timedelta(hours=6)
"""After a night was queued."""


def on_failure(config: TrainConfig) -> "Callable[[Context], None] | None":
    """Return what Airflow calls when a run of a DAG has failed; None where nobody wants to know."""
    return None if config.alerts.conn_id is None else partial(tell_failure, config.alerts.conn_id)


def when_late(config: TrainConfig) -> DeadlineAlert | None:
    """Return the report of a night that is late by LATE; None where nobody wants to know."""
    if config.alerts.conn_id is None:
        return None
    # Airflow queues a night at its end.
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=LATE,
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
    if run["run_type"] != "scheduled":
        return
    said = _message(
        run["dag_id"], run["dag_run_id"], f"is late: {run['state']}, but due by {context['deadline']['deadline_time']}"
    )
    await HttpNotifier(http_conn_id=conn_id, json=said).async_notify({})


def _message(dag_id: str, run_id: str, what: str) -> JsonObject:
    """Return the body of an alert; chat programs show its `text`."""
    link = run_address(dag_id, run_id)
    return {"text": f"{dag_id}, run {run_id}, {what}. {link}", "dag_id": dag_id, "run_id": run_id, "link": link}
