"""The world of many cases: a training learns rules, and rejects what misleads."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.world_model import FEW_EDITS, MANY_EDITS, BenchEconomy, record, stand_in, write_items
from local.standin import chat_wire
from local.standin.economy import RULES, World
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.report.history import history_of
from tests.training import in_process

WORLD = World(7, economy=MANY_EDITS)
STAND_IN = stand_in(WORLD)


@pytest.mark.parametrize("economy", [MANY_EDITS, FEW_EDITS], ids=lambda economy: economy.name)
def test_the_shares_of_the_items_are_those_of_the_world(economy: BenchEconomy) -> None:
    natures = [World(7, economy=economy).nature(f"test-{index}") for index in range(5000)]
    assert {nature.rule for nature in natures} - {""} == {*RULES[: economy.rules]}
    assert sum(bool(nature.rule) for nature in natures) / 5000 == pytest.approx(economy.needs_rule, abs=0.02)


def test_another_seed_has_other_answers() -> None:
    assert record("val-1", 8)["answers"] != record("val-1", 7)["answers"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_training_learns_rules_and_rejects_some_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_items(tmp_path, {Split.TRAIN: 64, Split.VAL: 40, Split.TEST: 20}, seed=7)
    monkeypatch.setattr(in_process, "stand_in", answered)
    training = in_process.Training.of(
        data__uri=str(tmp_path),
        train__steps_per_epoch=4,
        train__batch_size=16,
        evaluation__val_limit=40,
        evaluation__test_limit=20,
    )
    training()
    history = history_of(training.run)
    assert history.best.score > history.seed.score
    assert sum(rule in training.skill() for rule in RULES) >= 2
    assert {"accept_new_best", "reject"} <= set(training.actions())
    assert not [fallback for moment in history.moments for fallback in moment.fallbacks]


def answered(request: str) -> str:
    message: dict[str, Any] = chat_wire.complete(json.loads(request), STAND_IN.reply)["choices"][0]["message"]
    return json.dumps(message)
