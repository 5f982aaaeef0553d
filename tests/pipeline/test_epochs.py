"""The parts of a training, which are DAG runs of their own, go on only while it does."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import DagIsPaused, TriggerDagRunOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline import epochs, tasks
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.training import candidate, epoch_end, steps
from skillopt_airflow.training.run import RunRef, TrainingRun
from tests.training.in_process import Training

CHUNKS: list[JsonObject] = [{"plan": "p", "index": 0}]
TRAINING = "manual__2026-11-21T04:00:00+00:00"


class Airflow:
    """What it knows of the training's DAG run."""

    state = "running"
    asked: tuple[str, str] | None = None

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        self.asked = (dag_id, run_id)
        if not self.state:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        return self.state


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """A part of a training of two steps an epoch; what its stages would do, they have done."""
    training = Training.of()
    training.prepare()
    airflow = Airflow()
    ref = RunRef.model_validate(training.run.ref.model_dump() | {"epoch": 1})
    monkeypatch.setattr(tasks, "open_run", lambda _: TrainingRun(ref, training.models))
    monkeypatch.setattr(TrainingRun, "epoch_end", lambda run, kind: SimpleNamespace(kind=kind, epoch=1))
    monkeypatch.setattr(candidate, "gate", lambda run, moment: SimpleNamespace(stopped=""))
    for module, stage in ((steps, "rollout"), (epoch_end, "longitudinal"), (epoch_end, "meta_reflect")):
        monkeypatch.setattr(module, stage, lambda run, moment: CHUNKS)
    triggered(monkeypatch, airflow, f"{TRAINING}__epoch_01")
    return airflow


def triggered(monkeypatch: pytest.MonkeyPatch, airflow: Airflow, run_id: str) -> None:
    monkeypatch.setattr(epochs, "get_current_context", lambda: {"run_id": run_id, "ti": airflow})


def begin() -> list[Any]:
    """The tasks that begin something, as far as they get."""
    return [tasks.plan.function({}), tasks.gate.function({}, 1), tasks.longitudinal.function({})]


def test_a_part_goes_on_while_its_training_runs(airflow: Airflow) -> None:
    for state in ("running", "queued", "success"):
        airflow.state = state
        assert begin() == [CHUNKS] * 3
        assert airflow.asked == ("train_searchqa", TRAINING)


@pytest.mark.parametrize(
    "task",
    [
        lambda: tasks.plan.function({}),
        lambda: tasks.gate.function({}, 1),
        lambda: tasks.longitudinal.function({}),
        lambda: tasks.meta_reflect.function({}),
    ],
)
def test_no_step_begins_when_it_was_stopped(airflow: Airflow, task: Any) -> None:
    airflow.state = "failed"
    with pytest.raises(AirflowFailException, match=r"has failed, so .*; clear that run's task epoch_01, and"):
        task()


def test_what_was_decided_before_is_not_taken_back_when_it_was_stopped(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = []
    monkeypatch.setattr(candidate, "gate", lambda run, moment: decided.append(moment) or SimpleNamespace(stopped=""))
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: True)
    airflow.state = "failed"
    for at in (1, "slow_update"):
        with pytest.raises(AirflowFailException, match="has failed"):
            tasks.gate.function({}, at)
    assert decided == []
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: False)
    # What was paid for counts.
    tasks.gate.function({}, "slow_update")
    assert len(decided) == 1


def test_a_part_whose_training_is_not_known_goes_on(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow.state = ""
    assert begin() == [CHUNKS] * 3
    airflow.state = "failed"
    triggered(monkeypatch, airflow, "manual__by_hand")
    assert begin() == [CHUNKS] * 3


def test_the_id_of_a_part_tells_its_training_and_task() -> None:
    config = TrainConfig.from_layers({"train": {"num_epochs": 2, "steps_per_epoch": 12}})
    parts = [task for task in train_dag("searchqa", config).tasks if isinstance(task, epochs._ChildRun)]
    assert [task.task_id for task in parts[:3]] == ["epoch_01_part_1", "epoch_01_part_2", "epoch_01_end"]
    for task in parts:
        assert task.trigger_run_id == f"{{{{ run_id }}}}__{task.task_id}"
        training, _, part = task.trigger_run_id.rpartition(epochs.PART)
        assert (training, f"epoch_{part}") == ("{{ run_id }}", task.task_id)


def test_a_dag_that_is_paused_is_not_waited_for() -> None:
    config = TrainConfig()
    tasks = [*train_dag("searchqa", config).tasks, *regate_dag("searchqa", config).tasks]
    triggers = [task for task in tasks if isinstance(task, TriggerDagRunOperator)]
    assert {"ask", "epoch_01", "epoch_01_end"} <= {task.task_id for task in triggers}
    ti = SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=True))
    for task in triggers:
        task.conf = {}
        with pytest.raises(DagIsPaused, match=f"Dag {task.trigger_dag_id} is paused"):
            TriggerDagRunOperator.execute(task, {"ti": ti})
