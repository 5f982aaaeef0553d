"""The nights' DAG in a time zone; what its tasks do is tested on the platform, but for the news."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pendulum
import pytest
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.timetables.interval import CronDataIntervalTimetable as AirflowTimetable

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ModelUnreachable
from skillopt_airflow.pipeline import night_dag
from skillopt_airflow.pipeline.night_dag import decline_asset, regate_dag
from skillopt_airflow.pipeline.publishing import champion_asset
from skillopt_airflow.pipeline.tasks import triggered
from skillopt_airflow.pipeline.tasks.triggered import night_date
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from tests.pipeline.own_airflow import dags_of, printed
from tests.store.test_artifacts import provenance
from tests.training.in_process import configured
from tests.training.local_store import LocalStore

DAG_FILE = """
import os
from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from skillopt_airflow.pipeline.night_dag import _was_emitted, decline_asset
asset = decline_asset("searchqa")
with DAG("tells") as dag:
    @task(inlets=[asset], outlets=[asset])
    def tell():
        news = {"target": os.environ.get("TARGET", "own"), "date": "2026-11-01", "sha256": "0a"}
        context = get_current_context()
        if _was_emitted(context, asset, news):
            raise AirflowSkipException("the event was emitted before")
        context["outlet_events"][asset].extra = news
    tell()
"""


def config(timezone: str) -> TrainConfig:
    return configured("searchqa", {"regate.timezone": timezone})


@pytest.mark.parametrize(
    ("begin", "timezone", "date"),
    [
        # Midnight in Berlin, before and after the clocks change; and in Auckland.
        (datetime(2026, 10, 24, 22, tzinfo=UTC), "Europe/Berlin", "2026-10-25"),
        (datetime(2026, 10, 25, 23, tzinfo=UTC), "Europe/Berlin", "2026-10-26"),
        (datetime(2026, 10, 31, 11, tzinfo=UTC), "Pacific/Auckland", "2026-11-01"),
    ],
)
def test_a_night_has_the_date_of_its_time_zone(begin: datetime, timezone: str, date: str) -> None:
    assert night_date(begin, config(timezone)) == date


def test_a_run_by_hand_shortly_after_a_nights_end_is_that_night_and_one_at_midnight_is_not() -> None:
    timetable = AirflowTimetable(config("UTC").regate.schedule, timezone="UTC")

    def night(day: int, minute: int) -> str:
        moment = pendulum.datetime(2026, 11, day, 0, minute, tz="UTC")
        return night_date(timetable.infer_manual_data_interval(run_after=moment).start, config("UTC"))

    assert (night(22, 1), night(21, 0)) == ("2026-11-21", "2026-11-20")


def test_a_night_waits_some_minutes_for_a_model_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> NoReturn:
        raise ModelUnreachable("away")

    context: dict[str, datetime] = {}
    monkeypatch.setattr(night_dag, "get_current_context", lambda: context)
    # One without a date says which to give.
    with pytest.raises(AirflowFailException, match="00:01 of the next day"):
        night_dag.prepare_night.function("searchqa")
    context["data_interval_start"] = datetime(2026, 11, 20, tzinfo=UTC)
    monkeypatch.setattr(triggered, "checked_form", away)
    with pytest.raises(ModelUnreachable):
        night_dag.prepare_night.function("searchqa")
    task = regate_dag("searchqa", config("UTC")).get_task("prepare_night")
    schedule = regate_dag("searchqa", config("Europe/Berlin")).schedule
    assert isinstance(schedule, CronDataIntervalTimetable)
    assert str(getattr(schedule.timezone, "name", schedule.timezone)) == "Europe/Berlin"
    delays = (min(task.max_retry_delay, task.retry_delay * 2**tries) for tries in range(task.retries))
    assert sum(delays, timedelta()) >= timedelta(minutes=10)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_that_is_done_again_emits_no_second_event_but_for_another_target(tmp_path: Path) -> None:
    dags = dags_of(tmp_path, DAG_FILE)
    found = printed("news_probe", dags)
    assert found == {"states": ["success", "skipped", "success", "skipped", "success"], "told": [0, 1, 1]}


@pytest.mark.parametrize(("day", "heard"), [("2026-11-01", True), ("2026-11-02", False)])
def test_a_demotion_that_is_done_again_emits_no_second_event(
    monkeypatch: pytest.MonkeyPatch, day: str, heard: bool
) -> None:
    artifacts = ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "t"))
    artifacts.publish("# Skill\n", provenance("run"), None)
    alias = artifacts.champion.read()
    asset = champion_asset("searchqa")
    said = {"version": getattr(alias, "version", ""), "run": "run"}
    event = SimpleNamespace(source_dag_id="regate_searchqa", source_run_id="2026-11-01", extra=said)
    emitted = SimpleNamespace(extra=None)
    context = {
        "dag_run": SimpleNamespace(dag_id="regate_searchqa", run_id=day),
        "inlet_events": {asset: [event]},
        "outlet_events": {asset: emitted},
    }
    monkeypatch.setattr(night_dag, "get_current_context", lambda: context)
    monkeypatch.setattr(night_dag, "open_run", lambda run: SimpleNamespace(published=artifacts))
    monkeypatch.setattr("skillopt_airflow.training.champion.night_conclusion.demote", lambda run: alias)
    with pytest.raises(AirflowSkipException) if heard else nullcontext():
        night_dag.demote.function("searchqa", {})
    assert (emitted.extra is None) is heard


@pytest.mark.parametrize(("paused", "starts"), [(True, True), (False, True), (True, False)])
def test_an_event_that_would_start_no_training_is_neither_emitted_nor_counted_as_told(
    monkeypatch: pytest.MonkeyPatch, paused: bool, starts: bool
) -> None:
    told = []
    asset, emitted = decline_asset("searchqa"), SimpleNamespace(extra=None)
    context = {
        "dag_run": SimpleNamespace(dag_id="regate_searchqa", run_id="night"),
        "inlet_events": {asset: []},
        "outlet_events": {asset: emitted},
        "ti": SimpleNamespace(get_dag=lambda dag_id: SimpleNamespace(is_paused=paused and dag_id == "train_searchqa")),
    }
    rules = TrainConfig.from_layers({"regate": {"train_on_decline": starts}})
    news = {"target": "t", "date": "2026-11-01", "sha256": "1f"}
    monkeypatch.setattr(night_dag, "get_current_context", lambda: context)
    monkeypatch.setattr(night_dag, "open_run", lambda run: SimpleNamespace(config=rules))
    monkeypatch.setattr("skillopt_airflow.pipeline.tasks.triggered.base_target", lambda benchmark: "t")
    monkeypatch.setattr("skillopt_airflow.training.champion.night_conclusion.decline_event", lambda run, base: news)
    monkeypatch.setattr(
        "skillopt_airflow.training.champion.night_conclusion.claim_report", lambda run, *what: told.append(what) or True
    )
    refused = pytest.raises(AirflowFailException, match=r"train_searchqa is paused.*then clear this task")
    with refused if paused and starts else nullcontext():
        night_dag.tell.function("searchqa", {})
    assert emitted.extra == (None if paused and starts else news)
    assert told == ([] if paused and starts else [(news,)])


@pytest.mark.parametrize("task_id", ["demote", "tell"])
def test_who_tells_can_see_what_was_told(task_id: str) -> None:
    task = regate_dag("searchqa", config("UTC")).get_task(task_id)
    assert task.inlets == task.outlets != []
