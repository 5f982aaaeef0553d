"""Evaluations of two draws an item, of which one fails."""

from collections import Counter
from typing import Any

import pytest

from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.training.evaluation import measured, running_evaluation
from tests.training.in_process import InterruptedRun, Training


class SecondDraw:
    """Fails on the second draw of the item that comes first."""

    item = ""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def __call__(self, stage: str, item_id: str) -> Status | None:
        if stage == "preflight":
            return None
        self.item = self.item or item_id
        self.tries[item_id] += 1
        return Status.TIMEOUT if item_id == self.item and self.tries[item_id] == 2 else None


def started(**overrides: Any) -> tuple[Training, RunState, str]:
    """A training up to the seed's evaluation, and the item of which a draw failed."""
    training, fail = Training.of(evaluation__draws=2, **overrides), SecondDraw()
    # Chunk by chunk, so that the tries of an item are its draws in order.
    training.fail, training.interrupt_after, training.containers = fail, "start", 1
    with pytest.raises(InterruptedRun):
        training()
    return training, training.run.state(training.run.timeline[0]), fail.item


def test_the_item_is_missing_and_no_half_measured_score() -> None:
    training, state, failed = started()
    evaluation = state.current.evaluation
    assert evaluation.scores.keys() == {item.id for item in training.run.items(Split.VAL)} - {failed}
    assert (evaluation.failures, evaluation.size) == ({Status.TIMEOUT: 1}, 24)
    first_draw = measured(training.run, Split.VAL, training.run.skill(0), draws=(0,))
    assert (first_draw.coverage, first_draw.failures) == (1.0, {})


def test_an_evaluation_that_ends_early_counts_it_alike() -> None:
    training, state, failed = started()
    perfect = ItemScore(hard=1, soft=1)
    scores = dict.fromkeys(state.current.evaluation.scores, perfect) | {failed: ItemScore(hard=0, soft=0)}
    current = state.current.model_copy(update={"evaluation": Evaluation(scores=scores)})
    lost = running_evaluation(training.run, state.model_copy(update={"current": current}), training.run.skill(0)).lost()
    assert lost is not None
    evaluation, _ = lost
    assert failed not in evaluation.scores
    assert evaluation.failures == {Status.TIMEOUT: 1}
