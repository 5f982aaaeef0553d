"""What the whole method adds, through the real platform: early rejection in containers, any skill scored, the tab."""

import time
from typing import Any

import httpx
import pytest

from local.airflow_api import REQUEST_SECONDS
from local.environment import airflow_url
from skillopt_airflow.training.scorecard import Scorecard
from tests.pipeline.trained_run import DAG, SHORT, TrainedRun, token

pytestmark = pytest.mark.platform

EVALUATE = "evaluate_searchqa"
EARLY = {
    "evaluation.early_reject": True,
    # So few at the same time that a candidate is looked at again and again, although the stand-in answers at once.
    "model.concurrency": 1,
}
BUDGET = {"budget.max_calls": 200, "train.num_epochs": 2}


def short_run(platform: Any, name: str, overrides: dict[str, Any]) -> TrainedRun:
    prefix = {"storage.prefix": f"{name}-{time.time_ns()}/"}
    return TrainedRun.trigger(platform, f"{name}-{time.time_ns()}", SHORT | prefix | overrides)


@pytest.fixture(scope="module")
def started(platform: Any, plain_started: TrainedRun) -> dict[str, TrainedRun]:
    """The runs of this module, at the same time, and beside the one that the early one is compared with."""
    return {"early": short_run(platform, "early", EARLY), "budget": short_run(platform, "budget", BUDGET)}


@pytest.mark.nightly
def test_containers_side_by_side_stop_when_the_candidate_has_lost(
    started: dict[str, TrainedRun], plain: TrainedRun
) -> None:
    early = started["early"].wait()
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
    best, seed = plain.history.best_val_score, plain.history.seed_val_score
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


def test_the_tab_of_a_run_shows_its_report_to_who_is_logged_in(platform: Any, plain: TrainedRun) -> None:
    url = f"{airflow_url(platform.settings)}/skillopt/dag_runs/{DAG}/{plain.run_id}/report"
    assert httpx.get(url, timeout=REQUEST_SECONDS).status_code == 401
    page = httpx.get(url, headers={"Authorization": f"Bearer {token(platform)}"}, timeout=REQUEST_SECONDS)
    assert page.status_code == 200
    assert "<svg" in page.text
    assert plain.keys.run in page.text


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


@pytest.mark.nightly
def test_a_run_over_its_budget_stops_keeps_what_it_has_and_publishes_nothing(started: dict[str, TrainedRun]) -> None:
    run = started["budget"].wait()
    history = run.history
    assert history.stopped.startswith("budget.max_calls = 200")
    assert 1 <= len(history.steps) < 6
    assert history.published is None
    assert history.test == {}
    assert run.store.get_text(run.keys.best_skill) == run.store.get_text(run.keys.skill(history.best_version))
    assert "budget.max_calls" in run.store.get_text(run.keys.report)
