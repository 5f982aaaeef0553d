"""When the calls of the models outside of the sandboxes are stored."""

import time
from collections.abc import Callable

import pytest

from skillopt_airflow.core.errors import StoreError, StoreUnavailable
from skillopt_airflow.core.values.pictures import NO_PICTURES
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.training.run import stage_models
from skillopt_airflow.training.run.stage_models import open_assistants
from tests.training.in_process import Training

PATIENCE = 60


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_calls_are_stored_before_their_task_ends_and_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_models, "STORE_SECONDS", 0.01)
    training = Training.of(budget__max_calls=20)
    training.prepare()
    run, refusals = training.run, [StoreError("no bucket"), StoreUnavailable("no answer")]
    put_bytes = training.store.put_bytes

    def put_without_answer(key: str, body: bytes) -> None:
        if "/usage/" not in f"/{key}" or len(refusals) != 2:
            put_bytes(key, body)
        if "/usage/" in f"/{key}" and refusals:
            raise refusals.pop(0)

    monkeypatch.setattr(training.store, "put_bytes", put_without_answer)
    with open_assistants(run, run.timeline[1], "reflect") as models:

        def ask(question: str) -> None:
            messages = [Message(role="system", content="Answer."), Message(role="user", content=question)]
            models.target.ask("reflect", messages, NO_PICTURES)

        ask("one?")
        # Whoever is killed from here on leaves the call in the table.
        assert eventually(lambda: len(run.usage.read("searchqa", run.ref.run)) == 1)
        monkeypatch.setattr(stage_models, "STORE_SECONDS", PATIENCE)
        ask("two?")
    assert refusals == []
    assert len(run.usage.read("searchqa", run.ref.run)) == 2
