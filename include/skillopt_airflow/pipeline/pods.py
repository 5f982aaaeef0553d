"""One chunk of rollouts as a mapped task that runs it in pods."""

from skillopt_airflow.pipeline.preflight_task import PreflightTask
from skillopt_airflow.pipeline.rollout_chunk import ChunkTask
from skillopt_airflow.pipeline.speculation_task import SpeculationTask
from skillopt_airflow.sandbox.kubernetes import PodRolloutOperator


class PodChunk(ChunkTask, PodRolloutOperator):
    """Runs one chunk of a plan in pods, as `RolloutChunk` does in containers of a Docker engine."""

    template_fields = (*PodRolloutOperator.template_fields, "run", "chunk")


class PodSpeculation(SpeculationTask, PodChunk):
    """Rolls a batch out in pods, as `Speculation` does on a Docker engine."""


class PodPreflight(PreflightTask, PodChunk):
    """Checks what a run needs, with a pod, as `Preflight` does with a container."""
