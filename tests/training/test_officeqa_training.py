"""Trainings on a corpus, in the prompt and by an agent that searches it, and on programs that run here."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from local.served import served
from local.standin.server import StandInServer
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.data.files import FileStore
from tests.training.in_process import Training
from tests.training.served_training import ROLES, ServedTraining, connect

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

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


def test_a_training_on_pages_in_the_prompt_ends_better_than_it_began() -> None:
    training = Training.of("officeqa", **SMALL, evaluation__val_limit=None)
    training()
    check_better(training)
    keys = training.store.list_keys("corpora/")
    assert keys == [f"corpora/{training.run.record.corpus}/{name}" for name in ("0000.tar", "manifest.json")]


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


@pytest.fixture(scope="module")
def training() -> Training:
    training = Training.of(
        "spreadsheetbench",
        train__num_epochs=1,
        train__steps_per_epoch=1,
        train__batch_size=7,
        evaluation__eval_test=False,
        evaluation__val_limit=6,
        evaluation__test_limit=None,
        optimizer__use_slow_update=False,
    )
    training()
    return training


def test_the_skill_gets_better_at_changing_workbooks(training: Training) -> None:
    before = training.run.state(training.run.timeline[0]).current.evaluation.mean("hard")
    after = training.state.best.evaluation.mean("hard")
    assert before < 0.5 < after
    assert "accept_new_best" in training.actions()


def test_every_rollout_has_a_score_and_names_what_it_left(training: Training) -> None:
    stored = training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.items(Split.VAL))
    assert len(stored) == 6
    for rollout in stored.values():
        assert rollout.trajectory.files == ("output.xlsx",)
        assert rollout.score is not None
        assert "cells of the answer position" in rollout.score.feedback


def test_the_workbooks_are_stored_once_under_what_they_hold(training: Training) -> None:
    items = [item for split in (Split.TRAIN, Split.VAL, Split.TEST) for item in training.run.items(split)]
    files = [file for item in items for file in (*item.files, *item.reference_files)]
    kept = FileStore(training.store, training.run.ref.storage.prefix)
    assert all(kept.get(file.sha256).startswith(b"PK") for file in files)
    keys = training.store.list_keys(f"{training.run.ref.storage.prefix}files/")
    names = {key.rpartition("/")[2] for key in keys}
    assert len(keys) == len(names) >= len({file.sha256 for file in files})
    assert all(hashlib.sha256(kept.get(name)).hexdigest() == name for name in names)


def test_no_reference_reaches_the_optimizer_or_the_target_but_by_the_scorer(training: Training) -> None:
    shown = "".join(prompt for _, prompt in training.models.prompts)
    assert "golden" not in shown
