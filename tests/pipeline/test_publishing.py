"""The tasks that publish and roll back, called as functions."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, StoreError
from skillopt_airflow.core.run.history import History
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline import night_dag, publishing
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.tasks.params import run_config
from skillopt_airflow.pipeline.tasks.triggered import checked_form, publishing_rules
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.training.champion import night_conclusion as training_night
from skillopt_airflow.training.champion import publication as training_publishing
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.store.test_artifacts import provenance
from tests.training.in_process import Training

FORM = {path: knob.value for path, knob in publishing.publish_form(TrainConfig()).items()}


def triggered(dag: DAG, conf: dict[str, Any] | None) -> Any:
    """The context as Airflow makes it: its Params have whatever the run was triggered with."""
    params = {name: dag.params.get_param(name).value for name in dag.params} | (conf or {})
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": params, "run_id": "manual__a"}


@pytest.fixture
def run() -> TrainingRun:
    """Settled under rules of its own."""
    training = Training.of(publishing__samples=3, publishing__gate_policy="strict")
    training.prepare()
    return training.run


@pytest.mark.nightly
def test_a_training_publishes_under_the_rules_that_it_settled(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled: list[PublishingGroup] = []
    monkeypatch.setattr(publishing, "open_run", lambda ref: run)
    monkeypatch.setattr(
        training_publishing, "plan_publication", lambda run, artifacts, name, rules: ruled.append(rules)
    )
    # The form of a benchmark.yaml that was edited meanwhile, with more epochs than the run has room for.
    edited = {"train.num_epochs": 50, "publishing.samples": 1, "publishing.approval": True, "overrides": {}}
    context = {"dag": train_dag("searchqa", TrainConfig()), "run_id": "manual__a", "params": edited}
    monkeypatch.setattr(publishing, "get_current_context", lambda: context)
    publishing.plan_publication.function({})
    assert ruled == [run.record.config.publishing]
    assert ruled[0].samples == 3


def test_a_publication_with_the_id_of_its_training_is_another_than_the_trainings_own(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(publishing, "open_run", lambda ref: run)
    monkeypatch.setattr(training_publishing, "plan_publication", lambda run, artifacts, name, rules: names.append(name))
    for dag_of, run_id in (
        (train_dag, run.ref.run),
        (publishing.publish_dag, run.ref.run),
        (publishing.publish_dag, "manual__a"),
    ):
        context = {"dag": dag_of("searchqa", TrainConfig()), "run_id": run_id}
        monkeypatch.setattr(publishing, "get_current_context", lambda context=context: context)
        publishing.plan_publication.function({})
    assert names == [run.ref.run, f"publish-{run.ref.run}", "manual__a"]


def test_a_finished_run_is_published_under_the_rules_of_the_form(run: TrainingRun) -> None:
    asked = FORM | {"publishing.samples": 2, "publishing.gate_policy": "exact_paired"}
    asked["overrides"] = {"publishing": {"approval": True}, "budget.max_calls": 9, "sandbox.memory": "1g"}
    rules = publishing_rules(run, asked)
    assert rules == {"publishing.samples": 2, "publishing.gate_policy": "exact_paired", "publishing.approval": True}
    late = TrainingRun(RunRef.model_validate(run.ref.model_dump() | {"overrides": rules}), run.connections).config
    assert late.publishing == PublishingGroup(samples=2, approval=True)
    assert late.train == run.config.train
    with pytest.raises(ConfigError, match=r"publishing\.approval_hours is fixed"):
        publishing_rules(run, FORM | {"overrides": {"publishing.approval_hours": 2}})


@pytest.mark.parametrize("unapproved", [False, True])
def test_a_run_older_than_the_approval_that_its_benchmark_asks_for(
    run: TrainingRun, unapproved: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    allowed = f"allowed: {{unapproved: {str(unapproved).lower()}}}"
    (tmp_path / "deployment.yaml").write_text(f"defaults: {{publishing: {{approval: true}}}}\n{allowed}")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    asked = FORM | {"publishing.approval": True}
    assert publishing_rules(run, asked)["publishing.approval"] is True
    for without in (asked | {"publishing.approval": False}, asked | {"overrides": {"publishing.approval": False}}):
        if unapproved:
            assert "publishing.approval" not in publishing_rules(run, without)
        else:
            with pytest.raises(ConfigError, match=r"publishing\.approval = False"):
                publishing_rules(run, without)


@pytest.mark.parametrize(
    ("dag_of", "conf", "said"),
    [
        (publishing.rollback_dag, {"target": "m"}, "target; allowed here: version, reason, "),
        (evaluate_dag, {"splt": ["val"], "skil": ["seed"]}, "skil, splt; allowed here: skills, targets, "),
        (train_dag, {"preset": "paper"}, "preset; a knob goes into overrides"),
    ],
)
def test_a_key_that_the_dag_has_no_field_for(
    dag_of: Callable[[str, TrainConfig], DAG],
    conf: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # It has no presets.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "benchmark.yaml").write_text("task: {prompt: '{{ q }}', reference: a, score: {by: exact}}")
    monkeypatch.setenv(LIST_VARIABLE, str(tmp_path / "mine"))
    with pytest.raises(ConfigError) as raised:
        checked_form(triggered(dag_of("mine", TrainConfig()), conf))
    assert str(raised.value).startswith(f"conf: no such key: {said}")


@pytest.mark.parametrize(
    ("dag_of", "conf"),
    [
        (regate_dag, None),
        (evaluate_dag, {"skills": ["# A\n\ntext\n"], "targets": ["a:b", "c:d"], "policy": "exact_paired"}),
        # Airflow's operator adds it to what it triggers a run with.
        (publishing.rollback_dag, {"version": "v", "reason": "r", "openlineage": {"parentRunId": "x"}}),
    ],
)
def test_keys_that_it_has(dag_of: Callable[[str, TrainConfig], DAG], conf: dict[str, Any] | None) -> None:
    context = triggered(dag_of("searchqa", TrainConfig()), conf)
    assert checked_form(context) == context["params"]


def test_the_question_of_a_night_is_one_that_a_rollback_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    night = SimpleNamespace(date="2026-11-20", previous=SimpleNamespace(version="v1"), target="m")
    row, seen = (
        SimpleNamespace(night=night, judgement=SimpleNamespace(reason="worse")),
        SimpleNamespace(version="v2", sequence=4),
    )
    config = TrainConfig.from_layers({"model": {"target_conn_id": "new_model"}, "regate": {"on_demote": "ask"}})
    published = SimpleNamespace(champion=SimpleNamespace(read=lambda: seen))
    monkeypatch.setattr(
        night_dag,
        "open_run",
        lambda ref: SimpleNamespace(ref=RunRef.model_validate(ref), config=config, published=published),
    )
    monkeypatch.setattr(training_night, "concluded_night", lambda run: (row, []))
    monkeypatch.setattr(training_night, "alias_to_demote", lambda row, nights, champion: champion)
    asked = night_dag.question_of.function({"benchmark": "searchqa", "run": "night", "storage": {}})
    context = triggered(publishing.rollback_dag("searchqa", TrainConfig()), asked["conf"])
    assert checked_form(context)["version"] == "v1"
    # Its type of connection may be another than that of the benchmark's own target.
    asked_of = run_config(TrainConfig(), checked_form(context)).model
    assert (asked_of.target, asked_of.target_conn_id) == ("m", "new_model")
    night.date = "2026-11-21"
    again = night_dag.question_of.function({"benchmark": "searchqa", "run": "the-next", "storage": {}})
    assert again["run_id"] == asked["run_id"] == f"demote__v2-4-{asked['run_id'][-8:]}"
    elsewhere = night_dag.question_of.function({"benchmark": "searchqa", "run": "n", "storage": {"prefix": "other/"}})
    assert elsewhere["run_id"] != asked["run_id"]


@pytest.mark.parametrize(
    ("dag_of", "module", "task"),
    [
        (publishing.rollback_dag, publishing, publishing.request_rollback),
        (publishing.publish_dag, publishing, publishing.open_finished),
        (regate_dag, night_dag, night_dag.prepare_night),
    ],
)
def test_its_first_task_fails_for_good(
    dag_of: Callable[[str, TrainConfig], DAG], module: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = triggered(dag_of("searchqa", TrainConfig()), {"model.name": "m"})
    context["data_interval_start"] = datetime(2026, 11, 20, tzinfo=UTC)
    monkeypatch.setattr(module, "get_current_context", lambda: context)
    with pytest.raises(AirflowFailException, match=r"^conf: no such key: model\.name"):
        task.function("searchqa")


def answered(option: str, *, timedout: bool = False) -> dict[str, Any]:
    """What Airflow resumes an approval with."""
    by = None if timedout else {"id": "1", "name": "somebody"}
    at = datetime(2026, 11, 20, tzinfo=UTC)
    who = {"responded_at": at, "responded_by_user": by, "timedout": timedout}
    return {"chosen_options": [option], "params_input": {}} | who


def complete(dag: DAG, task_id: str, event: dict[str, Any]) -> Any:
    task = dag.get_task(task_id)
    ti = SimpleNamespace(xcom_push=lambda key, value: None, map_index=-1)
    return task.execute_complete({"task": task, "ti": ti, "run_id": "manual__a"}, event)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the report is told."""
    said: list[str] = []
    monkeypatch.setattr(publishing, "open_run", lambda ref: ref)
    monkeypatch.setattr(publishing, "_report_withheld", lambda run, withheld: said.append(withheld))
    return said


@pytest.mark.parametrize(
    ("dag_of", "approve", "moves", "timedout", "said"),
    [
        (publishing.publish_dag, "publication.approve", "publication.publish", False, ["it was not approved"]),
        (train_dag, "publication.approve", "publication.publish", True, ["it was not approved within 2.5 hours"]),
        (publishing.rollback_dag, "approve", "move_back", True, []),
    ],
)
def test_what_is_rejected_moves_nothing_and_is_in_the_report_of_a_publication(
    dag_of: Callable[[str, TrainConfig], DAG],
    approve: str,
    moves: str,
    timedout: bool,
    said: list[str],
    told: list[str],
) -> None:
    dag = dag_of("searchqa", TrainConfig.from_layers({"publishing": {"approval_hours": 2.5}}))
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        complete(dag, approve, answered("Reject", timedout=timedout))
    assert (told, skipped.value.tasks) == (said, [moves])


def test_an_approval_goes_on_and_is_told_nowhere(told: list[str]) -> None:
    dag = publishing.publish_dag("searchqa", TrainConfig())
    assert complete(dag, "publication.approve", answered("Approve"))["chosen_options"] == ["Approve"]
    assert told == []


NAME = "manual__a"


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    """A run that passed the gate when there was no champion."""
    training = Training.of(
        train__num_epochs=1, optimizer__use_slow_update=False, evaluation__val_limit=None, evaluation__test_limit=60
    )
    training()
    training.run_containers(plan_publication(training.run, training.run.published, NAME, PublishingGroup()))
    assert gate_publication(training.run, NAME) == ""
    monkeypatch.setattr(publishing, "open_run", lambda ref: training.run)
    context = {"dag": train_dag("searchqa", TrainConfig()), "run_id": NAME, "outlet_events": Events()}
    monkeypatch.setattr(publishing, "get_current_context", lambda: context)
    return training


class Events(dict[Any, Any]):
    """What a task's assets were told."""

    def __missing__(self, asset: Any) -> Any:
        self[asset] = type("Event", (), {"extra": None})()
        return self[asset]


def publish() -> JsonObject:
    published: JsonObject = publishing.publish.function("searchqa", {})
    return published


def stored_history(training: Training) -> History:
    return training.store.get_model(training.run.keys.history, History)


@pytest.mark.nightly
def test_what_is_published_is_in_the_report_and_in_the_event_of_the_champions_asset(training: Training) -> None:
    published = publish()
    assert stored_history(training).published is not None
    assert published["version"] == training.run.published.list_versions()[0]
    [event] = publishing.get_current_context()["outlet_events"].values()
    manifest = training.run.published.read(published["version"]).manifest
    assert (event.extra["version"], event.extra["sha256"]) == (published["version"], published["sha256"])
    assert event.extra["target"] == "openai-chat:stand-in-target"
    assert event.extra["scores"] == manifest.best_scores.model_dump(mode="json")
    assert event.extra["publish_gate"] == manifest.model_dump(mode="json")["publish_gate"]
    assert event.extra["scores"]["test"]["hard"] == stored_history(training).test["best"].hard


@pytest.mark.nightly
def test_who_was_overtaken_is_told_what_to_do_and_does_not_try_again(training: Training) -> None:
    training.run.published.publish("# Faster\n", provenance("manual__b"), None)
    with pytest.raises(AirflowFailException) as raised:
        publish()
    said = str(raised.value)
    assert "run manual__b made v0001-" in said
    assert "trigger publish_searchqa with run = run" in said
    assert stored_history(training).withheld == said
    assert "trigger publish_searchqa with run = run" in training.store.get_text(training.run.keys.report)


@pytest.mark.nightly
def test_a_store_that_is_away_is_tried_again(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreError("the object store did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(training.models.artifacts, "list_keys", away)
        # Not the one of Airflow's that ends a task for good.
        with pytest.raises(StoreError, match="did not answer"):
            publish()
    assert publish()["created"] is True
