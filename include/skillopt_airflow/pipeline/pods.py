"""One chunk of rollouts as a mapped task that runs it in pods."""

from typing import TYPE_CHECKING

from skillopt_airflow.pipeline.airflow_connections import signing_store
from skillopt_airflow.pipeline.preflight_task import PreflightTask
from skillopt_airflow.pipeline.rollout_chunk import ChunkTask
from skillopt_airflow.pipeline.speculation_task import SpeculationTask
from skillopt_airflow.sandbox.kubernetes import PodRolloutOperator

if TYPE_CHECKING:
    from skillopt_airflow.store.signed_folder import ExchangeFolder


class PodChunk(ChunkTask, PodRolloutOperator):
    """Runs one chunk of a plan in pods, as `RolloutChunk` does in containers of a Docker engine."""

    template_fields = (*PodRolloutOperator.template_fields, "run", "chunk")

    def exchange(self, name: str) -> "ExchangeFolder":
        """Return a folder below the run's keys."""
        from skillopt_airflow.store.signed_folder import ExchangeFolder

        run = self._work.run
        return ExchangeFolder(signing_store(run.ref.storage, run.ref.storage.bucket), run.keys.pod(name))


class PodSpeculation(SpeculationTask, PodChunk):
    """Rolls a batch out in pods, as `Speculation` does on a Docker engine."""


class PodPreflight(PreflightTask, PodChunk):
    """Checks what a run needs, with a pod, as `Preflight` does with a container."""
