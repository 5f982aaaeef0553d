"""Measuring a candidate on the selection split: the plan of its rollouts, and what they amount to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skillopt_airflow.core.early_rejection import RunningEvaluation, evaluation_order
from skillopt_airflow.core.item_scores import Evaluation, evaluation_of, failed_draw
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.task_types import TypeScore, scores_by_type
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import ItemRef, RolloutResult, Split
from skillopt_airflow.training.rollout_plan import Chunk, chunks_of, cut_contested, ids
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.rollout_table import KnownParts


def may_end_early(run: TrainingRun, moment: Moment) -> bool:
    """Return whether an evaluation may be ended as soon as a win is impossible: only where a gate decides on it.

    A batch job is paid for as a whole.
    """
    rules = run.config.evaluation
    gated = moment.kind in ("step", "meta_reflect") or (
        moment.kind == "slow_update" and run.config.optimizer.slow_update_gate
    )
    return rules.early_reject and rules.use_gate and gated and not run.config.model.batch


def evaluation_chunks(run: TrainingRun, moment: Moment, skills: Sequence[str]) -> list[Chunk]:
    """Return the rollouts that measure candidates, by key, on the selection split at the same time; every draw apart.

    Where the evaluation may end early, the items on which the current skill leaves most to win come first.
    """
    draws = range(run.config.evaluation.draws)
    if not skills or not may_end_early(run, moment):
        item_ids = ids(run.item_refs(Split.VAL))
        return chunks_of(run.config, "evaluate", skills, Split.VAL, item_ids, draws)
    order = order_of(run, run.state_before(moment))
    return [
        Chunk(stage="evaluate", skill=skill, split=Split.VAL, draw=draw, item_ids=tuple(part), contested=True)
        for part in cut_contested(order, run.config, len(skills) * len(draws))
        for skill in skills
        for draw in draws
    ]


def draws_of(
    run: TrainingRun,
    split: Split,
    skill: SkillDocument,
    draws: Sequence[int] | None = None,
    known: "Mapping[int, KnownParts] | None" = None,
) -> dict[str, list[RolloutResult]]:
    """Return the stored rollouts of a skill on a split by item id, one a draw; the draws of an evaluation if None.

    `known` has what was read before of each draw.
    """
    items = run.item_refs(split)
    found: dict[str, list[RolloutResult]] = {}
    for draw in range(run.config.evaluation.draws) if draws is None else draws:
        before = None if known is None else known[draw]
        for item_id, rollout in run.results(split, skill, draw, items, before).items():
            found.setdefault(item_id, []).append(rollout)
    return found


def measured(run: TrainingRun, split: Split, skill: SkillDocument, draws: Sequence[int] | None = None) -> Evaluation:
    """Return the skill's scores on the split, as far as they are stored; by the draws of an evaluation if None."""
    wanted = range(run.config.evaluation.draws) if draws is None else draws
    return measured_on(run, split, skill, wanted, run.item_refs(split))


def evaluation_of_draws(
    run: TrainingRun, split: Split, found: Mapping[str, Sequence[RolloutResult]], draws: int
) -> Evaluation:
    """Return the scores on a split by what `draws_of` has found, of so many draws."""
    items = run.item_refs(split)
    rollouts = [rollout for of_item in found.values() for rollout in of_item]
    return evaluation_of(ids(items), rollouts, draws=draws, groups=_groups(items))


def cut_or_measured(
    run: TrainingRun, moment: Moment, state: RunState, skill: SkillDocument
) -> tuple[Evaluation, float | None]:
    """Return a candidate's evaluation; cut short where its loss is certain, and then with the bound of its mean."""
    early = running_evaluation(run, state, skill).lost() if may_end_early(run, moment) else None
    return (measured(run, Split.VAL, skill), None) if early is None else early


def running_evaluation(
    run: TrainingRun, state: RunState, skill: SkillDocument, known: "Mapping[int, KnownParts] | None" = None
) -> RunningEvaluation:
    """Return what the rows of all containers say of a candidate's evaluation while it runs.

    `known` has what was read at earlier looks of each draw.
    """
    rules = run.config.evaluation
    complete = _complete(draws_of(run, Split.VAL, skill, known=known), rules.draws)
    rollouts = [rollout for draws in complete.values() for rollout in draws]
    scores = evaluation_of(list(complete), rollouts, draws=rules.draws).scores
    failed = {item: failed_draw(item, draws).status for item, draws in complete.items() if item not in scores}
    record = run.states.record(state)
    return RunningEvaluation(scores, failed, order_of(run, state), state.current.evaluation, rules, record)


def order_of(run: TrainingRun, state: RunState) -> tuple[str, ...]:
    """Return the order in which a candidate's items are begun where its evaluation may end early."""
    rules = run.config.evaluation
    items = ids(run.item_refs(Split.VAL))
    return evaluation_order(items, state.current.evaluation, rules, run.states.record(state))


def measured_on(
    run: TrainingRun, split: Split, skill: SkillDocument, draws: Sequence[int], items: Sequence[ItemRef]
) -> Evaluation:
    """Return the skill's scores on some items of a split by these draws, as far as they are stored."""
    rollouts = [one for draw in draws for one in run.results(split, skill, draw, items).values()]
    return evaluation_of(ids(items), rollouts, draws=len(draws), groups=_groups(items))


def by_type(run: TrainingRun, split: Split, evaluation: Evaluation) -> tuple[TypeScore, ...]:
    """Return an evaluation's scores by the type of task; none where the items have no type."""
    types = {item.id: item.task_types for item in run.item_refs(split)}
    return scores_by_type(evaluation, types, run.config.evaluation)


def _groups(items: Sequence[ItemRef]) -> dict[str, str]:
    return {item.id: item.group for item in items if item.group}


def _complete(rollouts: Mapping[str, list[RolloutResult]], draws: int) -> dict[str, list[RolloutResult]]:
    return {item_id: found for item_id, found in rollouts.items() if len(found) == draws}
