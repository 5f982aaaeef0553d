"""Evaluations of two draws an item, of which one fails."""

from collections import Counter

import pytest

from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.early_rejection import RunningEvaluation
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.training.rollouts.evaluation import draws_of, measured
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


def test_the_item_is_missing_and_no_half_measured_score() -> None:
    training, fail = Training.of(evaluation__draws=2), SecondDraw()
    # Chunk by chunk, so that the tries of an item are its draws in order.
    training.fail, training.interrupt_after, training.containers = fail, "start", 1
    with pytest.raises(InterruptedRun):
        training()
    run, state, failed = training.run, training.run.state(training.run.timeline[0]), fail.item
    evaluation = state.current.evaluation
    assert evaluation.scores.keys() == {item.id for item in run.items(Split.VAL)} - {failed}
    assert (evaluation.failures, evaluation.size) == ({Status.TIMEOUT: 1}, 24)
    first_draw = measured(run, Split.VAL, run.skill(0), draws=(0,))
    assert (first_draw.coverage, first_draw.failures) == (1.0, {})
    # An evaluation that ends early counts it alike.
    scores = dict.fromkeys(evaluation.scores, ItemScore(hard=1, soft=1)) | {failed: ItemScore(hard=0, soft=0)}
    items, rules, rollouts = run.item_refs(Split.VAL), run.config.evaluation, draws_of(run, Split.VAL, run.skill(0))
    lost = RunningEvaluation.of(items, rollouts, Evaluation(scores=scores), rules, TrackRecord()).lost()
    early, _ = lost
    assert failed not in early.scores
    assert early.failures == {Status.TIMEOUT: 1}
