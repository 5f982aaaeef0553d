"""What a user is told when rollouts failed, and when Airflow tries again."""

import logging

import pytest
from airflow.sdk.exceptions import AirflowException

from skillopt_airflow.core.failure_reasons import RolloutTally
from skillopt_airflow.core.types import Status, Trajectory
from skillopt_airflow.pipeline.failures import tell_rollouts

FAILED = [Trajectory(item_id=f"i-{n}", status=Status.MODEL_ERROR, error=f"request {n}: who are you") for n in range(3)]
GOOD = [Trajectory(item_id="good", status=Status.OK)]
SENTENCE = (
    "only 25% of the items have a score (95% are wanted); 3 of 4 items: model_error: request 0: who are you (for "
    "example item i-0)"
)


def test_a_retry_is_asked_for_with_the_reason():
    with pytest.raises(AirflowException) as caught:
        tell_rollouts(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=True)
    assert str(caught.value) == SENTENCE


def test_without_a_retry_the_log_has_the_reason(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        tell_rollouts(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=False)
    assert caplog.messages == ["1 of 4 rollouts have a score; 3 model_error without a score", SENTENCE]


def test_cut_answers_are_counted_and_many_are_a_warning(caplog: pytest.LogCaptureFixture):
    cut = [Trajectory(item_id=f"i-{n}", status=Status.TRUNCATED) for n in range(3)]
    with caplog.at_level(logging.INFO):
        tell_rollouts(RolloutTally.of([*cut, *GOOD], 4), 0.95, may_retry=True)
    told, warning = caplog.records
    assert told.getMessage() == "4 of 4 rollouts have a score; 3 of them cut off"
    assert (warning.levelname, "raise model.max_tokens" in warning.getMessage()) == ("WARNING", True)
