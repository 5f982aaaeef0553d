"""One chunk of rollouts as a mapped task that runs it in pods."""

from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.connections import signing_store
from skillopt_airflow.pipeline.evaluation import ChunkTask
from skillopt_airflow.sandbox.kubernetes import PodRolloutOperator
from skillopt_airflow.sandbox.pod import START_SECONDS

if TYPE_CHECKING:
    from skillopt_airflow.sandbox.task_workload import Workload
    from skillopt_airflow.store.exchange import ExchangeFolder

__all__ = ["START_SECONDS", "PodChunk"]


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
        """A folder below the run's keys."""
        from skillopt_airflow.store.exchange import ExchangeFolder

        run = self._work.run
        return ExchangeFolder(signing_store(run.ref.storage, run.ref.storage.bucket), run.keys.pod(name))

    def gateway_document(self, workload: "Workload") -> JsonObject:
        """The target, with its credentials, and how it may be called."""
        from skillopt_airflow.gateway.backends import handed_over
        from skillopt_airflow.sandbox.task_gateway import gateway_settings

        settings = gateway_settings(workload).model_dump(mode="json")
        return {**settings, "upstream": handed_over(workload.upstream)}
