"""An epoch as DAG runs of its own.

Airflow's cost of a task grows with the task instances of its DAG run. So a run's DAG holds only the epochs, each epoch
is a DAG run, and an epoch of many steps, or of steps with many chunks, is several, one after the other: a step costs
the same in the first epoch and in the tenth, in a run of 10 steps and in one of 200.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.training_groups import TrainGroup
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.addresses import epoch_dag_id, epoch_end_dag_id, train_dag_id
from skillopt_airflow.pipeline.task_errors import failed_tasks

if TYPE_CHECKING:
    from skillopt_airflow.training.run import TrainingRun

MOST_STEPS = 10
"""Steps in one DAG run: 20 cost 4.8 s of Airflow's own time a step where 10 cost 4.2 (2 cores, Airflow 3.3.2)."""
MOST_TASKS = 300
"""Task instances in one DAG run: a task of 500 costs Airflow twice what one of 100 does. A step that has more of them
by itself is alone in its DAG run."""
TASKS_OF_STEP = 4
"""Task instances of a step besides its chunks."""

SHARE_BETWEEN_LOOKS = 0.005
"""Airflow is asked whether a part has ended once in so large a share of the time that the part is expected to take."""
MOST_SECONDS_BETWEEN_LOOKS = 30

CHILD = "__epoch_"
"""Between the id of the training's DAG run and the rest of its task's, in the id of a DAG run of its own."""
PART = "_part_"
"""Before the number of the further DAG runs of an epoch, in their ids."""


def steps_in_part(train: TrainGroup) -> int:
    """Return the steps in each DAG run of an epoch; the last one may leave some of them out."""
    return MOST_STEPS if train.steps_per_epoch is None else min(MOST_STEPS, train.steps_per_epoch)


def epoch_runs(benchmark: str, train: TrainGroup, run: Any) -> "list[_ChildRun]":
    """Return the tasks that run the epochs, in order: one an epoch, and one for its end."""
    steps, tasks = steps_in_part(train), list[_ChildRun]()
    for epoch in range(1, train.num_epochs + 1):
        name, dag, end = f"epoch_{epoch:02d}", epoch_dag_id(benchmark), epoch_end_dag_id(benchmark)
        tasks.append(EpochRun(task_id=name, trigger_dag_id=dag, epoch=epoch, run=run, steps=steps))
        tasks.append(EpochEndRun(task_id=f"{name}_end", trigger_dag_id=end, epoch=epoch, run=run))
    return tasks


def steps_that_fit(config: TrainConfig, sizes: Mapping[Split, int], most: int) -> int:
    """Return the steps in each DAG run of a training's epochs: fewer than the graph has where they have many chunks.

    Args:
        config: of the training.
        sizes: items of train and val.
        most: steps that the graph has.
    """
    from skillopt_airflow.training.map_limits import step_demands

    chunks = sum(demand.chunks for demand in step_demands(config, sizes))
    return max(1, min(most, MOST_TASKS // (chunks + TASKS_OF_STEP)))


def seconds_between_looks(elapsed: float, done: int, steps: int) -> int:
    """Return after how many seconds each Airflow is to be asked whether a part has ended.

    Args:
        elapsed: seconds since the training began.
        done: steps since then, with the seed's measurement as the first.
        steps: of the part.
    """
    expected = elapsed / done * steps
    return max(1, min(MOST_SECONDS_BETWEEN_LOOKS, round(SHARE_BETWEEN_LOOKS * expected)))


def check_training(benchmark: str) -> None:
    """Check that the training to which the task's DAG run belongs was not stopped, that is, has not failed.

    What cannot be told, of a run that is gone or was triggered by hand, is no reason to stop.

    Raises:
        AirflowFailException: it was.
    """
    context = get_current_context()
    training, _, child = str(context["run_id"]).rpartition(CHILD)
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
            f"epoch_{child.partition(PART)[0]}, and it goes on"
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
            trigger_run_id=f"{{{{ run_id }}}}{CHILD}{task_id.removeprefix('epoch_')}",
            logical_date=None,
            wait_for_completion=True,
            # What the part is triggered with is read strictly.
            openlineage_inject_parent_info=False,
            deferrable=True,
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

    def look_less(self, run: "TrainingRun", done: int, steps: int) -> None:
        """Set how often Airflow is asked whether the DAG run has ended: seldom in a training that takes long.

        Args:
            run: the training.
            done: steps before the DAG run.
            steps: of the DAG run.
        """
        began = datetime.fromisoformat(run.record.created)
        elapsed = (datetime.now(UTC) - began).total_seconds()
        self.poke_interval = seconds_between_looks(elapsed, 1 + done, steps)

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
    """An epoch, of as many parts one after the other as its steps take; what the run doesn't want is skipped.

    :param steps: steps that the graph of a part has.
    """

    def __init__(self, *, steps: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = steps

    def execute(self, context: Any) -> None:
        """Trigger the epoch's first part that is not done."""
        run = self._opened()
        if self.epoch > run.config.train.num_epochs:
            raise AirflowSkipException(f"the run has fewer than {self.epoch} epochs")
        part = self._part(run)
        offset = self._done(run, part)
        if not _goes_on(run, offset):
            raise AirflowSkipException(f"the run was stopped: {run.stopped()}")
        self._trigger(context, run, offset, part)

    def execute_complete(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        """Trigger the next part, or end with the last one."""
        super().execute_complete(context, event)
        training, _, child = str(self.trigger_run_id).rpartition(CHILD)
        name, _, number = child.partition(PART)
        run = self._opened()
        part = self._part(run)
        offset = part * (int(number) if number else 1)
        if _goes_on(run, offset):
            self.trigger_run_id = f"{training}{CHILD}{name}"
            self._trigger(context, run, offset, part)

    def _opened(self) -> "TrainingRun":
        from skillopt_airflow.pipeline.airflow_connections import open_run

        return open_run({**self.run, "epoch": self.epoch})

    def _part(self, run: "TrainingRun") -> int:
        """Return the steps of each part but the last."""
        from skillopt_airflow.store.items import count_items

        sizes = {split: count_items(run.store, run.keys.items(split)) for split in (Split.TRAIN, Split.VAL)}
        return steps_that_fit(run.config, sizes, self.steps)

    def _done(self, run: "TrainingRun", part: int) -> int:
        """Return the steps before the first part that is not done; 0 if all are, which then go through the epoch."""
        total = run.record.steps_in_epoch
        for offset in range(0, total, part):
            last = run.step(min(offset + part, total))
            if last is not None and not run.committed(last):
                return offset
        return 0

    def _trigger(self, context: Any, run: "TrainingRun", offset: int, part: int) -> None:
        self.conf = {**self.run, "epoch": self.epoch, "offset": offset, "part": part}
        total = run.record.steps_in_epoch
        self.look_less(run, (self.epoch - 1) * total + offset, min(part, total - offset))
        if offset:
            self.trigger_run_id = f"{self.trigger_run_id}{PART}{offset // part + 1}"
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
        self.look_less(run, self.epoch * run.record.steps_in_epoch, len(ends))
        super().execute(context)


def _goes_on(run: "TrainingRun", offset: int) -> bool:
    """Return whether the epoch has a step behind so many, and the run is to make it."""
    first = run.step(offset + 1)
    return first is not None and not run.stopped_before(first)
