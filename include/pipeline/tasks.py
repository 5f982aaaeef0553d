"""The Python tasks of a training: load references, call one function, store, return a small reference."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from include.core.errors import Conflict, SkillOptError
from include.core.types import JsonObject, ModelCall, Patch, Split
from include.pipeline import timing
from include.pipeline.evaluation import chunks
from include.pipeline.run import TrainingRun
from include.sandbox.workload import union_seconds

if TYPE_CHECKING:
    from include.core.ports import Optimizer
    from include.optimizer.reflect import Minibatch

log = logging.getLogger(__name__)


@task
def prepare(benchmark: str) -> list[JsonObject]:
    """Settle the configuration, check everything that can be checked before the first model call, store the items.

    Pushes the run's reference as XCom `run`, and returns the chunks of the selection split for the seed.
    """
    from include.pipeline.preparation import prepare_run

    context = get_current_context()
    conf = context["dag_run"].conf
    try:
        run = prepare_run(benchmark, context["dag_run"].run_id, context["params"], {} if conf is None else conf)
    except SkillOptError as error:
        # Trying again would meet the same input, and the sentence says it all without the stack below it.
        raise AirflowFailException(str(error)) from None
    context["ti"].xcom_push("run", run.ref.model_dump())
    return _chunks(run, len(run.items(Split.VAL)))


@task
def start(run: JsonObject) -> None:
    """Turn the seed's evaluation into the state that the first step starts from."""
    from include.core.scoring import covers
    from include.core.state import Measured, RunState

    opened = TrainingRun.open(run)
    seed = opened.skill(0)
    evaluation = opened.evaluation(Split.VAL, seed)
    if not covers(evaluation, opened.config.evaluation):
        raise AirflowFailException(
            f"the seed skill has a score on {evaluation.coverage:.0%} of the selection split only, so nothing can be "
            f"compared with it; what failed: {dict(evaluation.failures)}"
        )
    measured = Measured(version=0, sha256=seed.sha256, evaluation=evaluation)
    state = RunState(step=0, current=measured, best=measured)
    log.info("seed skill: %.4f on %d items", evaluation.mean(opened.config.evaluation.gate_metric), evaluation.size)
    opened.store.put_text(opened.keys.best_skill, seed.text)
    opened.store.put_model(opened.keys.runtime_state, state)
    opened.store.put_model(opened.keys.step(0).state, state)


@task
def plan(run: JsonObject) -> list[JsonObject]:
    """The chunks of the DAG run's first batch."""
    return _batch_chunks(TrainingRun.open(run), 1)


@task
def reflect(run: JsonObject, position: int, part: int, parts: int) -> None:
    """Minibatches of the step's rollouts become patches; part p of n takes the minibatches p, p + n, ..."""
    from include.core.schedule import edit_budget
    from include.optimizer.reflect import reflect

    opened = TrainingRun.open(run)
    keys, config, step = opened.step_keys(position), opened.config, opened.step_number(position)
    with _optimizing(opened, position, "reflect", part) as optimizer:
        state = opened.state_before(position)
        skill = opened.skill(state.current.version)
        budget = edit_budget(step, opened.record.total_steps, config.optimizer)

        def work(minibatch: "Minibatch") -> None:
            patch = reflect(optimizer, skill.text, minibatch, budget, state.buffer)
            opened.store.put_model(keys.reflection(minibatch.source_type, minibatch.index), patch)
            log.info("%s: %d edits, %d patterns", minibatch.name, len(patch.edits), len(patch.failure_patterns))

        with ThreadPoolExecutor(max(1, config.gradient.analyst_workers // parts)) as pool:
            list(pool.map(work, _minibatches(opened, position)[part::parts]))


@task
def aggregate(run: JsonObject, position: int) -> None:
    """The patches of all minibatches become one."""
    from include.optimizer.aggregate import aggregate

    opened = TrainingRun.open(run)
    gradient = opened.config.gradient
    with _optimizing(opened, position, "aggregate") as optimizer:
        skill = opened.skill(opened.state_before(position).current.version)
        keys = opened.step_keys(position)
        cut = _minibatches(opened, position)
        patches = [opened.store.get_model(keys.reflection(part.source_type, part.index), Patch) for part in cut]
        merged = aggregate(optimizer, skill.text, patches, gradient.merge_batch_size, gradient.analyst_workers)
        opened.store.put_model(keys.merged_patch, merged)
        log.info("%d patches, %d edits after merging", len(patches), len(merged.edits))


@task
def select(run: JsonObject, position: int) -> None:
    """The edits within the learning rate stay."""
    from include.core.schedule import edit_budget
    from include.optimizer.select import select

    opened = TrainingRun.open(run)
    keys = opened.step_keys(position)
    with _optimizing(opened, position, "select") as optimizer:
        skill = opened.skill(opened.state_before(position).current.version)
        merged = opened.store.get_model(keys.merged_patch, Patch)
        budget = edit_budget(opened.step_number(position), opened.record.total_steps, opened.config.optimizer)
        ranked = select(optimizer, skill.text, merged, budget)
        opened.store.put_model(keys.ranked_edits, ranked)
        log.info("learning rate %d: %d of %d edits stay", budget, len(ranked.edits), len(merged.edits))


@task
def update(run: JsonObject, position: int) -> list[JsonObject]:
    """The edits make the candidate; returns the chunks to evaluate it on, none if the candidate is the skill itself."""
    from include.core.edits import apply_edits

    opened = TrainingRun.open(run)
    keys = opened.step_keys(position)
    with timing.timed(opened.store, keys, "update"):
        skill = opened.skill(opened.state_before(position).current.version)
        ranked = opened.store.get_model(keys.ranked_edits, Patch)
        candidate, report = apply_edits(skill, ranked.edits)
        opened.store.put_model(keys.edit_apply_report, report)
        opened.store.put_text(keys.candidate_skill, candidate.text)
        for row in report.rows:
            log.info("%s: %s %s %s", row.status, row.edit.op, row.edit.content[:80], row.reason)
    return [] if candidate == skill else _chunks(opened, len(opened.items(Split.VAL)))


@task(trigger_rule="none_failed_min_one_success")
def gate(run: JsonObject, position: int) -> list[JsonObject]:
    """Accept the candidate if it is strictly better; the state, written last, commits the step.

    Returns the chunks of the epoch's next batch; at its end none, and the steps behind are skipped.
    """
    from include.core.gate import decide
    from include.core.state import Measured, advance

    opened = TrainingRun.open(run)
    keys, store, number = opened.step_keys(position), opened.store, opened.step_number(position)
    with timing.timed(store, keys, "gate"):
        before, candidate = opened.state_before(position), opened.candidate(position)
        ranked = store.get_model(keys.ranked_edits, Patch)
        measured = Measured(version=number, sha256=candidate.sha256, evaluation=opened.evaluation(Split.VAL, candidate))
        decision = decide(
            measured.evaluation, before.current.evaluation, before.best.evaluation, opened.config.evaluation
        )
        state = advance(before, measured, decision, ranked.edits, ranked.failure_patterns)
        store.put_model(keys.gate, decision)
        if decision.action.accepted:
            store.put_text(opened.keys.skill(number), candidate.text)
        if state.best.version == number:
            store.put_text(opened.keys.best_skill, candidate.text)
        log.info("step %d: %s, %s", number, decision.action, decision.reason)
    store.put_model(opened.keys.runtime_state, state)
    store.put_model(keys.state, state)
    batch = _batch_chunks(opened, position + 1)
    if not batch:
        _skip_rest()
    return batch


@task(trigger_rule="none_failed")
def finish(run: JsonObject) -> list[JsonObject]:
    """Choose what is tested, as chunks: the seed and the best skill, an equal text once."""
    opened = TrainingRun.open(run)
    state = opened.state(opened.record.total_steps)
    versions = [0, state.best.version] if state.best.version else [0]
    size = len(opened.items(Split.TEST))
    planned: list[JsonObject] = []
    for version in versions if opened.config.evaluation.eval_test else []:
        planned += _chunks(opened, size, version, first_index=len(planned))
    return planned


@task(trigger_rule="none_failed")
def report(run: JsonObject) -> JsonObject:
    """Write history.json and report.html."""
    from include.pipeline.history import history_of, write_report

    opened = TrainingRun.open(run)
    history = history_of(opened)
    write_report(opened, history)
    return {"history": opened.store.address(opened.keys.history), "report": opened.store.address(opened.keys.report)}


@task
def publish(run: JsonObject) -> JsonObject:
    """Publish the best skill as an immutable version and move the champion alias to it."""
    from include.pipeline.history import history_of, write_report
    from include.pipeline.publishing import publish_best

    opened = TrainingRun.open(run)
    try:
        published = publish_best(opened)
    except Conflict as error:
        # A second attempt would read the winner's alias, and move it all the same.
        raise AirflowFailException(str(error)) from None
    write_report(opened, history_of(opened, published))
    return {} if published is None else published.model_dump()


def _chunks(run: TrainingRun, count: int, version: int = 0, first_index: int = 0) -> list[JsonObject]:
    return chunks(count, run.config.sandbox.items_per_container, version, first_index)


def _batch_chunks(run: TrainingRun, position: int) -> list[JsonObject]:
    return _chunks(run, len(run.batch(position)))


def _skip_rest() -> None:
    """Skip all tasks behind this one at once; left to the trigger rules, Airflow needs a scheduler loop a task."""
    context = get_current_context()
    tasks = context["dag"].task_dict
    later = context["task"].get_flat_relative_ids(upstream=False)
    if later:
        raise DownstreamTasksSkipped(  # type: ignore[no-untyped-call]
            tasks=[instance for name in sorted(later) for instance in _instances(tasks[name])]
        )


def _instances(task: Any) -> list[str | tuple[str, int]]:
    """The task's instances as they are now: one for each value of a list in the DAG file, else one, still unmapped."""
    mapped = getattr(task, "op_kwargs_expand_input", None)
    lengths = [len(value) for value in mapped.value.values() if isinstance(value, list)] if mapped else []
    return [(task.task_id, index) for index in range(lengths[0])] if lengths else [task.task_id]


def _minibatches(run: TrainingRun, position: int) -> "list[Minibatch]":
    """The minibatches of the step's rollouts; the same for every task that asks."""
    from include.optimizer.reflect import minibatches

    skill = run.skill(run.state_before(position).current.version)
    rollouts = run.rollouts.read(run.rollout_key(Split.TRAIN, skill), run.batch(position))
    seed = f"{run.config.train.seed}-step-{run.step_number(position)}"
    return minibatches([*rollouts.values()], run.config.gradient.minibatch_size, seed)


@contextmanager
def _optimizing(run: TrainingRun, position: int, stage: str, index: int = 0) -> Iterator["Optimizer"]:
    """The optimizer model for one task of a step; its calls and its time are stored when the task ends."""
    from include.pipeline.memory import RememberingOptimizer

    calls: list[ModelCall] = []
    keys, config = run.step_keys(position), run.config.model

    def connect() -> "Optimizer":
        from include.models.connection import optimizer_model
        from include.models.optimizer import PydanticAIOptimizer

        model = optimizer_model(config.optimizer_conn_id, config.optimizer)
        return connected.enter_context(PydanticAIOptimizer(model, calls.append))

    with timing.timed(run.store, keys, stage, index) as clock, ExitStack() as connected:
        try:
            yield RememberingOptimizer(connect, str(config.optimizer), run.store, f"{keys.folder}answers/")
        finally:
            clock.model = union_seconds((call.started, call.started + call.seconds) for call in calls)
            run.usage.append(run.ref.benchmark, run.ref.run, calls, run.step_number(position))
