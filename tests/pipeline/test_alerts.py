"""Alerts through Airflow's own parts: the DAG processor's callbacks, the scheduler's deadlines, the triggerer."""

import json
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.serialization.serialized_objects import DagSerialization

from local.served import served
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.pipeline import alerts
from skillopt_airflow.pipeline.graph import dag_of
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from tests.pipeline.own_airflow import printed

SECRET = "hook-token-7c1e"
DAG_FILE = """
from skillopt_airflow.core.config import TrainConfig
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
    alerts.tell_failure("on_call", context)
    assert "failed tasks: measure_1. " in hook.said[0][1]["text"]
    ended_as(monkeypatch, {"measure": "success"})
    alerts.tell_failure("on_call", context | {"reason": "timed_out"})
    assert "no task failed: timed_out. " in hook.said[1][1]["text"]
    hook.status = 500
    with pytest.raises(AirflowException, match="500"):
        alerts.tell_failure("on_call", context)
