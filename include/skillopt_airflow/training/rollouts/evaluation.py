"""Measuring a candidate on the selection split: the plan of its rollouts, and what they amount to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skillopt_airflow.core.gate.item_scores import Evaluation, evaluation_of
from skillopt_airflow.core.gate.measured_score import TypeScore, scores_by_type
from skillopt_airflow.core.run.early_rejection import RunningEvaluation, evaluation_order, may_end_early
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Split
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, chunks_of, cut_contested, ids
from skillopt_airflow.training.run.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.tables.rollout_table import KnownParts


def evaluation_chunks(run: TrainingRun, moment: Moment, skill: str) -> list[Chunk]:
    """Return the rollouts that measure a candidate, by its key, on the selection split; every draw apart.

    Where the evaluation may end early, the items on which the current skill leaves most to win come first.
    """
    config, items, draws = run.config, ids(run.item_refs(Split.VAL)), range(run.config.evaluation.draws)
    if not may_end_early(moment, config):
        return chunks_of(config, "evaluate", [skill], Split.VAL, items, draws)
    before = run.state_before(moment)
    order = evaluation_order(items, before.current.evaluation, config.evaluation, run.states.record(before))
    return [
        Chunk(stage="evaluate", skill=skill, split=Split.VAL, draw=draw, item_ids=tuple(part), contested=True)
        for part in cut_contested(order, config, len(draws))
        for draw in draws
    ]


def draws_of(
    run: TrainingRun, split: Split, skill: SkillDocument, known: "Mapping[int, KnownParts] | None" = None
) -> dict[str, list[RolloutResult]]:
    """Return the stored rollouts of a skill on a split by item id, one per draw of an evaluation.

    `known` has what was read before of each draw.
    """
    items = run.item_refs(split)
    found: dict[str, list[RolloutResult]] = {}
    for draw in range(run.config.evaluation.draws):
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


def running_evaluation(
    run: TrainingRun, state: RunState, skill: SkillDocument, known: "Mapping[int, KnownParts] | None" = None
) -> RunningEvaluation:
    """Return what the rows of all containers say of a candidate's evaluation while it runs.

    `known` has what was read at earlier looks of each draw.
    """
    items, current, record = ids(run.item_refs(Split.VAL)), state.current.evaluation, run.states.record(state)
    rollouts = draws_of(run, Split.VAL, skill, known=known)
    return RunningEvaluation.of(items, rollouts, current, run.config.evaluation, record)


def measured_on(
    run: TrainingRun, split: Split, skill: SkillDocument, draws: Sequence[int], items: Sequence[ItemRef]
) -> Evaluation:
    rollouts = [one for draw in draws for one in run.results(split, skill, draw, items).values()]
    return evaluation_of(ids(items), rollouts, draws=len(draws), groups=_groups(items))


def by_type(run: TrainingRun, split: Split, evaluation: Evaluation) -> tuple[TypeScore, ...]:
    """Return an evaluation's scores by the type of task; none where the items have no type."""
    types = {item.id: item.task_types for item in run.item_refs(split)}
    return scores_by_type(evaluation, types, run.config.evaluation)


def _groups(items: Sequence[ItemRef]) -> dict[str, str]:
    return {item.id: item.group for item in items if item.group}
