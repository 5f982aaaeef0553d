"""A training whose target writes programs: they run, what they leave is judged in the judge's own process."""

import hashlib

import pytest

from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.data.files import FileStore
from tests.training.in_process import Training

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


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
