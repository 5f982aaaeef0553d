"""The task that publishes, called as a function on a training in this process."""

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.run.history import History
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline import publishing
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication
from tests.store.test_artifacts import provenance
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

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


def told(training: Training) -> History:
    return training.store.get_model(training.run.keys.history, History)


@pytest.mark.nightly
def test_what_is_published_is_in_the_report_and_in_the_event_of_the_champions_asset(training: Training) -> None:
    published = publish()
    assert told(training).published is not None
    assert published["version"] == training.run.published.list_versions()[0]
    [event] = publishing.get_current_context()["outlet_events"].values()
    manifest = training.run.published.read(published["version"]).manifest
    assert (event.extra["version"], event.extra["sha256"]) == (published["version"], published["sha256"])
    assert event.extra["target"] == "openai-chat:stand-in-target"
    assert event.extra["scores"] == manifest.best_scores.model_dump(mode="json")
    assert event.extra["publish_gate"] == manifest.model_dump(mode="json")["publish_gate"]
    assert event.extra["scores"]["test"]["hard"] == told(training).test["best"].hard


@pytest.mark.nightly
def test_who_was_overtaken_is_told_what_to_do_and_does_not_try_again(training: Training) -> None:
    training.run.published.publish("# Faster\n", provenance("manual__b"), None)
    with pytest.raises(AirflowFailException) as raised:
        publish()
    said = str(raised.value)
    assert "run manual__b made v0001-" in said
    assert "trigger publish_searchqa with run = run" in said
    assert told(training).withheld == said
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
