"""An epoch as DAG runs of its own.

Airflow's cost of a task grows with the task instances of its DAG run. So a run's DAG holds only the epochs, each epoch
is a DAG run, and an epoch of many steps is several: a step costs the same in the first epoch and in the tenth, in a run
of 10 steps and in one of 200.
"""

import math
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException

from skillopt_airflow.core.config import TrainGroup
from skillopt_airflow.pipeline.addresses import epoch_dag_id, epoch_end_dag_id, train_dag_id
from skillopt_airflow.pipeline.task_errors import failed_tasks

MOST_STEPS = 10
"""Steps in one DAG run: 20 cost 4.8 s of Airflow's own time a step where 10 cost 4.2 (2 cores, Airflow 3.3.2)."""

PART = "__epoch_"
"""Between the id of the training's DAG run and the rest of its task's, in the id of a DAG run of its own."""


def steps_in_part(train: TrainGroup) -> int:
    """Return the steps in each DAG run of an epoch; the last one may leave some of them out."""
    return math.ceil(train.steps_per_epoch / _parts(train))


def epoch_runs(benchmark: str, train: TrainGroup, run: Any) -> "list[_ChildRun]":
    """Return the tasks that run the epochs, in order: one an epoch, or one a part of it, and one for its end."""
    parts = _parts(train)
    tasks: list[_ChildRun] = []
    for epoch in range(1, train.num_epochs + 1):
        name = f"epoch_{epoch:02d}"
        tasks += [
            EpochRun(
                task_id=name if parts == 1 else f"{name}_part_{part + 1}",
                trigger_dag_id=epoch_dag_id(benchmark),
                epoch=epoch,
                offset=part * steps_in_part(train),
                run=run,
            )
            for part in range(parts)
        ]
        tasks.append(
            EpochEndRun(task_id=f"{name}_end", trigger_dag_id=epoch_end_dag_id(benchmark), epoch=epoch, run=run)
        )
    return tasks


def check_training(benchmark: str) -> None:
    """Check that the training to which the task's DAG run belongs was not stopped, that is, has not failed.

    What cannot be told, of a run that is gone or was triggered by hand, is no reason to stop.

    Raises:
        AirflowFailException: it was.
    """
    context = get_current_context()
    training, _, part = str(context["run_id"]).rpartition(PART)
    if not training:
        return
    dag_id = train_dag_id(benchmark)
    try:
        state = context["ti"].get_dagrun_state(dag_id, training)
    except AirflowRuntimeError:
        return
    if state == "failed":
        raise AirflowFailException(
            f"run {training} of {dag_id} has failed, so this part of it stops here; clear that run's task "
            f"epoch_{part}, and it goes on"
        )


class _ChildRun(TriggerDagRunOperator):
    """Runs a part of the training as a DAG run of its own and waits for it, deferred.

    :param epoch: the epoch, 1-based.
    :param run: reference of the run, as `prepare` pushed it. (templated)
    """

    template_fields = (*TriggerDagRunOperator.template_fields, "run")

    def __init__(self, *, task_id: str, epoch: int, run: Any, **kwargs: Any) -> None:
        super().__init__(
            task_id=task_id,
            trigger_run_id=f"{{{{ run_id }}}}{PART}{task_id.removeprefix('epoch_')}",
            logical_date=None,
            wait_for_completion=True,
            # What the part is triggered with is read strictly.
            openlineage_inject_parent_info=False,
            deferrable=True,
            poke_interval=1,
            # A second attempt goes through the epoch again; what its tasks have stored, they don't do twice.
            reset_dag_run=True,
            # A run of a paused DAG would never begin, and this task wait for ever.
            fail_when_dag_is_paused=True,
            execution_timeout=None,
            trigger_rule="none_failed",
            **kwargs,
        )
        self.epoch = epoch
        self.run = run

    def execute_complete(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        """End with the DAG run that was waited for.

        Raises:
            AirflowException: it failed; the text has its failed tasks and their errors.
            AirflowFailException: so it did, and would again.
        """
        try:
            super().execute_complete(context, event)
        except AirflowException as error:
            run_id = str(self.trigger_run_id)
            failed = failed_tasks(self.trigger_dag_id, run_id)
            if not failed.words:
                raise
            kind = AirflowFailException if failed.lasting else AirflowException
            raise kind(f"run {run_id} of {self.trigger_dag_id} failed; {failed.words}") from error


class EpochRun(_ChildRun):
    """An epoch, or a part of one; what the run doesn't want is skipped.

    :param offset: steps of the epoch that lie before this part.
    """

    def __init__(self, *, offset: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.offset = offset

    def execute(self, context: Any) -> None:
        """Trigger the epoch."""
        from skillopt_airflow.pipeline.airflow_connections import open_run

        run = open_run({**self.run, "epoch": self.epoch, "offset": self.offset})
        if self.epoch > run.config.train.num_epochs:
            raise AirflowSkipException(f"the run has fewer than {self.epoch} epochs")
        if self.offset >= run.record.steps_in_epoch:
            raise AirflowSkipException(f"the run has {run.record.steps_in_epoch} steps in an epoch")
        first = run.step(1)
        if first is None or run.stopped_before(first):
            raise AirflowSkipException(f"the run was stopped: {run.stopped()}")
        self.conf = {**self.run, "epoch": self.epoch, "offset": self.offset}
        super().execute(context)


class EpochEndRun(_ChildRun):
    """The stages behind an epoch's steps: slow update, meta skill, meta reflection; skipped where the run has none."""

    def execute(self, context: Any) -> None:
        """Trigger the epoch's end."""
        from skillopt_airflow.pipeline.airflow_connections import open_run

        run = open_run(self.run)
        ends = [one for one in run.timeline if one.kind in ("slow_update", "meta_reflect") and one.epoch == self.epoch]
        if not ends:
            raise AirflowSkipException(f"nothing follows the steps of epoch {self.epoch}")
        if run.stopped_before(ends[0]):
            raise AirflowSkipException(f"the run was stopped: {run.stopped()}")
        self.conf = {**self.run, "epoch": self.epoch}
        super().execute(context)


def _parts(train: TrainGroup) -> int:
    return math.ceil(train.steps_per_epoch / MOST_STEPS)
