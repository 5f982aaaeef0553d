"""The errors of failed tasks as an alert and a waiting training tell them; with Airflow's parts in test_alerts.py."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.rollout_tally import RolloutTally
from skillopt_airflow.core.types import Status, Trajectory
from skillopt_airflow.pipeline.epochs import EpochRun
from skillopt_airflow.pipeline.task_errors import MOST_CHARS, failed_tasks, keep_error, tell_rollouts
from skillopt_airflow.pipeline.training import epoch_dag, train_dag

SENTENCE = "8 of 8 items: model_error: who are you (for example item 3)"


def kept(error: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    keep_error({"ti": SimpleNamespace(xcom_push=found.__setitem__), "exception": error})  # type: ignore[typeddict-item]
    return found


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The failed tasks that Airflow knows of a run, with their errors; one that lasts ends in a full stop."""
    errors: dict[str, str | None] = {}

    def get_one(key: str, dag_id: str, task_id: str, run_id: str, map_index: int | None = None) -> Any:
        assert (key, dag_id, run_id) == ("error", "train_searchqa_epoch", "part")
        if map_index is None and "rollout_" in task_id:
            return None  # the name that Airflow gives the state of a mapped task is not the task's id
        words = errors.get(task_id if map_index is None else f"{task_id}_{map_index}")
        return None if words is None else {"words": words, "lasting": words.endswith(".")}

    def states(dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str]]:
        return {run_ids[0]: {"plan": "success", **dict.fromkeys(errors, "failed")}} if errors else {}

    monkeypatch.setattr(XCom, "get_one", get_one)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", states)
    return errors


def told() -> str:
    return failed_tasks("train_searchqa_epoch", "part").words


def test_an_error_is_kept_as_one_line():
    assert kept(DataError("too few\nscores")) == {"error": {"words": "too few scores", "lasting": False}}
    assert kept(AirflowFailException(SENTENCE)) == {"error": {"words": SENTENCE, "lasting": True}}
    assert kept(ValueError("x")) == {"error": {"words": "ValueError: x", "lasting": False}}
    assert kept(KeyboardInterrupt()) == {"error": {"words": "KeyboardInterrupt", "lasting": False}}
    assert len(kept(DataError("x" * 5000))["error"]["words"]) == MOST_CHARS
    assert kept(None) == kept("killed") == {}


def test_every_task_of_every_dag_keeps_its_error():
    for build in (train_dag, epoch_dag):
        for task in build("searchqa", TrainConfig()).tasks:
            partial = getattr(task, "partial_kwargs", None)
            callbacks = partial["on_failure_callback"] if partial else task.on_failure_callback
            assert keep_error in (callbacks if isinstance(callbacks, list | tuple) else [callbacks])


def test_equal_errors_are_told_once_and_a_task_without_one_is_named(airflow: dict[str, str | None]):
    airflow |= {"step_01.rollout_0": SENTENCE, "step_01.rollout_1": SENTENCE, "step_01.rollout_2": None}
    assert [f"step_01.rollout_{index}" in told() for index in range(3)] == [True] * 3
    assert told().count(SENTENCE) == 1


def test_many_failures_stay_a_short_text(airflow: dict[str, str | None]):
    airflow |= {f"t_{number:02d}": f"error {number}" for number in range(25)}
    assert "t_19 and 5 more; t_00: error 0; t_01: error 1; t_02: error 2" in told()
    assert told().count("error") == 3


def test_the_training_says_why_its_epoch_failed_and_tries_again_unless_that_lasts(airflow: dict[str, str | None]):
    waiting = EpochRun(task_id="epoch_01", trigger_dag_id="train_searchqa_epoch", epoch=1, run={}, steps=10)
    event = ("trigger", {"run_ids": ["part"], "part": "failed"})
    with pytest.raises(AirflowException, match="failed with failed states"):
        waiting.execute_complete({}, event)
    airflow["step_01.rollout_0"] = SENTENCE
    with pytest.raises(AirflowException) as caught:
        waiting.execute_complete({}, event)
    assert f"step_01.rollout_0: {SENTENCE}" in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException)
    airflow["step_01.rollout_1"] = "the key is wrong."
    with pytest.raises(AirflowFailException, match="the key is wrong"):
        waiting.execute_complete({}, event)


FAILED = [Trajectory(item_id=f"i-{n}", status=Status.MODEL_ERROR, error=f"request {n}: who are you") for n in range(3)]
GOOD = [Trajectory(item_id="good", status=Status.OK)]
TOO_FEW = (
    "only 25% of the items have a score (95% are wanted); 3 of 4 items: model_error: request 0: who are you (for "
    "example item i-0)"
)


def test_a_retry_is_asked_for_with_the_reason():
    with pytest.raises(AirflowException) as caught:
        tell_rollouts(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=True)
    assert str(caught.value) == TOO_FEW


def test_without_a_retry_the_log_has_the_reason(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        tell_rollouts(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=False)
    assert caplog.messages == ["1 of 4 rollouts have a score; 3 model_error without a score", TOO_FEW]


def test_cut_answers_are_counted_and_many_are_a_warning(caplog: pytest.LogCaptureFixture):
    cut = [Trajectory(item_id=f"i-{n}", status=Status.TRUNCATED) for n in range(3)]
    with caplog.at_level(logging.INFO):
        tell_rollouts(RolloutTally.of([*cut, *GOOD], 4), 0.95, may_retry=True)
    told, warning = caplog.records
    assert told.getMessage() == "4 of 4 rollouts have a score; 3 of them cut off"
    assert (warning.levelname, "raise model.max_tokens" in warning.getMessage()) == ("WARNING", True)
