"""What the whole method adds, through the real platform: early rejection in containers, any skill scored."""

import time
from typing import Any

import pytest

from skillopt_airflow.training.scorecard import Scorecard
from tests.pipeline.trained_run import SHORT, TrainedRun

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

EVALUATE = "evaluate_searchqa"
EARLY = {
    "evaluation.early_reject": True,
    # So few at the same time that a candidate is looked at again and again, although the stand-in answers at once.
    "model.concurrency": 1,
}


@pytest.mark.nightly
def test_containers_side_by_side_stop_when_the_candidate_has_lost(platform: Any, plain: TrainedRun) -> None:
    prefix = {"storage.prefix": f"early-{time.time_ns()}/"}
    early = TrainedRun.trigger(platform, f"early-{time.time_ns()}", SHORT | prefix | EARLY).wait()
    history, whole = early.history, plain.history
    assert [moment.action for moment in history.moments] == [moment.action for moment in whole.moments]
    assert early.store.get_text(early.keys.best_skill) == plain.store.get_text(plain.keys.best_skill)
    assert history.rollouts.cancelled > 0
    assert history.rollouts.ran < whole.rollouts.ran
    assert any(moment.decision.bound is not None for moment in history.moments)


def test_any_skill_is_scored_on_any_split_against_another(platform: Any, plain: TrainedRun) -> None:
    trained = plain.store.address(plain.keys.best_skill)
    text = plain.store.get_text(plain.keys.best_skill)
    beside_seed = score(platform, plain, {"skill": trained, "compare_to": "seed", "split": "val"})
    by_itself = score(platform, plain, {"skill": text, "compare_to": None, "split": "test", "data.limit": 10})
    card = scorecard(beside_seed)
    best, seed = plain.history.best.score, plain.history.seed.score
    assert card.other is not None
    assert card.paired is not None
    assert (card.skill.score, card.other.score) == (pytest.approx(best), pytest.approx(seed))
    assert card.skill.low < best < card.skill.high
    assert card.paired.delta == pytest.approx(best - seed)
    assert card.paired.wins + card.paired.losses + card.paired.ties == card.skill.items
    alone = scorecard(by_itself)
    assert alone.skill.items == 10
    assert alone.other is None
    assert alone.paired is None


@pytest.mark.nightly
def test_the_same_skill_scores_the_same_in_every_harness(
    platform: Any, plain: TrainedRun, cli_docker_host: str
) -> None:
    trained = plain.store.address(plain.keys.best_skill)
    asked = {"skill": trained, "compare_to": "seed", "split": "test", "data.limit": 3}
    harnesses = ("chat", "codex", "claude_code")
    runs = {harness: score(platform, plain, asked | {"model.harness": harness}) for harness in harnesses}
    cards = {harness: scorecard(run) for harness, run in runs.items()}
    assert [card.harness for card in cards.values()] == list(cards)
    scores = {harness: (card.skill.score, card.other and card.other.score) for harness, card in cards.items()}
    assert scores["codex"] == scores["claude_code"] == scores["chat"]
    assert {card.skill.items for card in cards.values()} == {3}


def score(platform: Any, near: TrainedRun, asked: dict[str, Any]) -> TrainedRun:
    """Trigger the scoring of a skill; the run that it will be."""
    run_id = f"score-{time.time_ns()}"
    platform.api.wait_for_dag(EVALUATE)
    platform.api.trigger(EVALUATE, asked | {"overrides": {"storage.prefix": near.prefix}}, run_id)
    return TrainedRun(platform, f"evaluate-{run_id}", near.prefix)


def scorecard(run: TrainedRun) -> Scorecard:
    """The scorecard of such a run when it has ended."""
    assert run.platform.api.wait(EVALUATE, run.run_id.removeprefix("evaluate-"), seconds=300) == "success"
    stored: Scorecard = run.store.get_model(run.keys.scorecard, Scorecard)
    return stored
