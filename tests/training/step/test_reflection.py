"""What a step's questions are about, and what they read."""

import pytest

from skillopt_airflow.core.run.state import ReflectedItems
from skillopt_airflow.training.step.steps import load_step
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training.of(train__num_epochs=1, preflight=False, optimizer__use_slow_update=False)
    training()
    return training


def test_a_step_reflects_on_every_item_of_its_batch(trained: Training) -> None:
    run, step = trained.run, trained.run.timeline[1]
    given = load_step(run, step)
    seen = [rollout.trajectory.item_id for rollout in given.rollouts]
    assert sorted(seen) == sorted(item.id for part in run.slices(step) for item in part)
    assert len(given.scores) == len(seen)
    assert run.store.get_model(run.keys.moment(step).reflected_items, ReflectedItems).item_ids == tuple(sorted(seen))
    assert load_step(run, step) == given
