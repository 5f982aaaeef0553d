"""The next step's batch as a task beside those that make and measure a candidate."""

from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.pipeline.rollout_chunk import RolloutChunk
from skillopt_airflow.pipeline.tasks import moment_at


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
        from skillopt_airflow.training.speculation import plan_ahead

        chunks = plan_ahead(*moment_at(self.run, self.at))
        if not chunks:
            raise AirflowSkipException("no step follows at once, or its batch is not expected to be of use")
        for chunk in chunks:
            self.chunk = chunk
            super().execute(context)
