"""An epoch as DAG runs of its own.

Airflow's cost of a task grows with the task instances of its DAG run. So a run's DAG holds only the epochs, each epoch
is a DAG run, and an epoch of many steps, or of steps with many chunks, is several, one after the other: a step costs
the same in the first epoch and in the tenth, in a run of 10 steps and in one of 200.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import TrainGroup
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import check_graph
from skillopt_airflow.pipeline.tasks.task_errors import failed_tasks
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config

if TYPE_CHECKING:
    from skillopt_airflow.training.run.run import TrainingRun

MAX_STEPS = 10
"""Steps in one DAG run: 20 cost 4.8 s of Airflow's own time a step where 10 cost 4.2 (2 cores, Airflow 3.3.2)."""
MAX_TASKS = 300
"""Task instances in one DAG run: a task of 500 costs Airflow twice what one of 100 does. A step that has more of them
by itself is alone in its DAG run."""
TASKS_OF_STEP = 5
"""Task instances of a step besides its chunks."""
STEPS_OF_END = 2
"""Steps that have as many task instances as an epoch's end."""

POKE_SECONDS = 2
"""Seconds after which the triggerer asks again whether a part has ended."""

CHILD = "__epoch_"
"""Between the id of the training's DAG run and the rest of its task's, in the id of a DAG run of its own."""
PART = "_part_"
"""Before the number of the further DAG runs of an epoch, in their ids."""
RUN_OF = "run_of_part_"
"""Before a part's number, in the key of the XCom from which its tasks have the reference of the run."""


def steps_in_part(train: TrainGroup) -> int:
    """Return the steps in each DAG run of an epoch; the last one may leave some of them out."""
    return MAX_STEPS if train.steps_per_epoch is None else min(MAX_STEPS, train.steps_per_epoch)


class Part(NamedTuple):
    """The part of an epoch that one DAG run goes through: some of its steps, none at the least, and its end or not."""

    offset: int
    """Steps of the epoch that lie before it."""
    steps: int
    ends: bool = False


def epoch_runs(benchmark: str, train: TrainGroup, run: Any) -> "list[EpochRun]":
    """Return the tasks that run the epochs, in order."""
    dag, steps = epoch_dag_id(benchmark), steps_in_part(train)
    return [
        EpochRun(task_id=f"epoch_{epoch:02d}", trigger_dag_id=dag, epoch=epoch, run=run, steps=steps)
        for epoch in range(1, train.num_epochs + 1)
    ]


def steps_that_fit(config: TrainConfig, sizes: Mapping[Split, int]) -> int:
    """Return the steps that a DAG run has room for, by their tasks."""
    from skillopt_airflow.training.rollouts.rollout_plan import largest_plan

    train, rules = config.train, config.evaluation
    batch = min(sizes[Split.TRAIN], train.batch_size * train.accumulation)
    val = len(range(sizes[Split.VAL])[: rules.limit(Split.VAL)])
    chunks = largest_plan(batch, config, 1, train.rollouts_per_item)
    # All chunks of an evaluation go as one batch job.
    chunks += 0 if config.model.batch else largest_plan(val, config, 1, rules.draws)
    return max(1, MAX_TASKS // (chunks + TASKS_OF_STEP))


def epoch_parts(steps: int, fit: int, most: int, *, ends: bool) -> list[Part]:
    """Return the parts of an epoch, in order. The epoch's end is in the last one, alone where the steps leave no room.

    Args:
        fit: steps that a DAG run has room for.
        most: steps that the graph has.
        ends: whether something follows the steps.
    """
    each = min(most, fit)
    parts = [Part(offset, min(each, steps - offset)) for offset in range(0, steps, each)]
    if not ends:
        return parts
    if parts[-1].steps + STEPS_OF_END <= fit:
        return [*parts[:-1], parts[-1]._replace(ends=True)]
    return [*parts, Part(steps, 0, ends=True)]


def check_training(benchmark: str) -> None:
    """Check that the training to which the task's DAG run belongs was not stopped, that is, has not failed.

    What cannot be told, of a run that is gone or was triggered by hand, is no reason to stop.

    Raises:
        AirflowFailException: it was.
    """
    context = get_current_context()
    training, name, _ = _parted(str(context["run_id"]))
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
            f"epoch_{name}, and it goes on"
        )


def run_of_part(benchmark: str, run_id: str, conf: Any) -> Any:
    """Return the reference of the run for the tasks of a part, as the training's task left it last.

    Airflow keeps the conf that a DAG run was first triggered with, also when the part is gone through again under other
    code, storage or sizes of parts. If no training triggered it, the conf is all there is, but for the benchmark, and
    for settings and prices: those of the run hold.
    """
    from airflow.sdk.execution_time.xcom import XCom

    own = {} if conf is None else {**conf, "benchmark": benchmark, "overrides": {}, "prices": None}
    training, name, number = _parted(run_id)
    if not training:
        return own
    dag_id = train_dag_id(benchmark)
    found = XCom.get_one(key=f"{RUN_OF}{number}", dag_id=dag_id, task_id=f"epoch_{name}", run_id=training)
    return own if found is None else found


def task_to_clear(run_id: str) -> str:
    """Return the task by which what failed in a DAG run is done again: its own, or the training's that waits for it."""
    training, name, _ = _parted(run_id)
    return f"task epoch_{name} of the training's run {training}" if training else "this task"


def _is_retry(instance: Any, retries: int | None) -> bool:
    """Return whether a task failed before since it was cleared last, as its tries tell."""
    return bool(instance.try_number > instance.max_tries - (0 if retries is None else retries) + 1)


def _parted(run_id: str) -> tuple[str, str, int]:
    """Return what the id of a part's DAG run says: the training's, the rest of its task's, and the part's number.

    The first is empty if no training triggered it.
    """
    training, _, child = run_id.rpartition(CHILD)
    name, _, number = child.partition(PART)
    return training, name, int(number) if number.isdecimal() else 1


class EpochRun(TriggerDagRunOperator):
    """An epoch: runs its parts as DAG runs one after the other and waits for each, deferred; skipped if not wanted.

    :param epoch: the epoch, 1-based.
    :param run: reference of the run, as `prepare` pushed it. (templated)
    :param steps: steps that the graph of a part has.
    """

    template_fields = (*TriggerDagRunOperator.template_fields, "run")

    def __init__(self, *, task_id: str, epoch: int, run: Any, steps: int, **kwargs: Any) -> None:
        super().__init__(
            task_id=task_id,
            trigger_run_id=f"{{{{ run_id }}}}{CHILD}{task_id.removeprefix('epoch_')}",
            logical_date=None,
            wait_for_completion=True,
            # What the part is triggered with is read strictly.
            openlineage_inject_parent_info=False,
            deferrable=True,
            poke_interval=POKE_SECONDS,
            # A second attempt goes through what is left of the part.
            reset_dag_run=True,
            # A run of a paused DAG would never begin, and this task wait for ever.
            fail_when_dag_is_paused=True,
            execution_timeout=None,
            trigger_rule="none_failed",
            **kwargs,
        )
        self.epoch = epoch
        self.run = run
        self.steps = steps

    def execute(self, context: Any) -> None:
        run = self._opened()
        if self.epoch > run.config.train.num_epochs:
            raise AirflowSkipException(f"the run has fewer than {self.epoch} epochs")
        parts = self._parts(run)
        index = next((index for index, part in enumerate(parts) if not run.committed(_moments(run, part)[-1])), None)
        if index is None:
            # It failed behind its last moment, or while that was repaired; nothing is left of it.
            if _is_retry(context["ti"], self.retries) or run.is_newest(_moments(run, parts[-1])[-1]):
                return
            # Who clears the task of an epoch on which others rest has it gone through again.
            index = 0
        if run.stopped_before(_moments(run, _left_of(run, parts[index]))[0]):
            reason = run.stopped()
            if not reason:
                raise AirflowFailException(
                    f"epoch {self.epoch} cannot begin, since what comes before it is missing: clear the task of the "
                    "first epoch that is not whole, with all that comes after it"
                )
            raise AirflowSkipException(f"the run was stopped: {reason}")
        self._trigger(context, run, parts, index)

    def execute_complete(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        """Trigger the next part, or end with the last one; the run's last epoch skips those that it does not have.

        Raises:
            AirflowException: the part failed; the text has its failed tasks and their errors. Or it ended without its
                last step, as when the graph got fewer steps meanwhile; a retry goes on behind what was done.
            AirflowFailException: so it did, and would again.
        """
        self._end_with_part(context, event)
        training, name, number = _parted(str(self.trigger_run_id))
        run = self._opened()
        parts = self._parts(run)
        last = _moments(run, parts[number - 1])[-1]
        if not run.committed(last) and not run.stopped():
            raise AirflowException(
                f"run {self.trigger_run_id} of {self.trigger_dag_id} ended without {last.name}: the graph has fewer "
                "steps than when it began, tasks were marked, or a gate that was done again took it back; another try, "
                "or clearing this task, goes on behind what is there"
            )
        if number < len(parts) and not run.stopped_before(_moments(run, parts[number])[0]):
            self.trigger_run_id = f"{training}{CHILD}{name}"
            self._trigger(context, run, parts, number)
        if self.epoch == run.config.train.num_epochs:
            self._skip_surplus()

    def _end_with_part(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        try:
            super().execute_complete(context, event)
        except AirflowException as error:
            run_id = str(self.trigger_run_id)
            failed = failed_tasks(self.trigger_dag_id, run_id)
            if not failed.words:
                raise
            kind = AirflowFailException if failed.lasting else AirflowException
            raise kind(f"run {run_id} of {self.trigger_dag_id} failed; {failed.words}") from error

    def _skip_surplus(self) -> None:
        """Skip the epochs behind this one at once; each would begin only to skip itself, one after the other."""
        later = [name for name in self.get_flat_relative_ids(upstream=False) if name.startswith("epoch_")]
        if later:
            raise DownstreamTasksSkipped(tasks=sorted(later))  # type: ignore[no-untyped-call]

    def _opened(self) -> "TrainingRun":
        from skillopt_airflow.pipeline.tasks.airflow_connections import open_run

        return open_run({**self.run, "epoch": self.epoch})

    def _parts(self, run: "TrainingRun") -> list[Part]:
        from skillopt_airflow.store.data.items import count_items

        sizes = {split: count_items(run.store, run.keys.items(split)) for split in (Split.TRAIN, Split.VAL)}
        fit = steps_that_fit(run.config, sizes)
        return epoch_parts(run.record.steps_in_epoch, fit, self.steps, ends=bool(run.epoch_ends()))

    def _trigger(self, context: Any, run: "TrainingRun", parts: list[Part], index: int) -> None:
        check_graph(run.config, benchmark_config(run.ref.benchmark))
        part = _left_of(run, parts[index])
        self.conf = {**self.run, "epoch": self.epoch, "offset": part.offset, "part": part.steps, "ends": part.ends}
        context["ti"].xcom_push(key=f"{RUN_OF}{index + 1}", value=self.conf)
        if index:
            self.trigger_run_id = f"{self.trigger_run_id}{PART}{index + 1}"
        super().execute(context)


def _moments(run: "TrainingRun", part: Part) -> list[Moment]:
    steps = [moment for moment in run.timeline if (moment.kind, moment.epoch) == ("step", run.ref.epoch)]
    return steps[part.offset : part.offset + part.steps] + (run.epoch_ends() if part.ends else [])


def _left_of(run: "TrainingRun", part: Part) -> Part:
    """Return the part without its first steps that are committed; the whole part if all of it is.

    A step that is gone through again rolls out again what failed in it, and may then end otherwise.
    """
    done = next((place for place, moment in enumerate(_moments(run, part)) if not run.committed(moment)), 0)
    done = min(done, part.steps)
    return part._replace(offset=part.offset + done, steps=part.steps - done)
