"""The scores of a skill on a split, from its stored rollouts."""

from collections.abc import Mapping, Sequence

from skillopt_airflow.core.gate.item_scores import Evaluation, evaluation_of
from skillopt_airflow.core.gate.measured_score import TypeScore, scores_by_type
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Split
from skillopt_airflow.store.tables.rollout_table import KnownParts
from skillopt_airflow.training.run.run import TrainingRun


def samples_of(
    run: TrainingRun,
    split: Split,
    skill: SkillDocument,
    samples: Sequence[int] | None = None,
    items: Sequence[ItemRef] | None = None,
    known: Mapping[int, KnownParts] | None = None,
) -> dict[str, list[RolloutResult]]:
    """Return the stored rollouts of a skill on a split by item id, one per sample.

    Without `samples` and `items`, these are the evaluation's and the split's. `known` caches parts read earlier, by
    sample.
    """
    items = run.item_refs(split) if items is None else items
    found: dict[str, list[RolloutResult]] = {}
    for sample in range(run.config.evaluation.samples) if samples is None else samples:
        parts = None if known is None else known[sample]
        for item_id, rollout in run.results(split, skill, sample, items, parts).items():
            found.setdefault(item_id, []).append(rollout)
    return found


def measured(
    run: TrainingRun,
    split: Split,
    skill: SkillDocument,
    samples: Sequence[int] | None = None,
    items: Sequence[ItemRef] | None = None,
) -> Evaluation:
    """Return the skill's stored scores; for `samples` and `items` see `samples_of`."""
    samples = range(run.config.evaluation.samples) if samples is None else samples
    items = run.item_refs(split) if items is None else items
    return evaluation_of(items, samples_of(run, split, skill, samples, items), len(samples))


def by_type(run: TrainingRun, split: Split, evaluation: Evaluation) -> tuple[TypeScore, ...]:
    """Return the scores by task type; empty if the items have no types."""
    types = {item.id: item.task_types for item in run.item_refs(split)}
    return scores_by_type(evaluation, types, run.config.evaluation)
