"""The Python tasks of a training: open the run, call one stage, return a small reference."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from airflow.sdk import Variable, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from skillopt_airflow.core.run.timeline import EPOCH_ENDS, Moment, MomentKind
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.pipeline.tasks.epochs import check_training
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.run.run import TrainingRun

log = logging.getLogger(__name__)

PREPARING = timedelta(hours=6)
"""Timeout of a task that prepares a run; pulling a large set of images takes hours."""


@task(execution_timeout=PREPARING)
def prepare(benchmark: str) -> list[JsonObject]:
    """Save the configuration and the items, after all checks that need no model call.

    Pushes the run's reference as XCom `run`, and returns the seed's chunks on the selection split.
    """
    from skillopt_airflow.pipeline.tasks.triggered import after_decline, checked_form, chosen_preset, new_run
    from skillopt_airflow.training.prepare.preparation import prepare_training
    from skillopt_airflow.training.rollouts.workload import ACCEPT_PROGRAM

    context = get_current_context()
    with fail_on_wrong_input():
        form = after_decline(context["dag_run"], checked_form(context))
        run, config = new_run(benchmark, run_name(context["dag_run"].run_id), form)
        preset = chosen_preset(benchmark, form)
        accepted = Variable.get(ACCEPT_PROGRAM, default="").split()
        scores = None if preset is None else preset.scores
        chunks = prepare_training(run, config, scores, accepts_program=run.ref.run in accepted)
    context["ti"].xcom_push("run", run.ref.model_dump())
    return chunks


@task
def plan_seed_test(run: JsonObject) -> list[JsonObject]:
    """Return the seed's chunks on the test split, which run in parallel to the training."""
    from skillopt_airflow.training.step.seed_and_final import seed_test_plan

    return seed_test_plan(open_run(run))


@task
def start(run: JsonObject) -> None:
    """Turn the seed's evaluation into the first step's state."""
    from skillopt_airflow.training.step.seed_and_final import start

    opened = open_run(run)
    with fail_on_wrong_input():
        start(opened)


@task
def plan(run: JsonObject) -> list[JsonObject]:
    """Return the chunks of the DAG run's first batch; without one, skip the steps."""
    return _batch_or_end(open_run(run), 1)


@task
def skip_unused_steps(run: JsonObject, room: int) -> None:
    """Skip steps and batches ahead of the graph that the part lacks, before they would begin.

    A waiting task costs the scheduler about 1 ms per loop, and a task that skips itself costs a process.
    """
    from skillopt_airflow.training.step.steps import batches_ahead

    opened = open_run(run)
    ahead = [moment for moment, _ in batches_ahead(opened.timeline, opened.config)]
    steps = [(f"step_{position:02d}", opened.step(position)) for position in range(1, room + 1)]
    if (first := opened.step(1)) is not None and first.step > 1:
        log.info("step_01 of this DAG run is step %d of the training", first.step)
    ends = [(end.kind, end) for end in opened.epoch_ends()]
    left_out = [f"{group}." for group, step in steps if step is None]
    left_out += [f"{group}.speculate" for group, moment in (*steps, *ends) if moment not in ahead]
    _skip(sorted(name for name in get_current_context()["dag"].task_ids if name.startswith(tuple(left_out))))


@task(execution_timeout=timedelta(hours=1), trigger_rule="none_failed")
def update(run: JsonObject, at: int) -> list[JsonObject]:
    """Reflect, merge the patches, select edits within the learning rate, and apply them.

    Returns the chunks of the candidate's evaluation, none if it equals the skill.
    """
    from skillopt_airflow.training.step.steps import update

    return update(*moment_at(run, at))


@task(trigger_rule="none_failed_min_one_success")
def gate(run: JsonObject, at: int | MomentKind) -> list[JsonObject]:
    """Decide on the candidate; the state, written last, commits the decision.

    After a step, returns the chunks of the DAG run's next batch; without one, skips the later steps.
    """
    from skillopt_airflow.training.step.candidate import gate

    opened, moment = moment_at(run, at)
    if opened.committed(moment):
        # A different outcome undoes later results, which only the training can repeat.
        check_training(opened.ref.benchmark)
    state = gate(opened, moment)
    if state.stopped:
        _skip_to([])
    if isinstance(at, int):
        return _batch_or_end(opened, at + 1)
    _skip_to([end for end in opened.epoch_ends() if end.kind != at])
    return []


@task(trigger_rule="none_failed")
def compare_epochs(run: JsonObject) -> list[JsonObject]:
    """Return the chunks of the sampled training items under the last skills of two epochs."""
    from skillopt_airflow.training.step.epoch_end import compare_epochs

    return compare_epochs(*moment_at(run, "slow_update", begins=True))


@task(trigger_rule="none_failed")
def slow_update(run: JsonObject) -> list[JsonObject]:
    """Write guidance for the skill and memory for the optimizer, from comparing two epochs."""
    from skillopt_airflow.training.step.epoch_end import slow_update

    return slow_update(*moment_at(run, "slow_update"))


@task(trigger_rule="none_failed")
def meta_reflect(run: JsonObject) -> list[JsonObject]:
    """Propose edits from the epoch's accepted and rejected edits."""
    from skillopt_airflow.training.step.epoch_end import meta_reflect

    return meta_reflect(*moment_at(run, "meta_reflect", begins=True))


@task(trigger_rule="none_failed")
def measure_last(run: JsonObject) -> list[JsonObject]:
    """Return the last skill's chunks, if its coverage is too low to compete."""
    from skillopt_airflow.training.step.seed_and_final import last_plan

    return last_plan(open_run(run))


@task(trigger_rule="none_failed")
def finish(run: JsonObject) -> list[JsonObject]:
    """Compare the last skill with the best one; return the test's chunks."""
    from skillopt_airflow.training.step.seed_and_final import finish

    return finish(open_run(run))


@task(trigger_rule="none_failed")
def report(run: JsonObject) -> JsonObject:
    from skillopt_airflow.training.report.reporting import write_report

    opened = open_run(run)
    write_report(opened)
    return {"history": opened.store.address(opened.keys.history), "report": opened.store.address(opened.keys.report)}


def moment_at(ref: JsonObject, at: int | MomentKind, *, begins: bool = False) -> tuple[TrainingRun, Moment]:
    """Return the step at this position of the DAG run, or the epoch's end of this kind; skip if there is none.

    If the task `begins` new work, its training must still run.
    """
    run = open_run(ref)
    moment = run.step(at) if isinstance(at, int) else run.epoch_end(at)
    if moment is None:
        raise AirflowSkipException(f"epoch {run.ref.epoch} of this run has nothing at {at}")
    if begins:
        check_training(run.ref.benchmark)
    return run, moment


def _batch_or_end(run: TrainingRun, position: int) -> list[JsonObject]:
    """Return the chunks of the step at this position; without a step, skip to the epoch's end."""
    from skillopt_airflow.training.step.steps import rollout

    moment = run.step(position)
    if moment is None:
        _skip_to(run.epoch_ends())
        return []
    check_training(run.ref.benchmark)
    return rollout(run, moment)


def _skip_to(ends: Sequence[Moment]) -> None:
    """Skip all tasks before the first of these epoch's ends, or all later tasks if there is none.

    The trigger rules would take one scheduler loop per task. Tasks after the first task to run are left to those rules:
    the last tasks decide a DAG run's state, so skipping them would hide a failure.
    """
    kept = tuple(f"{kind}." for kind in EPOCH_ENDS[EPOCH_ENDS.index(ends[0].kind) :]) if ends else ()
    later = get_current_context()["task"].get_flat_relative_ids(upstream=False)
    _skip(sorted(name for name in later if not name.startswith(kept)))


def _skip(names: Sequence[str]) -> None:
    """Skip tasks at once, including instances mapped in an earlier attempt.

    Those instances would otherwise begin without input, and fail.
    """
    if not names:
        return
    context = get_current_context()
    run_id = context["run_id"]
    states = context["ti"].get_task_states(context["dag"].dag_id, run_ids=[run_id]).get(run_id, {})
    # Airflow names mapped instances with `_<index>`.
    instances = (state.rpartition("_") for state in states)
    mapped = [(name, int(index)) for name, _, index in instances if index.isdecimal() and name in names]
    raise DownstreamTasksSkipped(tasks=[*names, *mapped])  # type: ignore[no-untyped-call]
