"""The errors of failed tasks: which are tried again, and what an alert and a waiting training tell of them."""

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom
from airflow.serialization.serialized_objects import DagSerialization

from local.served import served
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.failure_reasons import RolloutTally
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.pipeline.graph import dag_of
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.tasks import task_errors
from skillopt_airflow.pipeline.tasks.epochs import EpochRun
from skillopt_airflow.pipeline.tasks.task_errors import MAX_CHARS, check_coverage, failed_tasks, store_error
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from tests.pipeline.own_airflow import printed

SENTENCE = "8 of 8 items: model_error: who are you (for example item 3)"


def kept(error: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    store_error({"ti": SimpleNamespace(xcom_push=found.__setitem__), "exception": error})  # type: ignore[typeddict-item]
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
    assert len(kept(DataError("x" * 5000))["error"]["words"]) == MAX_CHARS
    assert kept(None) == kept("killed") == {}


def test_every_task_of_every_dag_keeps_its_error():
    for build in (train_dag, epoch_dag):
        for task in build("searchqa", TrainConfig()).tasks:
            partial = getattr(task, "partial_kwargs", None)
            callbacks = partial["on_failure_callback"] if partial else task.on_failure_callback
            assert store_error in (callbacks if isinstance(callbacks, list | tuple) else [callbacks])


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
        check_coverage(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=True)
    assert str(caught.value) == TOO_FEW


def test_without_a_retry_the_log_has_the_reason(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        check_coverage(RolloutTally.of([*FAILED, *GOOD], 4), 0.95, may_retry=False)
    assert caplog.messages == ["1 of 4 rollouts have a score; 3 model_error without a score", TOO_FEW]


def test_cut_answers_are_counted_and_many_are_a_warning(caplog: pytest.LogCaptureFixture):
    cut = [Trajectory(item_id=f"i-{n}", status=Status.TRUNCATED) for n in range(3)]
    with caplog.at_level(logging.INFO):
        check_coverage(RolloutTally.of([*cut, *GOOD], 4), 0.95, may_retry=True)
    told, warning = caplog.records
    assert told.getMessage() == "4 of 4 rollouts have a score; 3 of them cut off"
    assert (warning.levelname, "raise model.max_tokens" in warning.getMessage()) == ("WARNING", True)


SECRET = "hook-token-7c1e"
DAG_FILE = """
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.pipeline.night_dag import regate_dag  # builds an Airflow DAG
dag = regate_dag("searchqa", TrainConfig.from_layers({"alerts": {"conn_id": "on_call"}}))
"""


class Hook:
    """A chat program's webhook."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.said.append((self.path, json.loads(body)))
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.connection = json.dumps(
            {"conn_type": "http", "host": f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"}
        )


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    with served(hook.server):
        yield hook


def configured(**group: Any) -> TrainConfig:
    return TrainConfig.from_layers({"alerts": group})


@pytest.mark.nightly
@pytest.mark.slow
def test_a_failed_night_and_a_late_one_are_told_once_each(hook: Hook, tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "regate.py").write_text(DAG_FILE)
    variables = {"AIRFLOW__API__BASE_URL": "https://airflow.example.org/team", "AIRFLOW_CONN_ON_CALL": hook.connection}
    late_run, backfilled = sorted(printed("alert_probe", dags, **variables), reverse=True)
    assert backfilled.startswith("backfill__")
    log = (dags / "processor.log").read_text()
    assert len(hook.said) == 2, (hook.said, log)
    assert {path for path, _ in hook.said} == {f"/services/{SECRET}"}
    failed, late = (message for _, message in hook.said)
    for part in (f"run {failed['run_id']}, failed", "prepare_night: 24 of 24 items", failed["link"]):
        assert part in failed["text"]
    assert failed["run_id"].startswith("scheduled__")
    assert late["run_id"] == late_run != failed["run_id"]
    assert late["text"].startswith(f"regate_searchqa, run {late_run}, is late")
    assert late["link"] == f"https://airflow.example.org/team/dags/regate_searchqa/runs/{quote(late_run, safe='')}"
    assert SECRET not in json.dumps([failed, late])


def test_who_tells_of_a_failure_and_whom() -> None:
    config = configured(conn_id="on_call")
    assert train_dag("searchqa", config).on_failure_callback is not None
    # A training that waits or retries sends no alert.
    assert epoch_dag("searchqa", config).on_failure_callback is None
    dag = regate_dag("searchqa", configured())
    assert (dag.on_failure_callback, dag.deadline) == (None, None)


def test_a_night_is_due_so_many_hours_after_it_is_queued() -> None:
    dag = regate_dag("searchqa", configured(conn_id="on_call"))
    [deadline] = DagSerialization.to_dict(dag)["dag"]["deadline"]
    assert deadline["reference"] == {"reference_type": "DagRunQueuedAtDeadline"}
    assert dag.deadline[0].interval == timedelta(hours=6)


def ended_as(monkeypatch: pytest.MonkeyPatch, states: dict[str, str]) -> None:
    """Have Airflow's server answer that the tasks of every run ended so, and left no error."""
    ask = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states"
    monkeypatch.setattr(ask, lambda dag_id, run_ids: dict.fromkeys(run_ids, states))
    monkeypatch.setattr("airflow.sdk.execution_time.xcom.XCom.get_one", lambda **where: None)


def test_a_run_that_no_task_failed_says_why_and_a_refused_alert_is_an_error(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ON_CALL", hook.connection)
    ended_as(monkeypatch, {"measure_1": "failed"})
    with dag_of("train_x", "doc", "x", configured()) as dag:
        pass
    context: Any = {"dag": dag, "run_id": "manual__1", "reason": "task_failure"}
    task_errors.send_failure_alert("on_call", context)
    assert "failed tasks: measure_1. " in hook.said[0][1]["text"]
    ended_as(monkeypatch, {"measure": "success"})
    task_errors.send_failure_alert("on_call", context | {"reason": "timed_out"})
    assert "no task failed: timed_out. " in hook.said[1][1]["text"]
    hook.status = 500
    with pytest.raises(AirflowException, match="500"):
        task_errors.send_failure_alert("on_call", context)
