"""A training whose target writes programs: they run, what they leave is judged in the judge's own process."""

import hashlib

import pytest

from skillopt_airflow.core.types import Split
from skillopt_airflow.store.files import FileStore
from tests.training.in_process import Training

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def test_the_skill_gets_better_at_changing_workbooks_which_are_stored_once() -> None:
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
    before = training.run.state(training.run.timeline[0]).current.evaluation.mean("hard")
    assert before < 0.5 < training.state.best.evaluation.mean("hard")
    assert "accept_new_best" in training.actions()
    stored = training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.items(Split.VAL))
    assert len(stored) == 6
    for rollout in stored.values():
        assert rollout.trajectory.files == ("output.xlsx",)
        assert "cells of the answer position" in rollout.score.feedback
    # The workbooks are stored once, under what they hold.
    items = [item for split in (Split.TRAIN, Split.VAL, Split.TEST) for item in training.run.items(split)]
    files = [file for item in items for file in (*item.files, *item.reference_files)]
    kept = FileStore(training.store, training.run.ref.storage.prefix)
    assert all(kept.get(file.sha256).startswith(b"PK") for file in files)
    keys = training.store.list_keys(f"{training.run.ref.storage.prefix}files/")
    names = {key.rpartition("/")[2] for key in keys}
    assert len(keys) == len(names) >= len({file.sha256 for file in files})
    assert all(hashlib.sha256(kept.get(name)).hexdigest() == name for name in names)
    # No reference reaches the optimizer or the target but by the scorer.
    assert "golden" not in "".join(prompt for _, prompt in training.models.prompts)
