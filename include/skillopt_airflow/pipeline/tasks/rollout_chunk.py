"""The tasks that run sandboxes: chunks, the preflight, and batches ahead."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from skillopt_airflow.core.run.timeline import MomentKind
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections, open_run
from skillopt_airflow.pipeline.tasks.epochs import task_to_clear
from skillopt_airflow.pipeline.tasks.stages import moment_at
from skillopt_airflow.pipeline.tasks.task_errors import check_coverage, fail_on_wrong_input
from skillopt_airflow.sandbox.operator import RolloutOperator

if TYPE_CHECKING:
    from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload
    from skillopt_airflow.store.objects import ExchangeFolder
    from skillopt_airflow.training.rollouts.workload import ChunkWorkload


class RolloutChunk(RolloutOperator):
    """Runs a chunk of a plan in sandboxes; errors are typed rows that Airflow's retries try again.

    :param run: reference of the run from `prepare`; None if each chunk has its own. (templated)
    :param chunk: reference of the chunk from a planning task. (templated)
    """

    template_fields = ("run", "chunk")

    def __init__(self, *, run: Any, chunk: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run
        self.chunk = chunk

    def workload(self, context: Context) -> "ChunkWorkload":
        from skillopt_airflow.training.rollouts.workload import ChunkWorkload

        ti = context["ti"]
        self._may_retry = ti.try_number <= ti.max_tries
        self._dag_run_id = str(context["run_id"])
        with fail_on_wrong_input():
            self._work = ChunkWorkload(open_run(self.chunk.get("run", self.run)), self.chunk, self._dag_run_id)
        self._work.judge_again()
        return self._work

    def exchange(self, name: str) -> "ExchangeFolder":
        from botocore.config import Config

        from skillopt_airflow.store.objects import ExchangeFolder, ObjectStore

        run, storage = self._work.run, self._work.run.ref.storage
        # All regions and servers accept signed URLs in this format.
        client = AirflowConnections().s3_client(storage, Config(signature_version="s3v4"))
        return ExchangeFolder(ObjectStore(client, storage.bucket), run.keys.sandbox(name))

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Close the stored parts, store the timing, and ask for a retry if the coverage is too low.

        Raises:
            AirflowFailException: the first items failed for a common reason, so the others were not tried.
            AirflowException: too many items failed and Airflow may retry; scored items are kept.
        """
        from skillopt_airflow.training.run import timing

        work = self._work
        row = timing.StageTiming(
            stage=work.stage, started=work.started, ended=time.time(), model=seconds.model, container=seconds.container
        )
        timing.save(work.run.store, work.run.keys.moment(work.moment), row, work.index)
        work.close()
        if work.hopeless is not None:
            raise AirflowFailException(
                f"{work.hopeless}; a retry can't fix this, so the chunk's other items were not tried. Fix connection "
                f"{work.run.config.model.target_conn_id}, then clear {task_to_clear(self._dag_run_id)}"
            )
        tally, wanted = work.tally(), work.wanted_coverage
        check_coverage(tally, wanted, may_retry=self._may_retry and (tally.coverage >= wanted or not work.is_decided()))
        return {"items": tally.planned, "coverage": tally.coverage}


class Preflight(RolloutChunk):
    """Tries everything that a run uses, with a sandbox."""

    def execute(self, context: Any) -> None:
        from skillopt_airflow.training.prepare.preflight import preflight

        def roll_out(chunks: Sequence[JsonObject]) -> None:
            for chunk in chunks:
                self.chunk = chunk
                super(Preflight, self).execute(context)

        run = open_run(self.run)
        with fail_on_wrong_input():
            preflight(run, roll_out)

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Leave the result to the preflight."""
        return {}


class Speculation(RolloutChunk):
    """Rolls out a batch ahead in sandboxes.

    It's one task: a mapped one would need a planning task, and each task costs the scheduler time per step.

    :param at: the moment before the batch: a step's position in the DAG run, or the kind of the epoch's end.
    """

    def __init__(self, *, at: int | MomentKind, **kwargs: Any) -> None:
        super().__init__(chunk=None, **kwargs)
        self.at = at

    def execute(self, context: Any) -> None:
        """Roll out the batch, one chunk after the other; skipped if no rejection is expected."""
        from skillopt_airflow.training.step.steps import plan_ahead

        chunks = plan_ahead(*moment_at(self.run, self.at))
        if not chunks:
            raise AirflowSkipException("no step follows, or its batch would probably be wasted")
        for chunk in chunks:
            self.chunk = chunk
            super().execute(context)
