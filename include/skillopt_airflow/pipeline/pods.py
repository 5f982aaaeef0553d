"""One chunk of rollouts as a mapped task that runs it in pods."""

from typing import TYPE_CHECKING, Any

from skillopt_airflow.pipeline.airflow_connections import signing_store
from skillopt_airflow.pipeline.rollout_chunk import ChunkTask
from skillopt_airflow.sandbox.kubernetes import PodRolloutOperator

if TYPE_CHECKING:
    from skillopt_airflow.store.signed_folder import ExchangeFolder


class PodChunk(ChunkTask, PodRolloutOperator):
    """Runs one chunk of a plan in pods; the twin of `RolloutChunk`.

    :param run: reference of the run, as `prepare` pushed it. (templated)
    :param chunk: reference of the chunk, as a planning task returned it. (templated)
    """

    template_fields = (*PodRolloutOperator.template_fields, "run", "chunk")

    def __init__(self, *, run: Any, chunk: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run
        self.chunk = chunk

    def exchange(self, name: str) -> "ExchangeFolder":
        """Return a folder below the run's keys."""
        from skillopt_airflow.store.signed_folder import ExchangeFolder

        run = self._work.run
        return ExchangeFolder(signing_store(run.ref.storage, run.ref.storage.bucket), run.keys.pod(name))
