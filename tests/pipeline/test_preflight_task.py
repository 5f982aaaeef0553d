"""The preflight's task and a chunk's, with the operator of Airflow and sandboxes that are threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.errors import ModelUnavailable
from skillopt_airflow.pipeline import preflight_task, rollout_chunk
from skillopt_airflow.pipeline.preflight_task import Preflight
from skillopt_airflow.pipeline.rollout_chunk import RolloutChunk
from skillopt_airflow.sandbox.rollout_process import ProcessRuntime
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_record import RunRef
from tests.gateway.foreign_server import ForeignServer, serving
from tests.training.served_training import ROLES, Sandbox, ServedTraining, connect, training

KEY = "sk-the-right-key-0000"
CONTEXT = {"ti": SimpleNamespace(try_number=1, max_tries=2), "run_id": "manual"}


class InThreads:
    @contextmanager
    def opened(self, workload: Any, folder: Any, attempt: int) -> Iterator[ProcessRuntime]:
        yield ProcessRuntime(workload, folder, Sandbox)


class ThreadPreflight(InThreads, Preflight): ...


class ThreadChunk(InThreads, RolloutChunk): ...


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with serving(ForeignServer(KEY)) as started:
        yield started


@pytest.fixture
def prepared(server: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> ServedTraining:
    for role in ROLES:
        connect(monkeypatch, role, server.base_url, KEY)
    trained = training(model__max_attempts=5, evaluation__val_limit=60, sandbox__max_containers=1, model__concurrency=4)

    def opened(ref: Any) -> TrainingRun:
        return TrainingRun(RunRef.model_validate(ref), trained.run.connections)

    for module in (preflight_task, rollout_chunk):
        monkeypatch.setattr(module, "open_run", opened)
    return trained


def task(prepared: ServedTraining) -> Any:
    prepared.prepare()
    run = prepared.run.ref.model_dump(mode="json")
    return ThreadPreflight(task_id="preflight", run=run, chunk=None)


@pytest.mark.nightly
def test_what_is_wrong_is_not_tried_again_by_airflow_and_what_may_come_back_is(
    prepared: ServedTraining, server: ForeignServer
) -> None:
    preflight = task(prepared)
    server.html = True
    with pytest.raises(AirflowFailException, match=r"^connection skillopt_target: "):
        preflight.execute(CONTEXT)
    server.html, server.status = False, 503
    with pytest.raises(ModelUnavailable, match=r"^connection skillopt_target: "):
        preflight.execute(CONTEXT)
    assert server.calls == 2 * 2 * 3
    server.status = 200
    preflight.execute(CONTEXT)


@pytest.mark.nightly
def test_a_hopeless_chunk_is_not_tried_again_by_airflow(prepared: ServedTraining, server: ForeignServer) -> None:
    (chunk,) = prepared.prepare()
    server.status = 404
    run = prepared.run.ref.model_dump(mode="json")
    with pytest.raises(AirflowFailException, match=r"^8 of 8 items: model_error: .*404.* connection skillopt_target"):
        ThreadChunk(task_id="evaluate_seed", run=run, chunk=chunk).execute(CONTEXT)
    assert server.calls < 20
