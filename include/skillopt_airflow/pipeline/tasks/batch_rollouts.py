"""A stage's evaluation as one deferred task with Airflow's batch operator."""

import os
import time
from typing import TYPE_CHECKING, Any

from airflow.providers.common.ai.operators.llm_batch import LLMBatchOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowSkipException

from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.airflow_connections import attach_storage, open_run
from skillopt_airflow.pipeline.tasks.epochs import task_to_clear
from skillopt_airflow.pipeline.tasks.params import graph_changed
from skillopt_airflow.pipeline.tasks.task_errors import check_coverage
from skillopt_airflow.tasks.protocols import Benchmark

if TYPE_CHECKING:
    from airflow.providers.common.ai.batch.base import BatchAdapter

    from skillopt_airflow.training.rollouts.batch_job import BatchWork

DAY = 86400
"""Maximum seconds of a provider's job."""


def check_batch(config: TrainConfig, benchmark: Benchmark) -> None:
    """Raise ConfigError for model.batch if the evaluations can't be sent as batch jobs."""
    from airflow.providers.common.ai.exceptions import LLMBatchInputError

    from skillopt_airflow.training.rollouts.batch_job import check_batchable

    model = config.model
    if not model.batch:
        return
    check_batchable(config, benchmark)
    try:
        _adapter(model)
    except LLMBatchInputError as error:
        raise ConfigError(
            f"model.batch: {model.target} behind connection {model.target_conn_id} has no batch API here. Use type "
            f"'pydanticai' with a model such as openai:gpt-5 or anthropic:claude-sonnet-4-5 ({error})"
        ) from error
    variable, conn_id = f"{str(model.target).partition(':')[0].upper()}_BASE_URL", model.target_conn_id
    if variable in os.environ and not BaseHook.get_connection(conn_id).host:
        # Airflow's operator would send the job to that host.
        raise ConfigError(f"model.target_conn_id = {conn_id}: {variable} would set its host. Unset it, or set the host")


def _adapter(model: ModelGroup) -> "type[BatchAdapter]":
    from airflow.providers.common.ai.batch.dispatch import get_adapter_class

    return get_adapter_class(BaseHook.get_connection(model.target_conn_id).conn_type, model.target)


class BatchRollouts(LLMBatchOperator):
    """Sends the open items of a stage's chunks as batch jobs and records the answers, deferred.

    Items beyond the provider's limits go as the next job. Errors are typed rows; Airflow's retries send only those
    again.

    :param run: reference of the run from `prepare`; None if each chunk has its own. (templated)
    :param chunks: references of the chunks from a planning task. (templated)
    """

    template_fields = ("run", "chunks")

    def __init__(self, *, run: Any, chunks: Any, **kwargs: Any) -> None:
        # These depend on the run and are set at execution.
        super().__init__(requests=[], result_path="", llm_conn_id="", timeout=DAY, deferrable=True, **kwargs)
        self.run = run
        self.chunks = chunks

    def execute(self, context: Context) -> Any:
        """Send the open items, or find the job of an earlier attempt.

        Raises:
            AirflowSkipException: the plan has no chunks.
            AirflowException: too many items failed and Airflow may retry; scored items are kept.
        """
        if not self.chunks:
            raise AirflowSkipException("nothing to evaluate")
        work = self._open(context)
        work.judge_again()
        if not work.job.entries:
            self.log.info("Every item has a stored row; no batch job is needed")
            return self._result(context)
        # A job that was sent is paid, and only found again unchanged.
        if not work.under_way:
            left = work.reserve()
            if left.used_up:
                work.refuse(left.used_up, work.job.entries)
                return self._result(context)
            work.shorten(left.calls)
        adapter = _adapter(work.run.config.model)
        self.requests = work.begin(adapter.max_requests, adapter.max_payload_bytes)  # type: ignore[assignment]
        super().execute(context)
        return self._go_on(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record a finished job's answers; raise like `execute`."""
        self._open(context)
        super().execute_complete(context, event)
        return self._go_on(context)

    def _go_on(self, context: Context) -> Any:
        """Send the items beyond the finished job's limits, or end the task."""
        if later := self._work.job.later:
            self.log.info("The job reached the provider's limits; %d items go into the next one", len(later))
            return self.execute(context)
        return self._result(context)

    def _open(self, context: Context) -> "BatchWork":
        from skillopt_airflow.training.rollouts.batch_job import BatchWork

        run = open_run(self.chunks[0].get("run", self.run))
        if not run.config.model.batch:
            raise graph_changed("model.batch = false", task_to_clear(str(context["run_id"])))
        attach_storage(run.ref.storage)
        self._work = BatchWork(run, self.chunks, str(context["run_id"]))
        model = run.config.model
        self.result_path = self._work.results
        self.llm_conn_id, self.model_id, self.max_tokens = model.target_conn_id, model.target, model.max_tokens
        return self._work

    def _identity(self, context: Context) -> tuple[str, str]:  # type: ignore[override]
        """Return the job's id by its folder, because a retried epoch may move a step to another task."""
        from airflow.providers.common.ai.batch import state

        key = state.compute_identity_key(dag_id="", task_id=self.result_path, run_id="", map_index=-1)
        return key, state.key16(key)

    def _land(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Record the answers of a job, even if it was canceled."""
        from skillopt_airflow.training.run import timing

        manifest: dict[str, Any] = super()._land(*args, **kwargs)
        self._work.record(str(manifest["result_uri"]).rpartition("/")[2])
        first, job, now = self._work.chunks[0], self._work.job, time.time()
        row = timing.StageTiming(stage=first.stage, started=job.created, ended=now, model=now - job.created)
        timing.save(first.run.store, first.run.keys.moment(first.moment), row, job.number)
        return manifest

    @staticmethod
    def _normalize_requests(requests: Any) -> list[Any]:
        """Allow prompts that are lists of a provider's parts; the adapters pass any prompt on."""
        return [dict(request) for request in requests]

    def _result(self, context: Context) -> JsonObject:
        work, ti = self._work, context["ti"]
        for tally, wanted in work.tallies():
            check_coverage(tally, wanted, may_retry=ti.try_number <= ti.max_tries)
        return {"items": work.job.earlier + len(work.job.entries), "coverage": work.tally().coverage}
