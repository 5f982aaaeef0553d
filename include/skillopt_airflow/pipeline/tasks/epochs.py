"""Epochs as separate DAG runs.

Airflow's cost per task grows with the task instances of the DAG run. So a run's DAG has only the epochs, each epoch is
a DAG run, and a long epoch is several DAG runs in sequence. Then a step costs the same in the first and the tenth
epoch, and in a run of 10 or 200 steps.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DagRunTriggerException,
    DownstreamTasksSkipped,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import TriggerDagRun
from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import TrainGroup
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import check_graph
from skillopt_airflow.pipeline.tasks.task_errors import failed_tasks
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import TrainingRun

log = logging.getLogger(__name__)

MAX_STEPS = 10
"""Maximum steps per DAG run: Airflow's time per step is 4.2 s with 10 steps, 4.8 s with 20 (2 cores, Airflow 3.3.2)."""
MAX_TASKS = 300
"""Target for task instances per DAG run: with 500, a task costs Airflow twice as much as with 100. A larger step gets
its own DAG run."""
TASKS_OF_STEP = 5
"""Task instances of a step without its chunks."""
STEPS_OF_END = 2
"""Steps with the same number of task instances as an epoch's end."""

POKE_SECONDS = 2
"""Interval in which the triggerer checks whether a part has ended."""
IDLE_SECONDS = 300
"""After this time without a task to run, a task looks why: the DAG may be paused, or the part's tasks deleted."""
COUNT_SECONDS = 60
"""Interval in which the triggerer counts a part's tasks."""
IDLE, DELETED = "idle", "deleted"
"""States of a part that Airflow has no name for."""
BUSY = ("scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule")
"""States of tasks that run now or will run without another task's end."""

CHILD = "__epoch_"
"""Separator in a part's DAG run id, between the training's run id and the rest of the task id."""
PART = "_part_"
"""Separator before the part's number in DAG run ids, from the second part on."""
RUN_OF = "run_of_part_"
"""Prefix of a part's number in the key of the XCom with the run's reference."""


def steps_in_part(train: TrainGroup) -> int:
    """Return the steps per DAG run of an epoch; the last one may have fewer."""
    return MAX_STEPS if train.steps_per_epoch is None else min(MAX_STEPS, train.steps_per_epoch)


class Part(NamedTuple):
    """A part of an epoch in one DAG run: some steps, maybe none, and maybe the end."""

    offset: int
    """Steps of the epoch before it."""
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
    """Return the steps that fit into a DAG run by their task instances."""
    from skillopt_airflow.training.rollouts.rollout_plan import largest_plan

    train, rules = config.train, config.evaluation
    batch = min(sizes[Split.TRAIN], train.batch_size * train.accumulation)
    val = len(range(sizes[Split.VAL])[: rules.limit(Split.VAL)])
    chunks = largest_plan(batch, config, 1, train.samples)
    # A batch job covers all chunks of an evaluation.
    chunks += 0 if config.model.batch else largest_plan(val, config, 1, rules.samples)
    return max(1, MAX_TASKS // (chunks + TASKS_OF_STEP))


def epoch_parts(steps: int, fit: int, most: int, *, ends: bool) -> list[Part]:
    """Return the parts of an epoch in order; the last one has the epoch's end, separately if it doesn't fit.

    A DAG run has room for `fit` steps, its graph for `most`. `ends` is True if the epoch has an end after its steps.
    """
    each = min(most, fit)
    parts = [Part(offset, min(each, steps - offset)) for offset in range(0, steps, each)]
    if not ends:
        return parts
    if parts[-1].steps + STEPS_OF_END <= fit:
        return [*parts[:-1], parts[-1]._replace(ends=True)]
    return [*parts, Part(steps, 0, ends=True)]


def check_training(benchmark: str) -> None:
    """Raise AirflowFailException if the training of the task's DAG run has failed, was stopped or was deleted.

    A DAG run triggered by hand passes the check.
    """
    context = get_current_context()
    training, name, _ = _split_run_id(str(context["run_id"]))
    if not training:
        return
    dag_id, ti = train_dag_id(benchmark), context["ti"]
    if not ti.get_dr_count(dag_id, run_ids=[training]):
        raise AirflowFailException(
            f"run {training} of {dag_id} was deleted, so this part of it stops here. Nothing is lost: trigger {dag_id} "
            "again with this run id and the same form to go on"
        )
    if ti.get_dagrun_state(dag_id, training) == "failed":
        raise AirflowFailException(
            f"run {training} of {dag_id} has failed, so this part of it stops here. Clear that run's task "
            f"epoch_{name} to resume"
        )


def run_of_part(benchmark: str, run_id: str, conf: Any) -> Any:
    """Return the run's reference for the tasks of a part, as the training's task last wrote it.

    Airflow keeps the conf of a DAG run's first trigger, even if the part runs again with other code, storage or sizes.
    Without a training, the conf is the only source; its benchmark, settings and prices are ignored.
    """
    own = {} if conf is None else {**conf, "benchmark": benchmark, "overrides": {}, "prices": None}
    training, name, number = _split_run_id(run_id)
    if not training:
        return own
    dag_id = train_dag_id(benchmark)
    found = XCom.get_one(key=f"{RUN_OF}{number}", dag_id=dag_id, task_id=f"epoch_{name}", run_id=training)
    return own if found is None else found


def task_to_clear(run_id: str) -> str:
    """Return the task to clear after a failure: the failed task itself, or the training's task that waits for it."""
    training, name, _ = _split_run_id(run_id)
    return f"task epoch_{name} of the training's run {training}" if training else "this task"


def _split_run_id(run_id: str) -> tuple[str, str, int]:
    """Split the id of a part's DAG run into the training's run, the epoch, and the part's number.

    The training is empty if none triggered it.
    """
    training, _, child = run_id.rpartition(CHILD)
    name, _, number = child.partition(PART)
    return training, name, int(number) if number.isdecimal() else 1


def trigger_dag_run(asked: DagRunTriggerException) -> None:
    """Trigger a DAG run, or clear it if it exists, as Airflow does for this exception before it waits."""
    message = TriggerDagRun(
        dag_id=asked.trigger_dag_id, run_id=asked.dag_run_id, conf=asked.conf, reset_dag_run=asked.reset_dag_run
    )
    task_runner.SUPERVISOR_COMMS.send(message)


class PartTrigger(BaseTrigger):
    """Fires when a part's DAG run has ended, was deleted, or has had no task to run for a while.

    Airflow's own trigger waits forever for a DAG run that was deleted, or whose tasks were.
    """

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.run_id = dag_id, run_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.PartTrigger", {"dag_id": self.dag_id, "run_id": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        airflow, dag_id, runs = task_runner.RuntimeTaskInstance, self.dag_id, [self.run_id]
        # Airflow's methods block.
        ask = asyncio.to_thread
        busy = counted = time.monotonic()
        state = IDLE
        while (now := time.monotonic()) < busy + IDLE_SECONDS:
            if not await ask(airflow.get_dr_count, dag_id, run_ids=runs, states=["queued", "running"]):
                known = await ask(airflow.get_dr_count, dag_id, run_ids=runs)
                state = await ask(airflow.get_dagrun_state, dag_id, self.run_id) if known else DELETED
                break
            if now >= counted + COUNT_SECONDS:
                counted = now
                if await ask(airflow.get_ti_count, dag_id, run_ids=runs, states=list(BUSY)):
                    busy = now
            await asyncio.sleep(POKE_SECONDS)
        told = (self.serialize()[0], {"run_ids": runs, self.run_id: state})
        yield TriggerEvent(told)  # type: ignore[no-untyped-call]


class EpochRun(TriggerDagRunOperator):
    """Runs an epoch's parts as DAG runs in sequence and waits for each, deferred; skipped if not needed.

    :param epoch: the epoch, 1-based.
    :param run: reference of the run from `prepare`. (templated)
    :param steps: steps in the graph of a part.
    """

    template_fields = (*TriggerDagRunOperator.template_fields, "run")

    def __init__(self, *, task_id: str, epoch: int, run: Any, steps: int, **kwargs: Any) -> None:
        super().__init__(
            task_id=task_id,
            trigger_run_id=f"{{{{ run_id }}}}{CHILD}{task_id.removeprefix('epoch_')}",
            logical_date=None,
            wait_for_completion=True,
            # The child run rejects unknown conf keys.
            openlineage_inject_parent_info=False,
            deferrable=True,
            poke_interval=POKE_SECONDS,
            # A retry runs the rest of the part.
            reset_dag_run=True,
            # Otherwise a paused DAG's run never begins, and this task waits indefinitely.
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
            # A retry, by its try number since the task was last cleared, failed after its last moment or in a repair.
            is_retry = context["ti"].try_number > context["ti"].max_tries - (self.retries or 0) + 1
            if is_retry or run.is_newest(_moments(run, parts[-1])[-1]):
                return
            # Clearing an epoch with later epochs runs it again.
            index = 0
        if run.stopped_before(_moments(run, _rest_of(run, parts[index]))[0]):
            reason = run.stopped()
            if not reason:
                raise AirflowFailException(
                    f"epoch {self.epoch} cannot begin because earlier results are missing. Clear the task of the "
                    "first incomplete epoch and all tasks after it"
                )
            raise AirflowSkipException(f"the run was stopped: {reason}")
        self._trigger(context, run, parts, index)

    def execute_complete(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        """Trigger the next part, or end with the last one; the last epoch skips surplus epochs.

        Raises:
            AirflowException: the part failed (with its failed tasks and errors), or ended without its last step, for
                example because the graph now has fewer steps; a retry continues after the finished steps.
            AirflowFailException: the part failed in a way that a retry can't fix.
        """
        self._end_with_part(context, event)
        training, name, number = _split_run_id(str(self.trigger_run_id))
        run = self._opened()
        parts = self._parts(run)
        last = _moments(run, parts[number - 1])[-1]
        if not run.committed(last) and not run.stopped():
            raise AirflowException(
                f"run {self.trigger_run_id} of {self.trigger_dag_id} ended without {last.name}: the graph has fewer "
                "steps than at its start, tasks were marked, or a repeated gate revoked it. Retry or clear this task "
                "to continue after the finished steps"
            )
        if number < len(parts) and not run.stopped_before(_moments(run, parts[number])[0]):
            self.trigger_run_id = f"{training}{CHILD}{name}"
            self._trigger(context, run, parts, number)
        if self.epoch == run.config.train.num_epochs:
            self._skip_surplus()

    def _end_with_part(self, context: Any, event: tuple[str, dict[str, Any]]) -> None:
        [run_id] = event[1]["run_ids"]
        self.trigger_run_id, part = run_id, f"run {run_id} of {self.trigger_dag_id}"
        if event[1][run_id] == IDLE:
            self._look_after(context["ti"], run_id, part)
        if event[1][run_id] == DELETED:
            raise AirflowException(
                f"{part} was deleted. Nothing is lost: a retry continues after the finished steps, or clear this task"
            )
        try:
            super().execute_complete(context, event)
        except AirflowException as error:
            run_id = str(self.trigger_run_id)
            failed = failed_tasks(self.trigger_dag_id, run_id)
            if not failed.words:
                raise
            kind = AirflowFailException if failed.lasting else AirflowException
            raise kind(f"run {run_id} of {self.trigger_dag_id} failed; {failed.words}") from error

    def _look_after(self, ti: Any, run_id: str, part: str) -> NoReturn:
        """Wait on for a part that is paused or queued, or fail if Airflow has lost its tasks."""
        dag_id = self.trigger_dag_id
        if ti.get_dag(dag_id).is_paused:
            log.warning("DAG %s is paused, so the training waits. Unpause it in Airflow to go on", dag_id)
            self._wait()
        is_running = ti.get_dagrun_state(dag_id, run_id) == "running"
        if is_running and not ti.get_ti_count(dag_id, run_ids=[run_id], states=list(BUSY)):
            raise AirflowFailException(
                f"{part} has had no task to run for {IDLE_SECONDS} s. `airflow db clean` may have deleted its tasks. "
                "Nothing is lost: mark that DAG run failed and delete it, then clear this task, which continues after "
                "the finished steps"
            )
        self._wait()

    def _wait(self) -> NoReturn:
        self.defer(trigger=PartTrigger(self.trigger_dag_id, str(self.trigger_run_id)), method_name="execute_complete")

    def _skip_surplus(self) -> None:
        """Skip the later epochs at once; otherwise they would skip themselves one by one."""
        later = [name for name in self.get_flat_relative_ids(upstream=False) if name.startswith("epoch_")]
        if later:
            raise DownstreamTasksSkipped(tasks=sorted(later))  # type: ignore[no-untyped-call]

    def _opened(self) -> TrainingRun:
        return open_run({**self.run, "epoch": self.epoch})

    def _parts(self, run: TrainingRun) -> list[Part]:
        from skillopt_airflow.store.data.item_tables import count_items

        sizes = {split: count_items(run.store, run.keys.items(split)) for split in (Split.TRAIN, Split.VAL)}
        fit = steps_that_fit(run.config, sizes)
        return epoch_parts(run.record.steps_in_epoch, fit, self.steps, ends=bool(run.epoch_ends()))

    def _trigger(self, context: Any, run: TrainingRun, parts: list[Part], index: int) -> None:
        check_graph(run.config, benchmark_config(run.ref.benchmark))
        part = _rest_of(run, parts[index])
        self.conf = {**self.run, "epoch": self.epoch, "offset": part.offset, "part": part.steps, "ends": part.ends}
        context["ti"].xcom_push(key=f"{RUN_OF}{index + 1}", value=self.conf)
        if index:
            self.trigger_run_id = f"{self.trigger_run_id}{PART}{index + 1}"
        try:
            super().execute(context)
        except DagRunTriggerException as asked:
            trigger_dag_run(asked)
        self._wait()


def _moments(run: TrainingRun, part: Part) -> list[Moment]:
    steps = [moment for moment in run.timeline if (moment.kind, moment.epoch) == ("step", run.ref.epoch)]
    return steps[part.offset : part.offset + part.steps] + (run.epoch_ends() if part.ends else [])


def _rest_of(run: TrainingRun, part: Part) -> Part:
    """Return the part without its committed first steps; the whole part if all are committed.

    A repeated step would roll out its failed items again and might end differently.
    """
    done = next((place for place, moment in enumerate(_moments(run, part)) if not run.committed(moment)), 0)
    done = min(done, part.steps)
    return part._replace(offset=part.offset + done, steps=part.steps - done)
