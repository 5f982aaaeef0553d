import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from airflow.api_fastapi.core_api.security import get_user
from airflow.exceptions import AirflowNotFoundException
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from botocore.response import StreamingBody
from botocore.stub import Stubber
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline import addresses, dag_ids
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.deployment_file import VARIABLE
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.plugin import SkillOptPlugin

PAGE = "<!doctype html><title>searchqa</title>"
RUN_ID = "manual__2026-11-21T04:00:00+00:00"
KEY = f"runs/searchqa/{run_name(RUN_ID)}/report.html"
MOVED = StorageGroup(bucket="elsewhere", prefix="team/a/")


class Airflow:
    """The parts of Airflow that the pages look at: the user, and the table of DAG runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.asked: list[str] = []
        self.forbidden = ""
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        for table in ("dag_run", "xcom"):
            DagRun.metadata.tables[table].create(engine)
        self.session = Session(engine)
        reports.app.dependency_overrides[_get_session] = lambda: self.session

    def log_in(self, role: str | None = "viewer") -> None:
        manager = SimpleAuthManager()
        allowed = manager.is_authorized_dag

        def is_authorized_dag(*, details: Any, **others: Any) -> bool:
            self.asked.append(details.id)
            return details.id != self.forbidden and allowed(details=details, **others)

        self._monkeypatch.setattr(manager, "is_authorized_dag", is_authorized_dag)
        self._monkeypatch.setattr(airflow_app._AuthManagerState, "instance", manager)
        self._monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
        reports.app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="ann", role=role)

    def has_run(self, dag_id: str, run_id: str = RUN_ID, conf: dict[str, Any] | None = None) -> None:
        row = {"dag_id": dag_id, "run_id": run_id, "conf": conf, "run_type": "manual", "state": "success"}
        moment = datetime(2026, 11, 21, tzinfo=UTC)
        self.session.execute(insert(DagRun).values(**row, run_after=moment, log_template_id=1, span_status="ended"))


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Airflow]:
    airflow = Airflow(monkeypatch)
    yield airflow
    airflow.session.close()
    airflow.session.get_bind().dispose()  # type: ignore[union-attr]
    reports.app.dependency_overrides.clear()


@pytest.fixture
def browser() -> Iterator[TestClient]:
    with TestClient(reports.app) as client:
        yield client


def path(dag_id: str, run_id: str = RUN_ID) -> str:
    return addresses.DAG_RUN_REPORT.format(dag_id=dag_id, run_id=run_id)


def holds(bucket: Stubber, key: str = KEY, name: str = "skillopt") -> None:
    body = StreamingBody(io.BytesIO(PAGE.encode()), len(PAGE))
    bucket.add_response("get_object", {"Body": body, "ETag": "1"}, {"Bucket": name, "Key": key})


def epoch_conf(**more: Any) -> dict[str, Any]:
    training = RunRef(benchmark="searchqa", run=run_name(RUN_ID), storage=StorageGroup())
    return training.model_dump(mode="json") | {"epoch": 2, "offset": 0} | more


@pytest.mark.parametrize("dag_id", ["train_searchqa", "train_searchqa_epoch", "another_dag", "~"])
def test_without_a_login_there_is_nothing_to_see(browser: TestClient, airflow: Airflow, dag_id: str) -> None:
    airflow.has_run(dag_id)
    answer = browser.get(path(dag_id))
    assert answer.status_code == 401
    assert "report" not in answer.text.lower()


@pytest.mark.parametrize("dag_id", ["train_searchqa", "another_dag"])
def test_a_user_without_a_role_may_not_read(browser: TestClient, airflow: Airflow, dag_id: str) -> None:
    airflow.log_in(role=None)
    assert browser.get(path(dag_id)).status_code == 403


def test_a_training_shows_its_report(browser: TestClient, airflow: Airflow, bucket: Stubber) -> None:
    airflow.log_in()
    airflow.has_run("train_searchqa")
    holds(bucket)
    answer = browser.get(path("train_searchqa"))
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]


def test_a_training_that_stores_elsewhere_shows_its_report(
    browser: TestClient, airflow: Airflow, bucket: Stubber
) -> None:
    airflow.log_in()
    conf = {"overrides": {"storage.bucket": MOVED.bucket, "storage.prefix": MOVED.prefix}, "train.seed": 7}
    airflow.has_run("train_searchqa", conf=conf)
    holds(bucket, f"{MOVED.prefix}{KEY}", MOVED.bucket)
    assert browser.get(path("train_searchqa")).status_code == 200


def test_a_part_of_a_training_shows_the_training_s_report(
    browser: TestClient, airflow: Airflow, bucket: Stubber
) -> None:
    dag_id = dag_ids.epoch_dag_id("searchqa")
    airflow.log_in()
    airflow.has_run(dag_id, f"{RUN_ID}__epoch_02", epoch_conf(storage=MOVED.model_dump()))
    holds(bucket, f"{MOVED.prefix}{KEY}", MOVED.bucket)
    assert browser.get(path(dag_id, f"{RUN_ID}__epoch_02")).status_code == 200
    assert set(airflow.asked) == {dag_id, "train_searchqa"}


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("train_searchqa", {"overrides": {"storage.bucket": MOVED.bucket, "storage.conn_id": "theirs"}}),
        ("train_searchqa_epoch", epoch_conf(storage={"bucket": MOVED.bucket, "conn_id": "theirs"})),
        ("transfer_searchqa", {"overrides": {"storage": {"bucket": MOVED.bucket, "conn_id": "theirs"}}}),
    ],
)
def test_a_storage_that_no_run_may_name_is_not_opened(
    browser: TestClient,
    airflow: Airflow,
    bucket: Stubber,
    monkeypatch: pytest.MonkeyPatch,
    dag_id: str,
    conf: dict[str, Any],
) -> None:
    monkeypatch.delenv(VARIABLE)
    airflow.log_in()
    airflow.has_run(dag_id, conf=conf)
    answer = browser.get(path(dag_id))
    assert answer.status_code in (404, 502)
    assert "storage.conn_id = &#39;theirs&#39;: a run may name what benchmark.yaml names" in answer.text
    assert "storage.bucket and storage.prefix = &#39;s3://elsewhere/&#39;" in answer.text


def test_who_may_not_read_the_training_does_not_read_it_through_its_epoch(
    browser: TestClient, airflow: Airflow, bucket: Stubber
) -> None:
    airflow.log_in()
    airflow.forbidden = "train_searchqa"
    airflow.has_run("train_searchqa_epoch", conf=epoch_conf())
    assert browser.get(path("train_searchqa_epoch")).status_code == 403


@pytest.mark.parametrize(
    "conf",
    [
        None,
        {},
        {"run": "x"},
        epoch_conf(benchmark="livemathematicianbench"),
        epoch_conf(run="../../x"),
        epoch_conf(run=RUN_ID),
    ],
)
def test_an_epoch_that_no_training_triggered_reads_nothing(
    browser: TestClient, airflow: Airflow, bucket: Stubber, conf: dict[str, Any] | None
) -> None:
    airflow.log_in()
    airflow.has_run("train_searchqa_epoch", conf=conf)
    answer = browser.get(path("train_searchqa_epoch"))
    assert answer.status_code == 404
    assert "This run has no report" in answer.text


def test_a_training_with_a_bad_storage_says_what_is_bad(browser: TestClient, airflow: Airflow, bucket: Stubber) -> None:
    airflow.log_in()
    airflow.has_run("train_searchqa", conf={"overrides": {"storage.buckit": "<b>"}})
    answer = browser.get(path("train_searchqa"))
    assert answer.status_code == 404
    assert "storage.buckit" in answer.text


def test_a_training_under_a_configuration_of_former_days_is_found(
    browser: TestClient, airflow: Airflow, bucket: Stubber
) -> None:
    airflow.log_in()
    airflow.has_run("train_searchqa", conf={"train.num_epochs": 99, "overrides": {"train.knob_that_was": 1}})
    bucket.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    # It was looked for in the bucket, not refused.
    assert "train.num_epochs" not in browser.get(path("train_searchqa")).text
    bucket.assert_no_pending_responses()


def test_a_training_that_goes_on_says_what_to_wait_for(browser: TestClient, airflow: Airflow, bucket: Stubber) -> None:
    airflow.log_in()
    airflow.has_run("train_searchqa")
    bucket.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    answer = browser.get(path("train_searchqa"))
    assert answer.status_code == 404
    assert "No report yet" in answer.text
    assert "when the DAG run has ended" in answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_another_dag_has_no_report(browser: TestClient, airflow: Airflow) -> None:
    airflow.log_in()
    answer = browser.get(path("another_dag"))
    assert answer.status_code == 404
    assert "This DAG has no report" in answer.text
    assert "train_&lt;benchmark&gt;" in answer.text


def test_a_run_that_is_not_there(browser: TestClient, airflow: Airflow, bucket: Stubber) -> None:
    airflow.log_in()
    answer = browser.get(path("train_searchqa", "<script>alert(1)"))
    assert answer.status_code == 404
    assert "&lt;script&gt;" in answer.text
    assert "<script" not in answer.text


def test_a_connection_that_is_not_there_is_named(
    browser: TestClient, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_bucket(storage: StorageGroup, bucket: str) -> ObjectStore:
        raise AirflowNotFoundException(f"The conn_id `{storage.conn_id}` isn't defined")

    monkeypatch.setattr(reports, "open_bucket", open_bucket)
    airflow.log_in()
    airflow.has_run("train_searchqa")
    answer = browser.get(path("train_searchqa"))
    assert answer.status_code == 502
    assert "skillopt_s3" in answer.text


def test_airflow_takes_the_tab_and_its_address_is_the_page_s() -> None:
    view = SkillOptPlugin.external_views[0]
    assert ExternalViewResponse.model_validate(view).destination == "dag_run"
    filled = view["href"].replace("{DAG_ID}", "train_searchqa").replace("{RUN_ID}", RUN_ID)
    assert f"/{filled}" == f"{addresses.UI_PREFIX}{path('train_searchqa')}"
