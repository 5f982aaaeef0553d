"""Skills scored on one split and on all, in one process."""

import pytest

from skillopt_airflow.core.density import density
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.evaluate_dag import _request
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.training.preparation import prepare_scoring
from skillopt_airflow.training.scorecard import Scorecard, scorecard
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

BETTER = "# Better\n\nPrefer a phrase that stands close to the words of the clue.\n"


def scored(split: str) -> tuple[Training, Scorecard]:
    training = Training.of(train__preflight=False)
    question = _request({"skill": BETTER, "compare_to": "seed", "split": split})
    training.run_containers(prepare_scoring(training.run, training.config, question))
    return training, scorecard(training.run, question)


def test_scores_are_told_by_the_type_of_task() -> None:
    few = {"train__preflight": False, "evaluation__val_limit": 20}
    training = Training.of("livemathematicianbench", **few, data__task_type="no")
    question = _request({"skill": "seed", "compare_to": "", "split": "val"})
    training.run_containers(prepare_scoring(training.run, training.config, question))
    score = scorecard(training.run, question).skill
    assert len(score.by_type) == sum(one.items for one in score.by_type) == score.items == 20
    assert sum(one.items * one.score for one in score.by_type) == pytest.approx(score.items * score.score)


@pytest.mark.nightly
def test_all_splits_are_scored_at_once_and_the_unselected_one_comes_first() -> None:
    training, card = scored("all")
    assert [one.split for one in (card, *card.other_splits)] == [Split.TEST, Split.VAL, Split.TRAIN]
    sizes = {split: len(training.run.item_refs(split)) for split in (Split.TEST, Split.VAL, Split.TRAIN)}
    assert {one.split: one.skill.items for one in (card, *card.other_splits)} == sizes
    assert all(one.paired is not None for one in card.other_splits)
    assert training.store.get_model(training.run.keys.scorecard, Scorecard) == card
    assert training.rollouts["score"] == 2 * sum(sizes.values())
    checked = training.store.get_model(training.run.keys.rollout_quality, QualityReport)
    assert checked.rows == {
        f"{name} skill, draw 0, {split}": sizes[split] for split in sizes for name in ("first", "second")
    }
    _, alone = scored("val")
    assert (alone.split, alone.other_splits) == (Split.VAL, ())
    assert "other_splits" not in alone.to_json()
    assert alone == card.other_splits[0]
    assert "by_type" not in alone.to_json()["skill"]
    assert alone.skill.density == density(alone.skill.score, training.run.skill(0))
