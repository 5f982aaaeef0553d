"""The training as DAGs: SkillOpt's loop (arXiv 2605.23904, section 3), one task per stage.

`train_<benchmark>` is the run, `train_<benchmark>_epoch` an epoch.
"""

from functools import partial
from typing import Any

from airflow.sdk import DAG, TaskGroup, chain

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.timeline import MomentKind
from skillopt_airflow.pipeline.graph import dag_of, engine_queue, evaluations, preflight, rollouts, speculation
from skillopt_airflow.pipeline.night_dag import decline_asset
from skillopt_airflow.pipeline.publishing import publication
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.tasks import stages as tasks
from skillopt_airflow.pipeline.tasks.addresses import ReportLink
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.epochs import epoch_runs, run_of_part, steps_in_part
from skillopt_airflow.training.prepare.benchmark_settings import preset_names

THIS_RUN: Any = "{{ this_run(run_id, dag_run.conf) }}"
"""The run's reference in an epoch's DAG: its last conf."""

TRAIN_DOC = """
Trains a skill for **{benchmark}**: rollout, reflect, update, evaluate and gate, step by step.

Trigger it with the form, or with `conf={{"overrides": {{"optimizer.learning_rate": 2}}}}` for any key. The run's
documents are in `s3://{bucket}/{prefix}runs/{benchmark}/`, the published skill in `s3://{artifacts}/{prefix}skills/`.
A failed or cleared task repeats only work that was not stored.

To stop a training, mark its run failed. Pausing this DAG doesn't stop the current part of an epoch; also pause
`{epochs}`. Trainings that reach an epoch meanwhile fail; clear their task `epoch_NN` to resume.
"""

EPOCH_DOC = """
An epoch of a run of `{trained}`. The run triggers it; don't trigger it yourself.
It starts no further step after the training failed or was marked failed.
"""


def train_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build a run: preflight, the seed's score, the epochs, the last skill against the best, test, publish."""
    storage = config.storage
    doc = TRAIN_DOC.format(
        benchmark=benchmark,
        bucket=storage.bucket,
        artifacts=storage.artifact_bucket,
        prefix=storage.prefix,
        epochs=epoch_dag_id(benchmark),
    )
    declines = [decline_asset(benchmark)] if config.regate.train_on_decline else None
    form = params.form(config, preset_names(benchmark))
    with dag_of(train_dag_id(benchmark), doc, benchmark, config, form=form, schedule=declines) as dag:
        prepared: Any = tasks.prepare.override(**engine_queue(config))(benchmark)
        run = prepared["run"]
        tried = preflight(config, run)
        seed = evaluations(config, "score_seed", run, prepared)
        seed_test: Any = tasks.plan_seed_test(run)
        test_seed = evaluations(config, "test_seed", run, seed_test)
        epochs = epoch_runs(benchmark, config.train, run)
        last = tasks.measure_last(run)
        evaluate_last = evaluations(config, "evaluate_last", run, last)
        finish = tasks.finish(run)
        test = evaluations(config, "test", run, finish)
        report: Any = tasks.report(run)
        report.operator.operator_extra_links = (ReportLink(),)
        chain(tried, seed, tasks.start(run), *epochs, last, evaluate_last, finish, test, report)
        chain(report, publication(benchmark, config, run))
        chain(tried, seed_test)
        chain(test_seed, report)
    return dag


def epoch_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build an epoch, or a part of a long one; missing steps and a later epoch's end are skipped.

    The training waits for it, retries it, and reports a final failure.
    """
    doc = EPOCH_DOC.format(trained=train_dag_id(benchmark))
    macros = {"this_run": partial(run_of_part, benchmark)}
    with dag_of(
        epoch_dag_id(benchmark), doc, benchmark, config, on_failure_callback=None, user_defined_macros=macros
    ) as dag:
        room = steps_in_part(config.train)
        tasks.skip_unused_steps(THIS_RUN, room)
        batch, gates = tasks.plan(THIS_RUN), []
        for position in range(1, room + 1):
            batch = training_step(batch, position, config)
            gates.append(batch)
        epoch_end(gates, config)
    return dag


def training_step(batch: Any, position: int, config: TrainConfig) -> Any:
    """Build step t: forward, backward, update and gate; return the next step's batch."""
    with TaskGroup(f"step_{position:02d}"):
        rollout = rollouts(config, "rollout", THIS_RUN, batch)
        update = tasks.update.override(pool=config.sandbox.pool)(THIS_RUN, position)
        gate = evaluate_and_gate(update, position, config)
        chain(rollout, update)
        # Uses the target while the optimizer works.
        chain(rollout, speculation(config, THIS_RUN, position), gate)
        return gate


def epoch_end(steps: list[Any], config: TrainConfig) -> None:
    """Build an epoch's end: guidance from comparing two epochs, then edits from the whole epoch.

    It follows all steps, because missing ones are skipped before the others begin.
    """
    with TaskGroup("slow_update"):
        compare_epochs: Any = tasks.compare_epochs(THIS_RUN)
        slow_update = tasks.slow_update.override(pool=config.sandbox.pool)(THIS_RUN)
        chain(steps, compare_epochs, rollouts(config, "rollout", THIS_RUN, compare_epochs), slow_update)
        guided = evaluate_and_gate(slow_update, "slow_update", config)
        chain(steps, speculation(config, THIS_RUN, "slow_update"), guided)
    with TaskGroup("meta_reflect"):
        meta_reflect = tasks.meta_reflect.override(pool=config.sandbox.pool)(THIS_RUN)
        reflected = evaluate_and_gate(meta_reflect, "meta_reflect", config)
        chain(guided, speculation(config, THIS_RUN, "meta_reflect"), reflected)
    chain(guided, meta_reflect)


def evaluate_and_gate(candidate: Any, at: int | MomentKind, config: TrainConfig) -> Any:
    """Measure a candidate on the selection split and let the gate decide."""
    evaluate = evaluations(config, "evaluate", THIS_RUN, candidate)
    gate = tasks.gate(THIS_RUN, at)
    # A candidate that equals the current skill isn't evaluated, but still needs a verdict.
    chain(evaluate, gate)
    chain(candidate, gate)
    return gate
