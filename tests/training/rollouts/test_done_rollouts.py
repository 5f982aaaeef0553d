"""What became of a run's rollouts, from its plans and its table."""

import pytest

from skillopt_airflow.core.run.history import StageRollouts
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.training.report.history import history_of
from tests.training.in_process import Training


@pytest.mark.nightly
def test_the_outcomes_of_a_run_are_told_by_stage() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, preflight=False)
    failing = {"rollout": Status.TIMEOUT, "test": Status.TRUNCATED}
    training.fail = lambda stage, item_id: failing.get(stage)
    training.why = "no answer in 60 s"
    training()
    history = history_of(training.run)
    found = {outcome.stage: outcome for outcome in history.outcomes}
    assert (found["seed"].scored, found["seed"].failures, found["seed"].truncated) == (24, {}, 0)
    assert (found["rollout"].scored, found["rollout"].failures) == (0, {Status.TIMEOUT: 8})
    assert str(found["rollout"].reason).startswith("8 of 8 items: timeout: no answer in 60 s")
    assert (found["test"].truncated, found["test"].coverage) == (12, 1.0)


@pytest.mark.nightly
def test_an_item_that_was_tried_again_counts_as_it_ended() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, preflight=False)
    training.fail = lambda stage, item_id: Status.TIMEOUT if stage == "seed" else None
    refs = training.prepare()
    training.run_containers(refs)
    training.fail = lambda stage, item_id: None
    training.run_containers(refs)
    training()
    history = history_of(training.run)
    seed = next(outcome for outcome in history.outcomes if outcome.stage == "seed")
    assert seed == StageRollouts(stage="seed", planned=24, scored=24, truncated=0, failures={}, reason=None)
    assert history.rollouts.ran >= 48
