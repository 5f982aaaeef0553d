"""The errors of tasks: retries, and alerts that name failed tasks and reasons.

Airflow reports failed tasks to a DAG's callback, and a failed run to a task that waits for it, but no reasons. So
errors are stored as XComs.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from airflow.providers.common.compat.sdk import redact
from airflow.sdk import Context
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import UNAVAILABLE, ModelUnreachable, SkillOptError
from skillopt_airflow.core.values.failure_reasons import RolloutTally, low_coverage
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.addresses import run_url

log = logging.getLogger(__name__)

XCOM_KEY = "error"
MAX_CHARS = 800
MAX_TASKS = 20
"""Maximum failed tasks in a message."""
MAX_ERRORS = 3
"""Maximum different errors in a message."""


class Failure(NamedTuple):
    """The failure of a task or DAG run; empty words if nothing failed."""

    words: str
    lasting: bool
    """True if a task's retry can't fix it."""


def store_error(context: Context) -> None:
    """Store a task's final error; Airflow calls this in the task's process."""
    error = context.get("exception")
    # If the process died, Airflow calls this elsewhere, without an error.
    if isinstance(error, BaseException):
        kept = Failure(str(redact(_words(error)))[:MAX_CHARS], isinstance(error, AirflowFailException))
        context["ti"].xcom_push(XCOM_KEY, kept._asdict())


def failed_tasks(dag_id: str, run_id: str) -> Failure:
    """Return the failed tasks of a DAG run and their errors."""
    states = RuntimeTaskInstance.get_task_states(dag_id, run_ids=[run_id]).get(run_id, {})
    failed = sorted(task for task, state in states.items() if state == "failed")
    if not failed:
        return Failure("", lasting=False)
    more = f" and {len(failed) - MAX_TASKS} more" if len(failed) > MAX_TASKS else ""
    errors = list(_errors(dag_id, run_id, failed[:MAX_TASKS]))
    details = [f"{task}: {error.words}" for task, error in errors]
    words = "; ".join([f"failed tasks: {', '.join(failed[:MAX_TASKS])}{more}", *details])
    return Failure(words, any(error.lasting for _, error in errors))


def _errors(dag_id: str, run_id: str, tasks: list[str]) -> Iterator[tuple[str, Failure]]:
    """Yield the first different errors, each with one of its tasks."""
    met: set[Failure] = set()
    for task in tasks:
        error = _error(dag_id, run_id, task)
        if error and error not in met and len(met) < MAX_ERRORS:
            met.add(error)
            yield task, error


def _error(dag_id: str, run_id: str, task: str) -> Failure | None:
    """Return the error of a task by Airflow's name of it: `<task>_<index>` for a mapped one."""
    found = XCom.get_one(key=XCOM_KEY, dag_id=dag_id, task_id=task, run_id=run_id)
    mapped, _, index = task.rpartition("_")
    if found is None and mapped and index.isdecimal():
        found = XCom.get_one(key=XCOM_KEY, dag_id=dag_id, task_id=mapped, run_id=run_id, map_index=int(index))
    return Failure(**found) if isinstance(found, dict) else None


def _words(error: BaseException) -> str:
    """Return an error as one line, with its type unless it's from this project or Airflow."""
    text = " ".join(str(error).split())
    if isinstance(error, SkillOptError | AirflowException):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def fail_on_wrong_input(*, awaits_models: bool = False) -> Iterator[None]:
    """Fail the task without retries on errors that a retry can't fix; a store, engine or model may fail temporarily.

    If nothing answers at a model's URL, the URL is probably wrong, unless the task `awaits_models`.
    """
    try:
        yield
    except SkillOptError as error:
        if isinstance(error, UNAVAILABLE) and (awaits_models or not isinstance(error, ModelUnreachable)):
            raise
        raise AirflowFailException(str(error)) from None


def check_coverage(tally: RolloutTally, wanted: float, *, may_retry: bool) -> None:
    """Log the outcome of rollouts. Raises AirflowException if the coverage is too low and Airflow may retry."""
    log.info("%s", tally)
    if tally.cuts:
        log.warning("%s", tally.cuts)
    if tally.coverage < wanted:
        words = low_coverage(tally.coverage, wanted, tally.reason)
        if may_retry:
            raise AirflowException(words)
        # Without a reason, the rest was skipped because it could not change the verdict.
        if tally.reason is not None:
            log.warning("%s", words)


MAX_SECONDS = 20
"""Time limit of an alert; Airflow ends its process soon after."""
LATE = timedelta(hours=6)
"""Delay after a night is queued."""


def failure_callback(config: TrainConfig) -> Callable[[Context], None] | None:
    """Return the callback for failed DAG runs; None without alerts."""
    return None if config.alerts.conn_id is None else partial(send_failure_alert, config.alerts.conn_id)


def late_alert(config: TrainConfig) -> DeadlineAlert | None:
    """Return the alert for a night that is late by LATE; None without alerts."""
    if config.alerts.conn_id is None:
        return None
    # Airflow queues a night at its end.
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=LATE,
        callback=AsyncCallback(send_late_alert, kwargs={"conn_id": config.alerts.conn_id}),
    )


def send_failure_alert(conn_id: str, context: Context) -> None:
    """Send an alert about a failed run, its failed tasks and errors; runs in Airflow's callback process."""
    from airflow.providers.http.notifications.http import HttpNotifier

    dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
    why = failed_tasks(dag_id, run_id).words or f"no task failed: {context.get('reason')}"
    message = _message(dag_id, run_id, f"failed; {why}")
    HttpNotifier(http_conn_id=conn_id, json=message, extra_options={"timeout": MAX_SECONDS}).notify(context)


async def send_late_alert(conn_id: str, context: Mapping[str, Any]) -> None:
    """Send an alert about a late night; runs in the triggerer."""
    from airflow.providers.http.notifications.http import HttpNotifier

    run = context["dag_run"]
    # A backfilled or manual night is always late.
    if run["run_type"] != "scheduled":
        return
    message = _message(
        run["dag_id"], run["dag_run_id"], f"is late: {run['state']}, but due by {context['deadline']['deadline_time']}"
    )
    await HttpNotifier(http_conn_id=conn_id, json=message).async_notify({})


def _message(dag_id: str, run_id: str, what: str) -> JsonObject:
    link = run_url(dag_id, run_id)
    return {"text": f"{dag_id}, run {run_id}, {what}. {link}", "dag_id": dag_id, "run_id": run_id, "link": link}
