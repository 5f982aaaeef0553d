"""The Python tasks of a training: open the run, carry out one stage, return a small reference."""

from collections.abc import Sequence
from datetime import timedelta

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from skillopt_airflow.core.run.timeline import EPOCH_ENDS, Moment, MomentKind
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.pipeline.tasks.epochs import check_training
from skillopt_airflow.pipeline.tasks.task_errors import wrong_input_fails
from skillopt_airflow.training.run.run import TrainingRun

PREPARING = timedelta(hours=6)
"""For a task that prepares a run: a large set of images that items name takes hours to pull."""


@task(execution_timeout=PREPARING)
def prepare(benchmark: str) -> list[JsonObject]:
    """Settle the configuration, check everything that can be checked before the first model call, store the items.

    Pushes the run's reference as XCom `run`, and returns the chunks of the selection split for the seed.
    """
    from skillopt_airflow.pipeline.tasks.triggered import checked_form, chosen_preset, new_run, of_decline
    from skillopt_airflow.store.keys import run_name
    from skillopt_airflow.training.prepare.preparation import prepare_training

    context = get_current_context()
    with wrong_input_fails():
        form = of_decline(context["dag_run"], checked_form(context))
        run, config = new_run(benchmark, run_name(context["dag_run"].run_id), form)
        preset = chosen_preset(benchmark, form)
        chunks = prepare_training(run, config, None if preset is None else preset.scores)
    context["ti"].xcom_push("run", run.ref.model_dump())
    return chunks


@task
def plan_seed_test(run: JsonObject) -> list[JsonObject]:
    """Return the chunks of the test split for the seed, which need not wait for the training."""
    from skillopt_airflow.training.step.seed_and_final import seed_test_plan

    return seed_test_plan(open_run(run))


@task
def start(run: JsonObject) -> None:
    """Turn the seed's evaluation into the state that the first step starts from."""
    from skillopt_airflow.training.step.seed_and_final import start

    opened = open_run(run)
    with wrong_input_fails():
        start(opened)


@task
def plan(run: JsonObject) -> list[JsonObject]:
    """Return the chunks of the DAG run's first batch; without one, the steps are skipped."""
    return _batch_or_end(open_run(run), 1)


@task
def leave_out(run: JsonObject, room: int) -> None:
    """Skip what the graph has and the part has not, before it would begin: steps, and batches that are never ahead.

    Waiting, they cost the scheduler about 1 ms each in each of its loops, and a task that skips itself costs a process.
    """
    from skillopt_airflow.training.step.steps import batches_ahead

    opened = open_run(run)
    ahead = [moment for moment, _ in batches_ahead(opened.timeline, opened.config)]
    steps = [(f"step_{position:02d}", opened.step(position)) for position in range(1, room + 1)]
    ends = [(end.kind, end) for end in opened.epoch_ends()]
    left_out = [f"{group}." for group, step in steps if step is None]
    left_out += [f"{group}.speculate" for group, moment in (*steps, *ends) if moment not in ahead]
    _skip(sorted(name for name in get_current_context()["dag"].task_ids if name.startswith(tuple(left_out))))


@task(execution_timeout=timedelta(hours=1), trigger_rule="none_failed")
def update(run: JsonObject, at: int) -> list[JsonObject]:
    """Reflect, merge the patches, keep the edits within the learning rate and apply them; each stage keeps its result.

    Returns the chunks to evaluate the candidate on, none if it equals the skill.
    """
    from skillopt_airflow.training.step.steps import update

    return update(*moment_at(run, at))


@task(trigger_rule="none_failed_min_one_success")
def gate(run: JsonObject, at: int | MomentKind) -> list[JsonObject]:
    """Accept the candidate if the policy lets it pass; the state, written last, commits it.

    After a step, returns the chunks of the DAG run's next batch; without one, the steps behind are skipped.
    """
    from skillopt_airflow.training.step.candidate import gate

    opened, moment = moment_at(run, at)
    if opened.committed(moment):
        # Another outcome than before takes back what followed from it, and only the training can do that again.
        check_training(opened.ref.benchmark)
    state = gate(opened, moment)
    if state.stopped:
        _skip_to([])
    if isinstance(at, int):
        return _batch_or_end(opened, at + 1)
    _skip_to([end for end in opened.epoch_ends() if end.kind != at])
    return []


@task(trigger_rule="none_failed")
def longitudinal(run: JsonObject) -> list[JsonObject]:
    """Return the sampled training items under the last skills of two epochs, as chunks."""
    from skillopt_airflow.training.step.epoch_end import longitudinal

    opened, moment = moment_at(run, "slow_update")
    check_training(opened.ref.benchmark)
    return longitudinal(opened, moment)


@task(trigger_rule="none_failed")
def slow_update(run: JsonObject) -> list[JsonObject]:
    """Write guidance for the skill and memory for the optimizer, from the comparison of two epochs."""
    from skillopt_airflow.training.step.epoch_end import slow_update

    return slow_update(*moment_at(run, "slow_update"))


@task(trigger_rule="none_failed")
def meta_reflect(run: JsonObject) -> list[JsonObject]:
    """Propose edits from what the epoch accepted and rejected."""
    from skillopt_airflow.training.step.epoch_end import meta_reflect

    opened, moment = moment_at(run, "meta_reflect")
    check_training(opened.ref.benchmark)
    return meta_reflect(opened, moment)


@task(trigger_rule="none_failed")
def measure_last(run: JsonObject) -> list[JsonObject]:
    """Return the chunks of the last skill, if it was never measured well enough to compete."""
    from skillopt_airflow.training.step.seed_and_final import last_plan

    return last_plan(open_run(run))


@task(trigger_rule="none_failed")
def finish(run: JsonObject) -> list[JsonObject]:
    """Let the last skill compete with the best one; return what is tested, as chunks."""
    from skillopt_airflow.training.step.seed_and_final import finish

    return finish(open_run(run))


@task(trigger_rule="none_failed")
def report(run: JsonObject) -> JsonObject:
    """Write history.json and report.html."""
    from skillopt_airflow.training.report.reporting import write_report

    opened = open_run(run)
    write_report(opened)
    return {"history": opened.store.address(opened.keys.history), "report": opened.store.address(opened.keys.report)}


def moment_at(ref: JsonObject, at: int | MomentKind) -> tuple[TrainingRun, Moment]:
    """Return the step at this position of the DAG run, or the epoch's end of this kind; skipped if there is none."""
    run = open_run(ref)
    moment = run.step(at) if isinstance(at, int) else run.epoch_end(at)
    if moment is None:
        raise AirflowSkipException(f"epoch {run.ref.epoch} of this run has nothing at {at}")
    return run, moment


def _batch_or_end(run: TrainingRun, position: int) -> list[JsonObject]:
    """Return the chunks of the step at this position; if there is none, skip everything up to the epoch's end."""
    from skillopt_airflow.training.step.steps import rollout

    moment = run.step(position)
    if moment is None:
        _skip_to(run.epoch_ends())
        return []
    check_training(run.ref.benchmark)
    return rollout(run, moment)


def _skip_to(ends: Sequence[Moment]) -> None:
    """Skip at once what lies between this task and the first of the epoch's ends, or all if none is left.

    By the trigger rules, that would take a scheduler loop for each task. What lies behind a task that is to run is left
    to them: skipped already, it would hide that task's failure, since it is by its last tasks that a DAG run is judged.
    """
    kept = tuple(f"{kind}." for kind in EPOCH_ENDS[EPOCH_ENDS.index(ends[0].kind) :]) if ends else ()
    later = get_current_context()["task"].get_flat_relative_ids(upstream=False)
    _skip(sorted(name for name in later if not name.startswith(kept)))


def _skip(names: Sequence[str]) -> None:
    """Skip tasks at once, also those that were mapped in an earlier attempt: a name is that of a task without an index.

    Without what they are mapped over they would begin all the same, and fail.
    """
    if not names:
        return
    context = get_current_context()
    run_id = context["run_id"]
    states = context["ti"].get_task_states(context["dag"].dag_id, run_ids=[run_id]).get(run_id, {})
    # Airflow names an instance with `_<index>`.
    instances = (state.rpartition("_") for state in states)
    mapped = [(name, int(index)) for name, _, index in instances if index.isdecimal() and name in names]
    raise DownstreamTasksSkipped(tasks=[*names, *mapped])  # type: ignore[no-untyped-call]
