"""Parts that all DAGs share: defaults, and mapped tasks that run sandboxes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.definitions.param import ParamsDict

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.timeline import MomentKind
from skillopt_airflow.pipeline.tasks.dag_ids import prefixed
from skillopt_airflow.pipeline.tasks.rollout_chunk import Preflight, RolloutChunk, Speculation
from skillopt_airflow.pipeline.tasks.task_errors import failure_callback, store_error
from skillopt_airflow.sandbox.docker.limits import repository_seconds, task_seconds
from skillopt_airflow.sandbox.kubernetes.pod import START_SECONDS

TASK_DEFAULTS: Mapping[str, Any] = {
    "owner": "skillopt",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(minutes=30),
    "on_failure_callback": store_error,
}

BATCH_LIMIT = timedelta(days=1, hours=1)
"""A provider's batch job takes up to a day."""
MAX_SECONDS = 1e9
"""About 30 years; caps task timeouts, which would overflow for very large chunks."""


@contextmanager
def dag_of(
    dag_id: str, doc: str, benchmark: str, config: TrainConfig, form: Mapping[str, Param] | None = None, **kwargs: Any
) -> Iterator[DAG]:
    """Open a DAG without a schedule by default, with alerts on failure if configured.

    It starts unpaused in any case, because another DAG's run may be waiting for it.
    """
    with DAG(
        dag_id,
        catchup=False,
        doc_md=doc,
        tags=["skillopt", dag_id.removeprefix(prefixed("")).partition("_")[0], benchmark],
        default_args=dict(TASK_DEFAULTS),
        render_template_as_native_obj=True,
        **(
            {"schedule": None, "is_paused_upon_creation": False, "on_failure_callback": failure_callback(config)}
            | kwargs
        ),
    ) as dag:
        yield dag
    if form is not None:
        # Set last: Airflow copies the DAG's params into each task, and checks and stores each copy. A task's
        # context has the DAG's params anyway.
        dag.params = ParamsDict(dict(form))


def rollouts(config: TrainConfig, task_id: str, run: Any, chunks: Any) -> Any:
    """Return a task mapped over chunks of items.

    Items may run one after the other in separate sandboxes, so the task's timeout covers all items of the largest
    chunk, and the time for repositories, because parsing a DAG doesn't load the benchmark.
    """
    return _chunk_task(config, task_id, run).expand(chunk=chunks)


def cell_rollouts(config: TrainConfig, task_id: str, work: Any) -> Any:
    """Return a task mapped over chunks of several runs, or over lists of chunks that are one batch job each."""
    if config.model.batch:
        return _batch_operator().partial(task_id=task_id, run=None, execution_timeout=BATCH_LIMIT).expand(chunks=work)
    # Not `expand_kwargs`: Airflow would render its strings as templates.
    return _chunk_task(config, task_id, None).expand(chunk=work)


def _chunk_task(config: TrainConfig, task_id: str, run: Any) -> Any:
    return RolloutChunk.partial(
        task_id=task_id,
        max_active_tis_per_dagrun=config.sandbox.max_containers,
        run=run,
        **_in_sandboxes(config, config.sandbox.items_per_container),
    )


def preflight(config: TrainConfig, run: Any) -> Any:
    return Preflight(task_id="preflight", run=run, chunk=None, **_in_sandboxes(config, 1))


def speculation(config: TrainConfig, run: Any, at: int | MomentKind) -> Any:
    """Return the task that rolls out the next step's batch before a moment's gate."""
    train = config.train
    batch = train.batch_size * train.accumulation * train.samples
    return Speculation(
        task_id="speculate",
        run=run,
        at=at,
        trigger_rule="none_failed",
        **_in_sandboxes(config, max(config.sandbox.items_per_container, batch)),
    )


def _in_sandboxes(config: TrainConfig, items: int) -> dict[str, Any]:
    """Return the arguments of a task that runs this number of items in sandboxes."""
    limits = config.sandbox
    if limits.engine == "kubernetes":
        seconds = task_seconds(limits, items, START_SECONDS)
    else:
        seconds = task_seconds(limits, items) + items * repository_seconds(limits)
    return {
        "execution_timeout": timedelta(seconds=min(seconds, MAX_SECONDS)),
        "pool": config.sandbox.pool,
        **engine_queue(config),
    }


def engine_queue(config: TrainConfig) -> dict[str, str]:
    """Return the queue argument of a task that needs an engine; empty for the executor's default queue."""
    return {} if config.sandbox.queue is None else {"queue": config.sandbox.queue}


def evaluations(config: TrainConfig, task_id: str, run: Any, chunks: Any) -> Any:
    """Return an evaluation's tasks; with model.batch, one batch job for all chunks."""
    if not config.model.batch:
        return rollouts(config, task_id, run, chunks)
    return _batch_operator()(task_id=task_id, run=run, chunks=chunks, execution_timeout=BATCH_LIMIT)


def _batch_operator() -> Any:
    # Imported here because it loads the slow common-ai provider.
    from skillopt_airflow.pipeline.tasks.batch_rollouts import BatchRollouts

    return BatchRollouts
