"""The tasks that run sandboxes: a chunk of rollouts, the preflight, and the next step's batch ahead of its step."""

import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from skillopt_airflow.core.run.timeline import MomentKind
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run, signing_store
from skillopt_airflow.pipeline.tasks.epochs import task_to_clear
from skillopt_airflow.pipeline.tasks.stages import moment_at
from skillopt_airflow.pipeline.tasks.task_errors import tell_rollouts, wrong_input_fails
from skillopt_airflow.sandbox.operator import RolloutOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload
    from skillopt_airflow.store.objects import ExchangeFolder
    from skillopt_airflow.training.rollouts.workload import ChunkWorkload


class RolloutChunk(RolloutOperator):
    """Runs one chunk of a plan in sandboxes; errors are typed rows, and tried again by Airflow's retries.

    :param run: reference of the run, as `prepare` pushed it; None if each chunk has its own. (templated)
    :param chunk: reference of the chunk, as a planning task returned it. (templated)
    """

    template_fields = ("run", "chunk")

    def __init__(self, *, run: Any, chunk: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run
        self.chunk = chunk

    def workload(self, context: "Context") -> "ChunkWorkload":
        from skillopt_airflow.training.rollouts.workload import ChunkWorkload

        ti = context["ti"]
        self._may_retry = ti.try_number <= ti.max_tries
        self._dag_run_id = str(context["run_id"])
        self._work = ChunkWorkload(open_run(self.chunk.get("run", self.run)), self.chunk, self._dag_run_id)
        self._work.judge_again()
        return self._work

    def exchange(self, name: str) -> "ExchangeFolder":
        from skillopt_airflow.store.objects import ExchangeFolder

        run = self._work.run
        return ExchangeFolder(signing_store(run.ref.storage, run.ref.storage.bucket), run.keys.sandbox(name))

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Close what was stored, and store the timing; below the wanted coverage ask for a retry, while there is one.

        Raises:
            AirflowFailException: the first items failed as all others would, so those were not tried.
            AirflowException: too many items failed and Airflow may try again; what was scored is kept.
        """
        self._save_timing(seconds)
        work = self._work
        work.close()
        if work.hopeless is not None:
            raise AirflowFailException(
                f"{work.hopeless}; no retry mends this, so the chunk's other items were not tried: see to connection "
                f"{work.run.config.model.target_conn_id}, then clear {task_to_clear(self._dag_run_id)}"
            )
        tally, wanted = work.tally(), work.wanted_coverage
        tell_rollouts(tally, wanted, may_retry=self._may_retry and (tally.coverage >= wanted or not work.is_decided()))
        return {"items": tally.planned, "coverage": tally.coverage}

    def _save_timing(self, seconds: "SandboxSeconds") -> None:
        from skillopt_airflow.training.run import timing

        work = self._work
        row = timing.StageTiming(
            stage=work.stage,
            started=work.started,
            ended=time.time(),
            model=seconds.model,
            container=seconds.container,
        )
        timing.save(work.run.store, work.run.keys.moment(work.moment), row, work.index)


class Preflight(RolloutChunk):
    """Tries what a run will use, with a sandbox."""

    def execute(self, context: Any) -> None:
        """Try what the run will use.

        Raises:
            AirflowFailException: something is wrong that no retry mends.
            SkillOptError: something is away that may come back.
        """
        from skillopt_airflow.training.prepare.preflight import preflight

        def roll_out(chunks: "Sequence[JsonObject]") -> None:
            for chunk in chunks:
                self.chunk = chunk
                super(Preflight, self).execute(context)

        run = open_run(self.run)
        with wrong_input_fails():
            preflight(run, roll_out)

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Leave the judgement to the preflight."""
        return {}


class Speculation(RolloutChunk):
    """Rolls a batch out in sandboxes.

    It is one task, since a mapped one would need another before it, and each costs the scheduler time in every step.

    :param at: the step by its position in the DAG run, or the epoch's end by its kind, that the batch is behind.
    """

    def __init__(self, *, at: int | MomentKind, **kwargs: Any) -> None:
        super().__init__(chunk=None, **kwargs)
        self.at = at

    def execute(self, context: Any) -> None:
        """Roll the batch out, a chunk after the other; skipped where no rejection is expected."""
        from skillopt_airflow.training.step.steps import plan_ahead

        chunks = plan_ahead(*moment_at(self.run, self.at))
        if not chunks:
            raise AirflowSkipException("no step follows at once, or its batch is not expected to be of use")
        for chunk in chunks:
            self.chunk = chunk
            super().execute(context)
