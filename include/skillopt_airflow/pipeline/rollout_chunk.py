"""One chunk of rollouts as a mapped task: one sandbox, and Airflow's retries for what failed in it."""

import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.airflow_connections import open_run, signing_store
from skillopt_airflow.pipeline.epochs import task_to_clear
from skillopt_airflow.pipeline.failures import tell_rollouts
from skillopt_airflow.sandbox.operator import RolloutOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload
    from skillopt_airflow.store.signed_folder import ExchangeFolder
    from skillopt_airflow.training.workload import ChunkWorkload


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
        from skillopt_airflow.training.workload import ChunkWorkload

        ti = context["ti"]
        self._may_retry = ti.try_number <= ti.max_tries
        self._dag_run_id = str(context["run_id"])
        self._work = ChunkWorkload(open_run(self.chunk.get("run", self.run)), self.chunk, self._dag_run_id)
        self._work.judge_again()
        return self._work

    def exchange(self, name: str) -> "ExchangeFolder":
        from skillopt_airflow.store.signed_folder import ExchangeFolder

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
        tell_rollouts(tally, wanted, may_retry=self._may_retry and (tally.coverage >= wanted or not work.settled()))
        return {"items": tally.planned, "coverage": tally.coverage}

    def _save_timing(self, seconds: "SandboxSeconds") -> None:
        from skillopt_airflow.training import timing

        work = self._work
        row = timing.StageTiming(
            stage=work.stage,
            started=work.started,
            ended=time.time(),
            model=seconds.model,
            container=seconds.container,
        )
        timing.save(work.run.store, work.run.keys.moment(work.moment), row, work.index)
