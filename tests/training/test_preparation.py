"""What a run settles before its first call, and what it keeps when it is prepared again."""

import pytest

from skillopt_airflow.core.budget import ModelPrice
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

MONDAY = "2026-11-23T22:00:00+00:00"
THEN = ModelPrice(input=1.0, output=2.0, source="the table of Monday")


def opened(training: Training, *, prepares: bool = False) -> Training:
    """The same run, as tasks open it that follow, or all of them from the first one on."""
    return Training(training.config, store=training.store, done={} if prepares else training.done)


def begun_on_monday() -> Training:
    """A training that searches, and has done its first task alone."""
    training = Training.of(
        model__harness="tools",
        search__conn_id="skillopt_search",
        train__num_epochs=1,
        train__steps_per_epoch=1,
        train__preflight=False,
    )
    training.prepare()
    record = training.run.record.model_copy(update={"created": MONDAY, "prices": {"target": THEN, "optimizer": THEN}})
    training.store.put_model(training.run.keys.config, record)
    return opened(training)


def test_a_run_that_is_prepared_again_on_another_day_finds_its_rollouts_and_keeps_its_prices() -> None:
    training = begun_on_monday()
    training()
    assert training.rollouts
    cleared = opened(training, prepares=True)
    cleared.prepare()
    again = opened(cleared)
    assert again() == training.state
    assert not again.rollouts
    assert again.run.record.created == MONDAY
    assert again.run.prices == {"target": THEN, "optimizer": THEN}


def test_a_run_that_has_no_state_yet_takes_the_prices_of_today() -> None:
    cleared = opened(begun_on_monday(), prepares=True)
    cleared.prepare()
    assert cleared.run.record.created == MONDAY
    assert THEN not in cleared.run.prices.values()
