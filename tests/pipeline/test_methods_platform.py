"""What the whole method adds, through the real platform: early rejection in containers, any skill scored."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.store.tables.matrix_table import MatrixTable
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
    same_items = {"evaluation.val_limit": SHORT["evaluation.val_limit"]}
    beside_seed = score(platform, plain, same_items, skills=["seed", trained], splits=["val"])
    by_itself = score(platform, plain, {"data.limit": 10}, skills=[text])
    [cell] = matrix(platform, plain, beside_seed).cells
    first, second = cell.skills
    best, seed = plain.history.best.score, plain.history.seed.score
    assert (second.score, first.score) == (pytest.approx(best), pytest.approx(seed))
    assert second.low is not None
    assert second.high is not None
    assert second.low < best < second.high
    assert second.against_first is not None
    assert second.against_first.delta == pytest.approx(best - seed)
    assert second.against_first.pairs == second.items
    [alone] = matrix(platform, plain, by_itself).cells[0].skills
    assert alone.items == 10
    assert alone.against_first is None


@pytest.mark.nightly
def test_the_same_skill_scores_the_same_in_every_harness(
    platform: Any, plain: TrainedRun, cli_docker_host: str
) -> None:
    trained, harnesses = plain.store.address(plain.keys.best_skill), ["chat", "codex", "claude_code"]
    run = score(platform, plain, {"data.limit": 3}, skills=["seed", trained], harnesses=harnesses)
    cells = {cell.harness: cell.skills for cell in matrix(platform, plain, run).cells}
    assert [*cells] == harnesses
    scores = {harness: [one.score for one in skills] for harness, skills in cells.items()}
    assert scores["codex"] == scores["claude_code"] == scores["chat"]
    assert {one.items for skills in cells.values() for one in skills} == {3}


def score(platform: Any, near: TrainedRun, overrides: Mapping[str, Any] = MappingProxyType({}), **asked: Any) -> str:
    """Trigger an evaluation; return the id of its run."""
    run_id = f"score-{time.time_ns()}"
    platform.api.wait_for_dag(EVALUATE)
    platform.api.trigger(EVALUATE, asked | {"overrides": {"storage.prefix": near.prefix, **overrides}}, run_id)
    return run_id


def matrix(platform: Any, near: TrainedRun, run_id: str) -> SkillMatrix:
    """The matrix of such a run when it has ended."""
    assert platform.api.wait(EVALUATE, run_id, seconds=600) == "success"
    return MatrixTable(near.store, MatrixKeys(near.prefix, "searchqa")).read(scoring_name(run_id))
