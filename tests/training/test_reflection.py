"""What a step's questions are about, and what they read."""

from typing import Any

import pytest

from skillopt_airflow.core.types import Patch
from skillopt_airflow.training.reflection import step_reflection
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import optimizing
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training.of(train__num_epochs=1, train__preflight=False, optimizer__use_slow_update=False)
    training()
    return training


def test_every_item_of_the_batch_is_in_one_minibatch(trained: Training) -> None:
    run, step = trained.run, trained.run.timeline[1]
    reflection = step_reflection(run, step)
    seen = [items[0].trajectory.item_id for part in reflection.minibatches(1) for items in part.items]
    assert sorted(seen) == sorted(item.id for part in run.slices(step) for item in part)
    assert len(reflection.scores) == len(seen)
    assert reflection.batch.seen.item_ids == tuple(sorted(seen))
    assert reflection.minibatches(1) == step_reflection(run, step).minibatches(1) != reflection.minibatches(2)


def test_ranking_and_merging_read_no_rollouts(trained: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("rollouts were read")

    monkeypatch.setattr(TrainingRun, "stored", refuse)
    run, step = trained.run, trained.run.timeline[2]
    patch = run.store.get_model(run.keys.moment(step).merged_patch, Patch)
    reflection = step_reflection(run, step)
    assert reflection.budget is not None
    with optimizing(run, step, "again") as models:
        merged = reflection.merged(models, [patch], 1)
        (kept,) = reflection.selected(models, merged, 1).edits
    assert kept.content in {edit.content for edit in patch.edits}
    with pytest.raises(AssertionError, match="rollouts were read"):
        _ = reflection.batch
