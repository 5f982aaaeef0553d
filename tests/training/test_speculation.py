import math

import pytest

from skillopt_airflow.core.training_groups import TrainGroup
from skillopt_airflow.training.history import history_of
from skillopt_airflow.training.speculation import first_speculation
from tests.training.in_process import Training


@pytest.mark.parametrize(("wanted", "first"), [(True, 1), ("auto", 4), (False, math.inf)])
def test_the_first_step_that_may_speculate(wanted: bool | str, first: float) -> None:
    assert first_speculation(TrainGroup.model_validate({"speculative_rollout": wanted})) == first


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "speculates"), [(None, True), (100_000, True), (200, False)])
def test_speculation_begins_by_itself_after_three_rejections_where_the_budget_has_room(
    calls: int | None, speculates: bool
) -> None:
    plain, ahead = (
        Training.of(
            train__num_epochs=1,
            train__steps_per_epoch=7,
            train__speculative_rollout=wanted,
            evaluation__gate_policy="e_process",
            evaluation__gate_alpha=1e-5,
            budget__max_calls=calls,
        )
        for wanted in (False, "auto")
    )
    assert plain() == ahead()
    steps = history_of(ahead.run).steps
    assert len(steps) > 3
    assert not any(step.action.accepted for step in steps)
    # The batches of steps 5 to 7: step 4 is the first with three rejections before it.
    assert ahead.rollouts["speculate"] == (3 * 8 if speculates else 0)
    assert plain.rollouts["rollout"] - ahead.rollouts["rollout"] == ahead.rollouts["speculate"]
    assert history_of(ahead.run).rollouts.wasted == 0
