"""Parts that all DAGs of this project share: their defaults, and a mapped task that runs sandboxes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from airflow.sdk import DAG, Param
from airflow.sdk.definitions.param import ParamsDict

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.pool_slots import MOST_AT_ONCE, calls_of_optimizer, calls_of_rollouts
from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.pipeline.alerts import on_failure
from skillopt_airflow.pipeline.dag_ids import prefixed
from skillopt_airflow.pipeline.preflight_task import Preflight
from skillopt_airflow.pipeline.rollout_chunk import RolloutChunk
from skillopt_airflow.pipeline.speculation_task import Speculation
from skillopt_airflow.pipeline.task_errors import keep_error
from skillopt_airflow.sandbox.docker_limits import repository_seconds, task_seconds

TASK_DEFAULTS: Mapping[str, Any] = {
    "owner": "skillopt",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(minutes=30),
    "on_failure_callback": keep_error,
}

LONGEST_SECONDS = 1e9
"""Three decades: a time limit of many items has an end, and those of one item have none."""


@contextmanager
def dag_of(
    dag_id: str, doc: str, benchmark: str, config: TrainConfig, form: Mapping[str, Param] | None = None, **kwargs: Any
) -> Iterator[DAG]:
    """Open a DAG that runs when it is triggered, unless it has a schedule, and reports failures where asked to.

    It is not paused at first, whatever Airflow's default is: a run of another DAG may be waiting for its run.
    """
    with DAG(
        dag_id,
        catchup=False,
        doc_md=doc,
        tags=["skillopt", dag_id.removeprefix(prefixed("")).partition("_")[0], benchmark],
        default_args=dict(TASK_DEFAULTS),
        render_template_as_native_obj=True,
        **({"schedule": None, "is_paused_upon_creation": False, "on_failure_callback": on_failure(config)} | kwargs),
    ) as dag:
        yield dag
    if form is not None:
        # Airflow gives each task a copy of the params that its DAG has by then, and checks and stores every copy; a
        # task's context has those of the DAG anyway.
        dag.params = ParamsDict(dict(form))


def rollouts(config: TrainConfig, task_id: str, run: Any, chunks: Any) -> Any:
    """Return a task mapped over chunks of items.

    A run may choose a harness whose items have a sandbox each, and its engine may have room for one at a time. The task
    outlasts all of them, of as many items as the benchmark allows a chunk: their own limit ends those that hang,
    and their items get typed rows. Whether items bring repositories is not looked up while a DAG is parsed.
    """
    return _chunk_task(config, task_id, run).expand(chunk=chunks)


def cell_rollouts(config: TrainConfig, task_id: str, work: Any) -> Any:
    """Return a task mapped over the chunks of several runs, or over lists of them that are a batch job each."""
    if config.model.batch:
        return _batch_operator().partial(task_id=task_id, run=None, **_of_batch(config)).expand(chunks=work)
    # Not by `expand_kwargs`: Airflow renders the strings of what that maps over as templates.
    return _chunk_task(config, task_id, None).expand(chunk=work)


def _chunk_task(config: TrainConfig, task_id: str, run: Any) -> Any:
    return _engine(config).chunk.partial(
        task_id=task_id,
        calls=calls_of_rollouts(config),
        max_active_tis_per_dagrun=config.sandbox.max_containers,
        run=run,
        **_in_sandboxes(config, config.sandbox.items_per_container),
    )


def preflight(config: TrainConfig, run: Any) -> Any:
    """Return the task that tries what a run will use."""
    return _engine(config).preflight(task_id="preflight", run=run, chunk=None, **_in_sandboxes(config, 1, MOST_AT_ONCE))


def speculation(config: TrainConfig, run: Any, at: int | MomentKind) -> Any:
    """Return the task that rolls out the batch behind a moment before the moment's candidate is judged."""
    train = config.train
    batch = train.batch_size * train.accumulation * train.rollouts_per_item
    return _engine(config).speculation(
        task_id="speculate",
        run=run,
        at=at,
        calls=calls_of_rollouts(config),
        trigger_rule="none_failed",
        **_in_sandboxes(config, max(config.sandbox.items_per_container, batch)),
    )


def _in_sandboxes(config: TrainConfig, items: int, most_calls: int | None = None) -> dict[str, Any]:
    """Return the arguments of a task that runs so many items in sandboxes, and takes no more slots than so many."""
    engine = _engine(config)
    seconds = task_seconds(config.sandbox, items, engine.start_seconds) + items * engine.repository_seconds
    return {
        "image": config.image,
        "execution_timeout": timedelta(seconds=min(seconds, LONGEST_SECONDS)),
        **in_pool(config.sandbox.pool, calls_of_rollouts(config), most_calls),
        **engine_queue(config),
    }


def in_pool(pool: str, calls: int | None, most: int | None = None) -> dict[str, Any]:
    """Return the arguments of a task in a pool.

    Args:
        pool: its name.
        calls: slots that the task takes, if they are model calls in flight; None if a task takes one.
        most: no more of them than this.
    """
    if calls is None:
        return {"pool": pool}
    return {"pool": pool, "pool_slots": calls if most is None else min(calls, most)}


def asks_optimizer(config: TrainConfig, most: int | None = None) -> dict[str, Any]:
    """Return the arguments of a task that asks the optimizer, so many calls at the same time if there is a limit."""
    return in_pool(config.model.optimizer_pool, calls_of_optimizer(config, most))


def engine_queue(config: TrainConfig) -> dict[str, str]:
    """Return the argument of a task that needs an engine; without one, Airflow takes the executor's default queue."""
    return {} if config.sandbox.queue is None else {"queue": config.sandbox.queue}


def evaluations(config: TrainConfig, task_id: str, run: Any, chunks: Any) -> Any:
    """Return the tasks of an evaluation: one batch job for all chunks where the configuration says so."""
    if not config.model.batch:
        return rollouts(config, task_id, run, chunks)
    return _batch_operator()(task_id=task_id, run=run, chunks=chunks, **_of_batch(config))


def _batch_operator() -> Any:
    # It imports Airflow's provider of models, which takes long; only those who use it should wait.
    from skillopt_airflow.pipeline.batch_rollouts import BatchRollouts

    return BatchRollouts


def _of_batch(config: TrainConfig) -> dict[str, Any]:
    """Return the arguments of a batch job's task."""
    calls = calls_of_rollouts(config)
    # Only a judge's calls are in flight then, and none while the task waits for the job.
    pool = {} if calls is None else in_pool(config.sandbox.pool, calls)
    return {"calls": calls, "execution_timeout": timedelta(days=1, hours=1), **pool}


class Engine(NamedTuple):
    """The operators of an engine."""

    chunk: Any
    preflight: Any
    speculation: Any
    start_seconds: int
    """Time until a sandbox may run."""
    repository_seconds: int
    """Time that an item with a repository may take besides; 0 where there are none."""


def _engine(config: TrainConfig) -> Engine:
    if config.sandbox.engine == "kubernetes":
        # It imports Kubernetes' client, for which nobody else is to wait.
        from skillopt_airflow.pipeline.pods import PodChunk, PodPreflight, PodSpeculation
        from skillopt_airflow.sandbox.pod import START_SECONDS

        return Engine(PodChunk, PodPreflight, PodSpeculation, START_SECONDS, 0)
    return Engine(RolloutChunk, Preflight, Speculation, 0, repository_seconds(config.sandbox))
