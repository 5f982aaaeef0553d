"""The scores of a skill on a split, from its stored rollouts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skillopt_airflow.core.gate.item_scores import Evaluation, evaluation_of
from skillopt_airflow.core.gate.measured_score import TypeScore, scores_by_type
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Split
from skillopt_airflow.training.run.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.tables.rollout_table import KnownParts


def draws_of(
    run: TrainingRun,
    split: Split,
    skill: SkillDocument,
    draws: Sequence[int] | None = None,
    items: Sequence[ItemRef] | None = None,
    known: "Mapping[int, KnownParts] | None" = None,
) -> dict[str, list[RolloutResult]]:
    """Return the stored rollouts of a skill on a split by item id, one per draw.

    Args:
        draws: the evaluation's if None.
        items: the split's if None.
        known: parts read earlier, by draw.
    """
    items = run.item_refs(split) if items is None else items
    found: dict[str, list[RolloutResult]] = {}
    for draw in range(run.config.evaluation.draws) if draws is None else draws:
        for item_id, rollout in run.results(split, skill, draw, items, None if known is None else known[draw]).items():
            found.setdefault(item_id, []).append(rollout)
    return found


def measured(
    run: TrainingRun,
    split: Split,
    skill: SkillDocument,
    draws: Sequence[int] | None = None,
    items: Sequence[ItemRef] | None = None,
) -> Evaluation:
    """Return the skill's stored scores; for `draws` and `items` see `draws_of`."""
    draws = range(run.config.evaluation.draws) if draws is None else draws
    items = run.item_refs(split) if items is None else items
    return evaluation_of(items, draws_of(run, split, skill, draws, items), len(draws))


def by_type(run: TrainingRun, split: Split, evaluation: Evaluation) -> tuple[TypeScore, ...]:
    """Return the scores by task type; empty if the items have no types."""
    types = {item.id: item.task_types for item in run.item_refs(split)}
    return scores_by_type(evaluation, types, run.config.evaluation)
