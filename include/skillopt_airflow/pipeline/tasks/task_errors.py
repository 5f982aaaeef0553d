"""The errors of tasks: which of them Airflow should try again, and what alerts and a waiting training tell of them.

Airflow tells the callback of a DAG which tasks failed, and a task that waits for another DAG's run that it failed. It
tells neither of them why, so errors are kept as XComs.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import UNAVAILABLE, ModelUnreachable, SkillOptError
from skillopt_airflow.core.values.failure_reasons import RolloutTally, low_coverage
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.addresses import run_address

if TYPE_CHECKING:
    from airflow.sdk import Context

XCOM_KEY = "error"
MAX_CHARS = 800
MAX_TASKS = 20
"""Failed tasks that are named."""
MAX_ERRORS = 3
"""Different errors that are told."""


class Failure(NamedTuple):
    """A failed task, or all tasks that failed in a DAG run; no words if none did."""

    words: str
    lasting: bool
    """Whether another try would meet it again, as the task said, or one of them."""


def keep_error(context: "Context") -> None:
    """Store the error with which a task failed for good; Airflow calls this in the task's process."""
    from airflow.providers.common.compat.sdk import redact

    error = context.get("exception")
    # Where the process is gone, Airflow calls this elsewhere and knows no error.
    if isinstance(error, BaseException):
        kept = Failure(str(redact(_words(error)))[:MAX_CHARS], isinstance(error, AirflowFailException))
        context["ti"].xcom_push(XCOM_KEY, kept._asdict())


def failed_tasks(dag_id: str, run_id: str) -> Failure:
    """Return which tasks of a DAG run failed and why."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(dag_id, run_ids=[run_id]).get(run_id, {})
    failed = sorted(task for task, state in states.items() if state == "failed")
    if not failed:
        return Failure("", lasting=False)
    more = f" and {len(failed) - MAX_TASKS} more" if len(failed) > MAX_TASKS else ""
    errors = list(_errors(dag_id, run_id, failed[:MAX_TASKS]))
    told = [f"{task}: {error.words}" for task, error in errors]
    words = "; ".join([f"failed tasks: {', '.join(failed[:MAX_TASKS])}{more}", *told])
    return Failure(words, any(error.lasting for _, error in errors))


def _errors(dag_id: str, run_id: str, tasks: list[str]) -> Iterator[tuple[str, Failure]]:
    """Yield the first different errors, each with a task that had it."""
    met: set[Failure] = set()
    for task in tasks:
        error = _error(dag_id, run_id, task)
        if error and error not in met and len(met) < MAX_ERRORS:
            met.add(error)
            yield task, error


def _error(dag_id: str, run_id: str, task: str) -> Failure | None:
    """Return the error of a task, by the name that Airflow gives its state: of a mapped one with `_<index>`."""
    from airflow.sdk.execution_time.xcom import XCom

    found = XCom.get_one(key=XCOM_KEY, dag_id=dag_id, task_id=task, run_id=run_id)
    mapped, _, index = task.rpartition("_")
    if found is None and mapped and index.isdecimal():
        found = XCom.get_one(key=XCOM_KEY, dag_id=dag_id, task_id=mapped, run_id=run_id, map_index=int(index))
    return Failure(**found) if isinstance(found, dict) else None


def _words(error: BaseException) -> str:
    """Return an error as one line; those of the project and of Airflow speak for themselves."""
    said = " ".join(str(error).split())
    if isinstance(error, SkillOptError | AirflowException):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


log = logging.getLogger(__name__)


@contextmanager
def wrong_input_fails(*, awaits_models: bool = False) -> Iterator[None]:
    """Fail the task for good, with one sentence, on errors that a retry would meet again.

    A store, an engine or a model that cannot answer now is tried again, as the task's `retries` say.

    Args:
        awaits_models: whether so is one at whose address nothing answers: somebody who has just triggered a run wants
            to hear that the address is wrong.
    """
    try:
        yield
    except SkillOptError as error:
        if isinstance(error, UNAVAILABLE) and (awaits_models or not isinstance(error, ModelUnreachable)):
            raise
        raise AirflowFailException(str(error)) from None


def tell_rollouts(tally: RolloutTally, wanted: float, *, may_retry: bool) -> None:
    """Log what became of a task's rollouts, and ask for a retry if too few of them have a score.

    Raises:
        AirflowException: fewer than wanted have one, and Airflow may try again; the text names the reason.
    """
    log.info("%s", tally)
    if tally.cuts:
        log.warning("%s", tally.cuts)
    if tally.coverage < wanted:
        words = low_coverage(tally.coverage, wanted, tally.reason)
        if may_retry:
            raise AirflowException(words)
        # Without a reason the rest did not run because it could not change the verdict.
        if tally.reason is not None:
            log.warning("%s", words)


MAX_SECONDS = 20
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
    HttpNotifier(http_conn_id=conn_id, json=said, extra_options={"timeout": MAX_SECONDS}).notify(context)


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
    link = run_address(dag_id, run_id)
    return {"text": f"{dag_id}, run {run_id}, {what}. {link}", "dag_id": dag_id, "run_id": run_id, "link": link}
