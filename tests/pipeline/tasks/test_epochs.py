"""The parts of a training, which are DAG runs of their own, go on only while it does."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.trigger_dagrun import DagIsPaused, TriggerDagRunOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DagRunTriggerException,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from airflow.sdk.execution_time.xcom import XCom

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.tasks import epochs
from skillopt_airflow.pipeline.tasks import stages as tasks
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.training.step import candidate, epoch_end, steps
from tests.pipeline.own_airflow import dags_of, printed
from tests.training.in_process import Training

DAG_FILE = """
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.pipeline.training import epoch_dag  # builds an Airflow DAG
dag = epoch_dag("searchqa", TrainConfig.from_layers({"train": {"steps_per_epoch": 1}}))
"""


CHUNKS: list[JsonObject] = [{"plan": "p", "index": 0}]
TRAINING = "manual__2026-11-21T04:00:00+00:00"


class Airflow:
    """What it knows of the training's DAG run."""

    state = "running"
    asked: tuple[str, str] | None = None

    def get_dr_count(self, dag_id: str, run_ids: list[str]) -> int:
        return int(bool(self.state))

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        self.asked = (dag_id, run_id)
        return self.state


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """A part of a training of two steps an epoch; what its stages would do, they have done."""
    training = Training.of()
    training.prepare()
    airflow = Airflow()
    ref = RunRef.model_validate(training.run.ref.model_dump() | {"epoch": 1})
    monkeypatch.setattr(tasks, "open_run", lambda _: TrainingRun(ref, training.models))
    monkeypatch.setattr(TrainingRun, "epoch_end", lambda run, kind: Moment(kind=kind, epoch=1, step=2))
    monkeypatch.setattr(candidate, "gate", lambda run, moment: SimpleNamespace(stopped=""))
    for module, stage in ((steps, "rollout"), (epoch_end, "compare_epochs"), (epoch_end, "meta_reflect")):
        monkeypatch.setattr(module, stage, lambda run, moment: CHUNKS)
    triggered(monkeypatch, airflow, f"{TRAINING}__epoch_01")
    return airflow


def triggered(monkeypatch: pytest.MonkeyPatch, airflow: Airflow, run_id: str) -> None:
    monkeypatch.setattr(epochs, "get_current_context", lambda: {"run_id": run_id, "ti": airflow})


def behind(monkeypatch: pytest.MonkeyPatch, *later: str, instances: Sequence[str] = (), dag: Any = None) -> None:
    """The tasks behind the one that runs, and the instances that Airflow has of all tasks."""
    states = {"child": dict.fromkeys(instances)} if instances else {}
    context = {
        "task": SimpleNamespace(get_flat_relative_ids=lambda upstream: set(later)),
        "ti": SimpleNamespace(get_task_states=lambda dag_id, run_ids: states),
        "dag": dag or SimpleNamespace(dag_id="train_searchqa_epoch"),
        "run_id": "child",
    }
    monkeypatch.setattr(tasks, "get_current_context", lambda: context)


BEGINNING: dict[str, Callable[[], Any]] = {
    "plan": lambda: tasks.plan.function({}),
    "gate": lambda: tasks.gate.function({}, 1),
    "compare_epochs": lambda: tasks.compare_epochs.function({}),
    "meta_reflect": lambda: tasks.meta_reflect.function({}),
}
"""The tasks that begin something, as far as they get."""


def test_a_part_goes_on_while_its_training_runs(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    def assert_all_begin() -> None:
        assert [begin() for begin in BEGINNING.values()] == [CHUNKS] * 4

    for state in ("running", "queued", "success"):
        airflow.state = state
        assert_all_begin()
        assert airflow.asked == ("train_searchqa", TRAINING)
    airflow.state = "failed"
    triggered(monkeypatch, airflow, "manual__by_hand")
    assert_all_begin()


@pytest.mark.parametrize("task", BEGINNING)
def test_no_step_begins_when_its_training_was_deleted(airflow: Airflow, task: str) -> None:
    airflow.state = ""
    with pytest.raises(AirflowFailException, match=f"run {re.escape(TRAINING)} of train_searchqa was deleted"):
        BEGINNING[task]()


@pytest.mark.nightly
@pytest.mark.parametrize("task", BEGINNING)
def test_no_step_begins_when_it_was_stopped(airflow: Airflow, task: str) -> None:
    airflow.state = "failed"
    with pytest.raises(AirflowFailException, match=r"task epoch_01"):
        BEGINNING[task]()


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
    behind(monkeypatch)
    tasks.gate.function({}, "slow_update")
    assert len(decided) == 1


def part_of(monkeypatch: pytest.MonkeyPatch, ref: JsonObject, stopped: str = "", **knobs: Any) -> TrainingRun:
    """Have the tasks be those of this part of a training; what its gates do, they do at once."""
    training = Training.of(**knobs)
    training.prepare()
    run = TrainingRun(RunRef.model_validate(training.run.ref.model_dump() | ref), training.models)
    monkeypatch.setattr(tasks, "open_run", lambda _: run)
    monkeypatch.setattr(candidate, "gate", lambda run, moment: SimpleNamespace(stopped=stopped))
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: False)
    return run


def skipped_by(task: Callable[[], Any]) -> list[Any]:
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        task()
    return list(skipped.value.tasks)


LATER = ("step_02.rollout", "step_02.gate", "slow_update.compare_epochs", "slow_update.gate", "meta_reflect.gate")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("ref", "knobs", "stopped", "kept"),
    [
        # The epoch's last step. What is behind a task that runs is not skipped before: the DAG run would succeed though
        # that task failed.
        ({"epoch": 2}, {}, "", ("slow_update", "meta_reflect")),
        ({"epoch": 1}, {}, "", ("slow_update", "meta_reflect")),
        ({"epoch": 2}, {}, "the budget is spent", ()),
        # A part that others follow, the last one, and one of so many tasks that the end is not in it.
        ({"epoch": 2, "offset": 0, "part": 1}, {"train__steps_per_epoch": 4}, "", ()),
        ({"epoch": 2, "part": 2, "ends": False}, {}, "", ()),
    ],
)
def test_what_a_dag_run_does_not_go_through_is_skipped_at_once(
    monkeypatch: pytest.MonkeyPatch, ref: JsonObject, knobs: JsonObject, stopped: str, kept: tuple[str, ...]
) -> None:
    part_of(monkeypatch, ref, stopped, **knobs)
    behind(monkeypatch, *LATER)
    skipped = skipped_by(lambda: tasks.gate.function({}, ref.get("part", 2)))
    assert set(LATER) - set(skipped) == {name for name in LATER if name.partition(".")[0] in kept}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("ref", "steps", "ends", "ahead"),
    [
        # Of six steps in three epochs. A batch is rolled out ahead behind the third step at the earliest, or beside a
        # slow update whose epoch another one follows.
        ({}, 2, True, {"step_01", "slow_update"}),
        ({"epoch": 1}, 2, False, set()),
        ({"epoch": 3}, 2, True, {"step_01"}),
        ({"offset": 1}, 1, True, {"slow_update"}),
        ({"offset": 2}, 0, True, {"slow_update"}),
    ],
)
def test_the_steps_that_a_part_has_not_are_skipped_before_the_others_begin(
    monkeypatch: pytest.MonkeyPatch, ref: JsonObject, steps: int, ends: bool, ahead: set[str]
) -> None:
    part_of(monkeypatch, {"epoch": 2} | ref, train__num_epochs=3)
    dag = epoch_dag("searchqa", TrainConfig.from_layers({"train": {"steps_per_epoch": 3}}))
    # Of an earlier attempt, in which the part had all steps.
    mapped = [f"step_{position:02d}.{name}_0" for position in (1, 2, 3) for name in ("rollout", "evaluate")]
    behind(monkeypatch, instances=[*dag.task_ids, *mapped], dag=dag)
    skipped = skipped_by(lambda: tasks.skip_unused_steps.function({}, 3))
    groups = {f"step_{position:02d}" for position in range(steps + 1, 4)}
    instances = [one for one in skipped if not isinstance(one, str)]
    names = [one for one in skipped if isinstance(one, str)]
    # What belongs to an end that the part has not is skipped by what comes before it.
    steps_and_ends = {f"step_{position:02d}" for position in range(1, steps + 1)} | ({"slow_update"} if ends else set())
    never_ahead = {f"{group}.speculate" for group in steps_and_ends - ahead}
    assert set(names) == {name for name in dag.task_ids if name.partition(".")[0] in groups} | never_ahead
    assert set(instances) == {(f"{group}.{name}", 0) for group in groups for name in ("rollout", "evaluate")}


def test_a_resumed_part_tells_which_step_of_the_training_its_first_group_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    part_of(monkeypatch, {"epoch": 2, "offset": 1, "part": 1}, train__num_epochs=3)
    behind(monkeypatch, dag=epoch_dag("searchqa", TrainConfig.from_layers({"train": {"steps_per_epoch": 2}})))
    skipped_by(lambda: tasks.skip_unused_steps.function({}, 2))
    assert "step_01 of this DAG run is step 4 of the training" in caplog.text


def test_an_epoch_of_which_every_part_is_gone_through_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = {"optimizer__use_slow_update": False, "optimizer__use_meta_skill": False}
    part_of(monkeypatch, {"epoch": 2}, train__num_epochs=3, train__speculative_rollout=True, **knobs)
    behind(monkeypatch, dag=epoch_dag("searchqa", TrainConfig.from_layers({"train": {"steps_per_epoch": 2}})))
    tasks.skip_unused_steps.function({}, 2)


@pytest.mark.parametrize(("epochs_of_run", "later"), [(1, ["epoch_02", "epoch_03"]), (3, None)])
def test_the_last_epoch_of_a_run_skips_those_of_the_graph_behind_it(
    monkeypatch: pytest.MonkeyPatch, epochs_of_run: int, later: list[str] | None
) -> None:
    parts = Parts(monkeypatch, 2, train__steps_per_epoch=2, train__num_epochs=epochs_of_run)
    dag = train_dag("searchqa", TrainConfig.from_layers({"train": {"steps_per_epoch": 2, "num_epochs": 3}}))
    behind_first = dag.get_task("epoch_01").get_flat_relative_ids()
    monkeypatch.setattr(epochs.EpochRun, "get_flat_relative_ids", lambda task, upstream: behind_first)
    if later is None:
        assert parts() == [(parts.run_id, 0)]
        return
    assert skipped_by(parts) == later


@pytest.mark.parametrize("stopped", ["the budget is spent", ""])
def test_what_an_earlier_attempt_mapped_is_skipped_with_what_lies_behind_a_gate(
    monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    part_of(monkeypatch, {"epoch": 1, "part": 1, "ends": False}, stopped)
    behind(monkeypatch, *LATER, instances=["step_01.rollout_0", "step_02.rollout_0", "step_02.rollout_1"])
    skipped = skipped_by(lambda: tasks.gate.function({}, 1))
    assert skipped == [*sorted(LATER), ("step_02.rollout", 0), ("step_02.rollout", 1)]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_meta_reflection_that_is_not_wanted_is_skipped_once_the_slow_update_has_succeeded(
    monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    run = part_of(monkeypatch, {"epoch": 2}, optimizer__use_meta_reflect=wanted)
    monkeypatch.setattr(tasks, "moment_at", lambda ref, at: (run, None))
    behind(monkeypatch, "meta_reflect.meta_reflect", "meta_reflect.gate")
    if wanted:
        assert tasks.gate.function({}, "slow_update") == []
        return
    skipped = skipped_by(lambda: tasks.gate.function({}, "slow_update"))
    assert skipped == ["meta_reflect.gate", "meta_reflect.meta_reflect"]


@pytest.mark.nightly
@pytest.mark.slow
def test_an_epoch_whose_end_fails_has_failed(tmp_path: Path) -> None:
    dags = dags_of(tmp_path, DAG_FILE)
    fail = ("slow_update.compare_epochs", "slow_update.slow_update", "slow_update.gate", "step_01.update")
    states = printed("epoch_probe", dags, *fail, "nothing")
    assert states == dict.fromkeys(fail, "failed") | {"nothing": "success"}


def test_a_dag_run_of_an_epochs_end_alone_skips_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    part_of(monkeypatch, {"epoch": 2, "offset": 2})
    behind(monkeypatch, *LATER)
    assert set(skipped_by(lambda: tasks.plan.function({}))) == {"step_02.rollout", "step_02.gate"}


def test_the_id_of_a_part_tells_the_task_that_goes_through_it_again() -> None:
    task = train_dag("searchqa", TrainConfig()).get_task("epoch_03")
    assert task.trigger_run_id == "{{ run_id }}__epoch_03"
    for part in ("", "_part_2"):
        wanted = "task epoch_03 of the training's run {{ run_id }}"
        assert epochs.task_to_clear(f"{task.trigger_run_id}{part}") == wanted
    assert epochs.task_to_clear(TRAINING) == "this task"


class Parts:
    """The parts that an epoch of a training triggers, each of which ends well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int, **knobs: Any) -> None:
        training = Training.of(**{"train__batch_size": 4, "train__num_epochs": 1} | knobs)
        training.prepare()
        self.steps_in_epoch = training.run.record.steps_in_epoch
        self.run_id = "a_part_2__epoch_01"
        self.committed = 0
        self.tries = 1
        self._steps = steps
        self._monkeypatch = monkeypatch
        self.conf: JsonObject = {}
        self.xcoms: JsonObject = {}
        self.models, self._ref = training.models, training.run.ref.model_dump(mode="json")

        def opened(ref: JsonObject) -> TrainingRun:
            return TrainingRun(
                RunRef.model_validate(training.run.ref.model_dump() | {"epoch": ref["epoch"]}), training.models
            )

        monkeypatch.setattr(epochs, "open_run", opened)
        monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: run.timeline.index(moment) <= self.committed)
        monkeypatch.setattr(TrainingRun, "stopped_before", lambda run, moment: False)

    def __call__(self) -> list[tuple[str, int]]:
        """The ids and offsets of the DAG runs, in order."""
        found = []
        going = self._triggered(lambda task, context: task.execute(context))
        while going is not None:
            found.append((going.dag_run_id, going.conf["offset"]))
            self.conf = going.conf
            ended = going.conf["offset"] + going.conf["part"] + going.conf["ends"]
            self.committed = max(self.committed, ended)
            event = ("trigger", {"run_ids": [going.dag_run_id], going.dag_run_id: "success"})
            going = self._triggered(partial(epochs.EpochRun.execute_complete, event=event))
        return found

    def _triggered(self, call: Callable[[epochs.EpochRun, Any], None]) -> Any:
        """What a process of the task triggers; there is another one after each wait."""
        task = epochs.EpochRun(task_id="epoch_01", trigger_dag_id="child", epoch=1, run=self._ref, steps=self._steps)
        task.trigger_run_id = self.run_id
        ti = SimpleNamespace(
            max_tries=0,
            try_number=self.tries,
            get_dag=lambda dag_id: SimpleNamespace(is_paused=False),
            xcom_push=lambda key, value: self.xcoms.update({key: value}),
        )
        asked: list[DagRunTriggerException] = []
        self._monkeypatch.setattr(epochs, "trigger_dag_run", asked.append)
        try:
            call(task, {"ti": ti})
        except TaskDeferred:
            [trigger] = asked
            return trigger
        return None


def test_an_epoch_covers_the_training_split_in_as_many_dag_runs_as_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 3, train__steps_per_epoch=None)
    # 120 items in batches of 4.
    assert parts.steps_in_epoch == 30
    run_id = parts.run_id
    later = [(f"{run_id}_part_{number}", 3 * (number - 1)) for number in range(2, 11)]
    assert parts() == [(run_id, 0), *later]
    # After a failure in the fourth one.
    parts.committed = 9
    assert parts() == later[2:]
    # And after one in the second step of a part, whose first step is done.
    parts.committed = 10
    assert parts() == [(f"{run_id}_part_4", 10), *later[3:]]
    # All is done: a task that failed behind its last step has nothing left to do, also when it is cleared.
    parts.committed = 30
    assert parts() == []
    # Who clears it once the training is over has the epoch gone through again, of which another try has nothing to do.
    parts.committed = 31
    assert parts() == [(run_id, 0), *later]
    parts.tries = 2
    assert parts() == []


def test_a_part_that_lost_steps_of_its_graph_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 10, train__steps_per_epoch=None)
    monkeypatch.setattr(TrainingRun, "stopped", lambda run: "")
    parts.committed = 2
    event = ("trigger", {"run_ids": [parts.run_id], parts.run_id: "success"})
    ended = partial(epochs.EpochRun.execute_complete, event=event)
    with pytest.raises(AirflowException, match=r"ended without steps/step_0010"):
        parts._triggered(ended)
    # The retry goes on behind what was done.
    going = parts._triggered(lambda task, context: task.execute(context))
    assert (going.conf["offset"], going.conf["part"]) == (2, 8)
    # A run that was stopped ends with the part in which it was.
    monkeypatch.setattr(TrainingRun, "stopped", lambda run: "the budget is spent")
    monkeypatch.setattr(TrainingRun, "stopped_before", lambda run, moment: True)
    assert parts._triggered(ended) is None


def test_a_run_that_was_stopped_in_the_middle_of_a_part_makes_no_further_step(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 10, train__steps_per_epoch=10)
    parts.committed = 5
    monkeypatch.setattr(TrainingRun, "stopped", lambda run: "the budget is spent")
    monkeypatch.setattr(TrainingRun, "stopped_before", lambda run, moment: run.timeline.index(moment) > 5)
    with pytest.raises(AirflowSkipException, match="the run was stopped: the budget is spent"):
        parts._triggered(lambda task, context: task.execute(context))


@pytest.mark.nightly
def test_no_part_begins_in_a_graph_that_lacks_what_its_run_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 3, model__batch=True)
    with pytest.raises(AirflowFailException, match=r"since this run began with model\.batch"):
        parts()


def test_an_epoch_behind_one_that_is_not_whole_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 2)
    monkeypatch.setattr(TrainingRun, "stopped", lambda run: "")
    monkeypatch.setattr(TrainingRun, "stopped_before", lambda run, moment: True)
    with pytest.raises(AirflowFailException, match=r"epoch 1 cannot begin"):
        parts._triggered(lambda task, context: task.execute(context))


def test_the_tasks_of_a_part_have_what_it_was_triggered_with_last(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 3, train__steps_per_epoch=4)
    places = []

    def get_one(key: str, **place: str) -> Any:
        places.append(place)
        return parts.xcoms.get(key)

    monkeypatch.setattr(XCom, "get_one", get_one)
    former = {"epoch": 1}
    found = [epochs.run_of_part("searchqa", run_id, former)["offset"] for run_id, _ in parts()]
    assert found == [0, 3]
    assert places == [{"dag_id": "train_searchqa", "task_id": "epoch_01", "run_id": "a_part_2"}] * 2
    # As Airflow renders it, with the conf that the part was first triggered with.
    dag = epoch_dag("searchqa", TrainConfig())
    context = {"run_id": f"{parts.run_id}_part_2", "dag_run": SimpleNamespace(conf=former)}
    [reference] = dag.get_task("plan").op_args
    assert dag.get_task("plan").render_template(reference, context, dag.get_template_env())["offset"] == 3
    # No training has triggered these, or not since it leaves this behind.
    parts.xcoms.clear()
    for run_id in ("manual__by_hand", parts.run_id, f"{parts.run_id}_part_three"):
        by_hand = {"epoch": 1, "benchmark": "searchqa", "overrides": {}, "prices": None}
        assert epochs.run_of_part("searchqa", run_id, former) == by_hand
        asked = {"benchmark": "other", "overrides": {"sandbox.timeout": 86_400}, "prices": {}}
        assert epochs.run_of_part("searchqa", run_id, former | asked) == by_hand
        assert epochs.run_of_part("searchqa", run_id, None) == {}


def test_steps_of_many_chunks_are_fewer_in_a_dag_run(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 10, train__steps_per_epoch=None, sandbox__items_per_container=1)
    # A step has 4 chunks of its batch, 24 of the selection split, and 5 other tasks.
    assert [offset for _, offset in parts()] == [0, 9, 18, 27]
    ref = RunRef.model_validate(parts.conf)
    assert (ref.offset, ref.part) == (27, 3)
    ref = ref.model_copy(update={"part": 9})
    run = TrainingRun(ref.model_copy(update={"offset": 9}), parts.models)
    found = [run.step(position) for position in range(1, 11)]
    assert [None if moment is None else moment.step for moment in found] == [*range(10, 19), None]


@pytest.mark.parametrize(
    ("steps", "fit", "parts"),
    [
        (10, 12, [(0, 10, True)]),
        # Ten steps fit, and the end behind them does not.
        (10, 11, [(0, 10, False), (10, 0, True)]),
        (25, 12, [(0, 10, False), (10, 10, False), (20, 5, True)]),
        (2, 1, [(0, 1, False), (1, 1, False), (2, 0, True)]),
    ],
)
def test_an_epochs_end_is_in_its_last_part_where_that_has_room(
    steps: int, fit: int, parts: list[tuple[int, int, bool]]
) -> None:
    assert epochs.epoch_parts(steps, fit, 10, ends=True) == parts


def test_an_end_that_failed_is_gone_through_again_without_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, 3, train__steps_per_epoch=4, optimizer__use_meta_reflect=True)
    assert parts() == [(parts.run_id, 0), (f"{parts.run_id}_part_2", 3)]
    # The steps are done.
    parts.committed = 4
    assert parts() == [(f"{parts.run_id}_part_2", 4)]
    assert (parts.conf["part"], parts.conf["ends"]) == (0, True)


def test_a_dag_that_is_paused_is_not_waited_for() -> None:
    config = TrainConfig()
    tasks = [*train_dag("searchqa", config).tasks, *regate_dag("searchqa", config).tasks]
    triggers = [task for task in tasks if isinstance(task, TriggerDagRunOperator)]
    assert {"ask", "epoch_01"} <= {task.task_id for task in triggers}
    ti = SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=True))
    for task in triggers:
        task.conf = {}
        with pytest.raises(DagIsPaused, match=f"Dag {task.trigger_dag_id} is paused"):
            TriggerDagRunOperator.execute(task, {"ti": ti})


class Part:
    """A part's DAG run as Airflow's triggerer and workers see it."""

    def __init__(self, *, state: str, tasks: int = 0, paused: bool = False) -> None:
        self.state, self.tasks, self.paused = state, tasks, paused

    def get_dr_count(self, dag_id: str, run_ids: list[str], states: Sequence[str] | None = None) -> int:
        return int(bool(self.state) and (states is None or self.state in states))

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        return self.state

    def get_ti_count(self, dag_id: str, run_ids: list[str], states: Sequence[str]) -> int:
        return self.tasks

    def get_dag(self, dag_id: str) -> Any:
        return SimpleNamespace(is_paused=self.paused)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (Part(state="success"), "success"),
        (Part(state="failed"), "failed"),
        (Part(state=""), "deleted"),
        (Part(state="running"), "idle"),
        (Part(state="queued"), "idle"),
        (Part(state="running", tasks=1), None),
    ],
)
def test_the_triggerer_sees_a_part_end_disappear_or_stand_still(
    monkeypatch: pytest.MonkeyPatch, part: Part, found: str | None
) -> None:
    monkeypatch.setattr(epochs.task_runner, "RuntimeTaskInstance", part)
    for name, seconds in (("POKE_SECONDS", 0.01), ("COUNT_SECONDS", 0.02), ("IDLE_SECONDS", 0.1)):
        monkeypatch.setattr(epochs, name, seconds)

    async def fired() -> str | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for event in epochs.PartTrigger("child", "one").run():
                    return str(event.payload[1]["one"])
        return None

    assert asyncio.run(fired()) == found


def looked_after(part: Part, state: str) -> None:
    task = epochs.EpochRun(task_id="epoch_01", trigger_dag_id="child", epoch=1, run={}, steps=1)
    task.execute_complete({"ti": part}, ("trigger", {"run_ids": ["one"], "one": state}))


def test_a_deleted_part_is_retried_and_one_without_its_tasks_says_what_to_do() -> None:
    with pytest.raises(AirflowException, match="run one of child was deleted"):
        looked_after(Part(state=""), "deleted")
    with pytest.raises(AirflowFailException, match="airflow db clean"):
        looked_after(Part(state="running"), "idle")


def test_a_paused_or_queued_part_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    for part in (Part(state="running", paused=True), Part(state="queued"), Part(state="running", tasks=1)):
        caplog.clear()
        with pytest.raises(TaskDeferred) as waiting:
            looked_after(part, "idle")
        assert (waiting.value.trigger.dag_id, waiting.value.trigger.run_id) == ("child", "one")
        assert ("DAG child is paused" in caplog.text) == part.paused
