"""What all DAGs of this project share: their defaults, and a mapped task that runs sandboxes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from include.core.config import TrainConfig
from include.pipeline.evaluation import RolloutChunk

TASK_DEFAULTS: Mapping[str, Any] = {
    "owner": "skillopt",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(minutes=30),
}


def dag_of(dag_id: str, doc: str, benchmark: str, **kwargs: Any) -> DAG:
    """A DAG that runs when it is triggered."""
    return DAG(
        dag_id,
        schedule=None,
        catchup=False,
        doc_md=doc,
        tags=["skillopt", dag_id.partition("_")[0], benchmark],
        default_args=dict(TASK_DEFAULTS),
        render_template_as_native_obj=True,
        **kwargs,
    )


def rollouts(config: TrainConfig, task_id: str, run: Any, chunks: Any) -> Any:
    """One sandbox a chunk of items."""
    sandbox = config.sandbox
    return RolloutChunk.partial(
        task_id=task_id,
        run=run,
        pool=sandbox.pool,
        max_active_tis_per_dagrun=sandbox.max_containers,
        execution_timeout=timedelta(seconds=2 * sandbox.timeout),
    ).expand(chunk=chunks)
