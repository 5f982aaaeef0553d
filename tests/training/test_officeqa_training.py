"""Trainings on a corpus: pages in the prompt, and an agent that searches it; both end better than they began."""

from collections.abc import Iterator
from typing import Any

import pytest

from local.served import served
from local.standin.server import StandInServer
from skillopt_airflow.core.values.types import Split
from tests.training.in_process import Training
from tests.training.served_training import ROLES, ServedTraining, connect

pytestmark = pytest.mark.slow
SMALL: dict[str, Any] = {
    "train__num_epochs": 1,
    "train__steps_per_epoch": 3,
    "train__batch_size": 10,
    "evaluation__eval_test": False,
    "optimizer__use_slow_update": False,
}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with served(StandInServer("127.0.0.1", 0)) as server:
        for role in ROLES:
            connect(monkeypatch, role, server.base_url, "none", f"stand-in-{role}")
        yield


def check_better(training: Training) -> None:
    before = training.run.state(training.run.timeline[0]).current.evaluation.mean("hard")
    after = training.state.best.evaluation.mean("hard")
    assert before + 0.2 <= after
    assert "accept_new_best" in training.actions()


@pytest.mark.nightly
def test_a_training_on_pages_in_the_prompt_ends_better_than_it_began() -> None:
    training = Training.of("officeqa", **SMALL, evaluation__val_limit=None)
    training()
    check_better(training)
    keys = training.store.list_keys("corpora/")
    assert keys == [f"corpora/{training.run.record.corpus}/{name}" for name in ("0000.tar", "manifest.json")]


@pytest.mark.nightly
@pytest.mark.usefixtures("stand_in")
def test_a_training_of_an_agent_that_searches_the_corpus_ends_better_than_it_began() -> None:
    tools = {"model__harness": "tools", "model__max_turns": 12, "evaluation__val_limit": 15}
    training = ServedTraining.of("officeqa", **SMALL, **tools)
    training()
    check_better(training)
    stored = training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.items(Split.VAL))
    assert all(one.score is not None for one in stored.values())
    turns = [turn for one in stored.values() for turn in one.trajectory.messages]
    assert any(turn.role == "call" and turn.content.startswith("search_pages(") for turn in turns)
    assert any(turn.role == "tool" and "treasury_bulletin_" in turn.content for turn in turns)
