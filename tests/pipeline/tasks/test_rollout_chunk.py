"""The tasks of a chunk, the preflight and a batch ahead, with Airflow's operator and sandboxes that are threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from skillopt_airflow.core.errors import ModelUnavailable
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks import rollout_chunk
from skillopt_airflow.pipeline.tasks.rollout_chunk import Preflight, RolloutChunk, Speculation
from skillopt_airflow.sandbox.rollout_process import ProcessRuntime
from skillopt_airflow.training.rollouts.rollout_plan import find_chunk
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.gateway.foreign_server import ForeignServer, serving
from tests.training.in_process import Training
from tests.training.served_training import ROLES, Sandbox, ServedTraining, connect, training

KEY = "sk-the-right-key-0000"
CONTEXT = {"ti": SimpleNamespace(try_number=1, max_tries=2), "run_id": "manual"}


class InThreads:
    @contextmanager
    def open_runtime(self, workload: Any, folder: Any, attempt: int) -> Iterator[ProcessRuntime]:
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
    trained = training(evaluation__val_limit=60, sandbox__max_containers=1, model__concurrency=4)

    def opened(ref: Any) -> TrainingRun:
        return TrainingRun(RunRef.model_validate(ref), trained.run.connections)

    monkeypatch.setattr(rollout_chunk, "open_run", opened)
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
        ThreadChunk(task_id="score_seed", run=run, chunk=chunk).execute(CONTEXT)
    assert server.calls < 20


@pytest.mark.slow
@pytest.mark.nightly
def test_a_batch_ahead_is_rolled_out_a_chunk_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training.of(
        train__num_epochs=1,
        train__steps_per_epoch=2,
        preflight=False,
        train__speculative_rollout=True,
        sandbox__items_per_container=3,
    )
    training()
    run, rolled_out = training.run, list[JsonObject]()
    first, last = run.timeline[1:3]
    at = {1: first, 2: last}
    monkeypatch.setattr(RolloutChunk, "execute", lambda task, context: context.append(task.chunk))
    monkeypatch.setattr(rollout_chunk, "moment_at", lambda ref, position: (run, at[position]))
    # Nothing more of a step that is over.
    with pytest.raises(AirflowSkipException):
        Speculation(task_id="speculate", run={}, at=1).execute(rolled_out)
    assert rolled_out == []
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: False)
    Speculation(task_id="speculate", run={}, at=1).execute(rolled_out)
    chunks = [find_chunk(run, ref)[1] for ref in rolled_out]
    assert len(chunks) > 1
    assert {chunk.stage for chunk in chunks} == {"speculate"}
    items = [item for chunk in chunks for item in chunk.item_ids]
    assert sorted(items) == sorted(item.id for part in run.slices(last) for item in part)
    with pytest.raises(AirflowSkipException, match="no step follows"):
        Speculation(task_id="speculate", run={}, at=2).execute(rolled_out)
