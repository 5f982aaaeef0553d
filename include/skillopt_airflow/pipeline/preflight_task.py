"""The preflight as a task: its one item runs in a sandbox like every other."""

from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.airflow_connections import open_run
from skillopt_airflow.pipeline.failures import wrong_input_fails
from skillopt_airflow.pipeline.rollout_chunk import RolloutChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload


class Preflight(RolloutChunk):
    """Tries what a run will use, with a sandbox."""

    def execute(self, context: Any) -> None:
        """Try what the run will use.

        Raises:
            AirflowFailException: something is wrong that no retry mends.
            SkillOptError: something is away that may come back.
        """
        from skillopt_airflow.training.preflight import impatient, preflight

        def roll_out(chunks: "Sequence[JsonObject]") -> None:
            for chunk in chunks:
                self.chunk = chunk
                super(Preflight, self).execute(context)

        run = open_run(self.run)
        with wrong_input_fails():
            ref = impatient(run)
            self.run = ref.model_dump(mode="json")
            preflight(open_run(ref), roll_out)

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Leave the judgement to the preflight."""
        return {}
