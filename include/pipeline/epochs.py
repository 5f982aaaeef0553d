"""An epoch as DAG runs of its own.

Airflow's cost of a task grows with the task instances of its DAG run. So a run's DAG holds only the epochs, each epoch
is a DAG run, and an epoch of many steps is several: a step costs the same in the first epoch and in the tenth, in a run
of 10 steps and in one of 200.
"""

import math
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.core.config import TrainGroup
from include.pipeline.addresses import epoch_dag_id

MOST_STEPS = 10
"""Steps in one DAG run: 20 cost 4.8 s of Airflow's own time a step where 10 cost 4.2 (2 cores, Airflow 3.3.2)."""


def steps_in_part(train: TrainGroup) -> int:
    """Steps of each DAG run of an epoch; the last one may leave some of them out."""
    return math.ceil(train.steps_per_epoch / _parts(train))


def epoch_runs(benchmark: str, train: TrainGroup, run: Any) -> "list[EpochRun]":
    """The tasks that run the epochs, in order: one an epoch, or one a part of it."""
    parts = _parts(train)
    return [
        EpochRun(
            task_id=f"epoch_{epoch:02d}" if parts == 1 else f"epoch_{epoch:02d}_part_{part + 1}",
            benchmark=benchmark,
            epoch=epoch,
            offset=part * steps_in_part(train),
            run=run,
        )
        for epoch in range(1, train.num_epochs + 1)
        for part in range(parts)
    ]


class EpochRun(TriggerDagRunOperator):
    """Runs an epoch, or a part of one, and waits for it, deferred; what the run doesn't want is skipped.

    :param benchmark: the benchmark's name.
    :param epoch: the epoch, 1-based.
    :param offset: steps of the epoch that lie before this part.
    :param run: reference of the run, as `prepare` pushed it. (templated)
    """

    template_fields = (*TriggerDagRunOperator.template_fields, "run")

    def __init__(self, *, task_id: str, benchmark: str, epoch: int, offset: int, run: Any, **kwargs: Any) -> None:
        super().__init__(
            task_id=task_id,
            trigger_dag_id=epoch_dag_id(benchmark),
            trigger_run_id=f"{{{{ run_id }}}}__{task_id}",
            logical_date=None,
            wait_for_completion=True,
            deferrable=True,
            poke_interval=1,
            # A second attempt goes through the epoch again; what its tasks have stored, they don't do twice.
            reset_dag_run=True,
            execution_timeout=None,
            trigger_rule="none_failed",
            **kwargs,
        )
        self.epoch = epoch
        self.offset = offset
        self.run = run

    def execute(self, context: Any) -> None:
        """Trigger the epoch."""
        from include.pipeline.run import TrainingRun

        record = TrainingRun.open(self.run).record
        if self.epoch > record.config.train.num_epochs:
            raise AirflowSkipException(f"the run has fewer than {self.epoch} epochs")
        if self.offset >= record.steps_in_epoch:
            raise AirflowSkipException(f"the run has {record.steps_in_epoch} steps in an epoch")
        self.conf = {**self.run, "epoch": self.epoch, "offset": self.offset}
        super().execute(context)


def _parts(train: TrainGroup) -> int:
    return math.ceil(train.steps_per_epoch / MOST_STEPS)
