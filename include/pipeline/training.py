"""The training as Airflow runs it: SkillOpt's loop (arXiv 2605.23904, section 3), one task a stage.

`train_<benchmark>` is the run, `train_<benchmark>_epoch` an epoch of it.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, TaskGroup, chain

from include.core.config import TrainConfig
from include.optimizer.reflect import most_minibatches
from include.pipeline import params, tasks
from include.pipeline.addresses import ReportLink, epoch_dag_id, train_dag_id
from include.pipeline.epochs import epoch_runs, steps_in_part
from include.pipeline.evaluation import RolloutChunk, Stage

TASK_DEFAULTS: Mapping[str, Any] = {
    "owner": "skillopt",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
    "execution_timeout": timedelta(minutes=30),
}

THIS_RUN: Any = "{{ dag_run.conf }}"
"""Inside an epoch's DAG, what it was triggered with is the reference of the run."""

TRAIN_DOC = """
Trains a skill for **{benchmark}**: rollout, reflect, aggregate, select, update, evaluate and gate, step by step.

Trigger it with the form, or with `conf={{"overrides": {{"optimizer.learning_rate": 2}}}}` for any key. The run's
documents are in `s3://{bucket}/{prefix}runs/{benchmark}/`, the published skill in `s3://{artifacts}/{prefix}skills/`.
A failed or cleared task re-does only what was not stored.
"""

EPOCH_DOC = """
One epoch of a run of `train_{benchmark}`, which triggers it; not meant to be triggered by hand.
"""


def train_dag(benchmark: str, config: TrainConfig) -> DAG:
    """A run: measure the seed, go through the epochs, test the best skill, publish it."""
    storage = config.storage
    doc = TRAIN_DOC.format(
        benchmark=benchmark, bucket=storage.bucket, artifacts=storage.artifact_bucket, prefix=storage.prefix
    )
    with _dag(train_dag_id(benchmark), doc, benchmark, params=params.form(config)) as dag:
        prepared: Any = tasks.prepare(benchmark)
        run = prepared["run"]
        seed = rollouts(config, "evaluate_seed", "seed", run, chunks=prepared)
        epochs = epoch_runs(benchmark, config.train, run)
        chosen = tasks.finish(run)
        test = rollouts(config, "test", "test", run, chunks=chosen)
        report: Any = tasks.report(run)
        report.operator.operator_extra_links = (ReportLink(benchmark),)
        chain(seed, tasks.start(run), *epochs, chosen, test, report, tasks.publish(run))
    return dag


def epoch_dag(benchmark: str, config: TrainConfig) -> DAG:
    """An epoch, or a part of a long one; steps that have no batch are skipped."""
    with _dag(epoch_dag_id(benchmark), EPOCH_DOC.format(benchmark=benchmark), benchmark) as dag:
        batch = tasks.plan(THIS_RUN)
        for position in range(1, steps_in_part(config.train) + 1):
            batch = training_step(batch, position, config)
    return dag


def training_step(batch: Any, position: int, config: TrainConfig) -> Any:
    """Step t: forward, backward, update, and the gate that decides what stays; returns the next step's batch."""
    step: Mapping[str, Any] = {"run": THIS_RUN, "position": position}
    gradient = config.gradient
    most = most_minibatches(config.train.batch_size, gradient.minibatch_size)
    parts = math.ceil(most / gradient.minibatches_per_task)
    with TaskGroup(f"step_{position:02d}"):
        rollout = rollouts(config, "rollout", "rollout", THIS_RUN, batch, position)
        reflect = tasks.reflect.partial(**step, parts=parts).expand(part=list(range(parts)))
        aggregate = tasks.aggregate(**step)
        select = tasks.select(**step)
        update = tasks.update(**step)
        evaluate = rollouts(config, "evaluate", "evaluate", THIS_RUN, update, position)
        gate = tasks.gate(**step)
        chain(rollout, reflect, aggregate, select, update, evaluate, gate)
        # Equal to the present skill, a candidate is not evaluated; the gate still has to say so.
        chain(update, gate)
    return gate


def rollouts(config: TrainConfig, task_id: str, stage: Stage, run: Any, chunks: Any, position: int = 0) -> Any:
    """One sandbox a chunk of items."""
    sandbox = config.sandbox
    return RolloutChunk.partial(
        task_id=task_id,
        stage=stage,
        run=run,
        position=position,
        pool=sandbox.pool,
        max_active_tis_per_dagrun=sandbox.max_containers,
        execution_timeout=timedelta(seconds=2 * sandbox.timeout),
    ).expand(chunk=chunks)


def _dag(dag_id: str, doc: str, benchmark: str, **kwargs: Any) -> DAG:
    return DAG(
        dag_id,
        schedule=None,
        catchup=False,
        doc_md=doc,
        tags=["skillopt", "train", benchmark],
        default_args=dict(TASK_DEFAULTS),
        render_template_as_native_obj=True,
        **kwargs,
    )
