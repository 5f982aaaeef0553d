"""The tab that shows what was found about the data of a run."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.store.keys import night_name, run_name, scoring_name
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.reports import DagRunRow
from tests.training.served_training import connect
from tests.ui.conftest import StoredPage
from tests.ui.shelf import Tables

PAGE = "<!doctype html><title>quality</title>"
RUN_ID = "manual__2026-11-21T04:00:00+00:00"
DAY = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", "m")


def begin(monkeypatch: pytest.MonkeyPatch, row: DagRunRow | None) -> None:
    monkeypatch.setitem(reports.app.dependency_overrides, reports.row_of, lambda: row)


def path(dag_id: str) -> str:
    return reports.QUALITY_ROUTE.format(dag_id=dag_id, run_id=RUN_ID)


def epoch() -> dict[str, Any]:
    return RunRef(benchmark="searchqa", run="the-training", storage=StorageGroup()).model_dump(mode="json")


@pytest.mark.parametrize(
    ("dag_id", "conf", "run"),
    [
        ("train_searchqa", {"overrides": {"storage.prefix": "team/"}}, run_name(RUN_ID)),
        ("train_searchqa_epoch", epoch(), "the-training"),
        ("evaluate_searchqa", {"overrides": {"storage.prefix": "team/"}, "splits": ["val"]}, scoring_name(RUN_ID)),
        ("regate_searchqa", {"overrides": {"storage.prefix": "team/"}}, night_name("2026-11-20", "openai-chat:m")),
        ("regate_searchqa", {"target": "openai-chat:new"}, night_name("2026-11-20", "openai-chat:new")),
    ],
)
def test_a_run_shows_the_page_of_its_data(
    viewer: TestClient, bucket: StoredPage, monkeypatch: pytest.MonkeyPatch, dag_id: str, conf: dict[str, Any], run: str
) -> None:
    begin(monkeypatch, DagRunRow(conf, DAY))
    prefix = conf.get("overrides", {}).get("storage.prefix", "")
    bucket.holds(f"{prefix}runs/searchqa/{run}/data_quality.html", PAGE)
    answer = viewer.get(path(dag_id))
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("dag_id", ["evaluate_searchqa", "regate_searchqa"])
def test_a_storage_that_no_run_may_name_is_not_opened(
    viewer: TestClient, bucket: StoredPage, monkeypatch: pytest.MonkeyPatch, dag_id: str
) -> None:
    monkeypatch.delenv(VARIABLE)
    begin(monkeypatch, DagRunRow({"overrides": {"storage.conn_id": "theirs"}}, DAY))
    answer = viewer.get(path(dag_id))
    assert answer.status_code == 200
    assert "storage.conn_id = &#39;theirs&#39;" in answer.text


@pytest.mark.parametrize(
    ("dag_id", "row", "said"),
    [
        ("train_searchqa", None, "has no run"),
        ("another_dag", DagRunRow({}, DAY), "train_&lt;benchmark&gt;"),
        ("regate_searchqa", DagRunRow({}, None), "train_&lt;benchmark&gt;"),
        ("train_searchqa", DagRunRow({"overrides": {"storage.<b>": 1}}, DAY), "storage.&lt;b&gt;"),
    ],
)
def test_what_has_no_page_says_so(
    viewer: TestClient, monkeypatch: pytest.MonkeyPatch, dag_id: str, row: DagRunRow | None, said: str
) -> None:
    begin(monkeypatch, row)
    answer = viewer.get(path(dag_id))
    # Airflow shows the tab on the runs of every DAG.
    assert answer.status_code == (404 if row is None else 200)
    assert said in answer.text


def test_a_run_s_row_is_what_airflow_says_of_it(tables: Tables) -> None:
    tables.has_run("evaluate_searchqa", RUN_ID, {"split": "val"})
    assert reports.row_of("train_searchqa", RUN_ID, tables.session) is None
    assert reports.row_of("evaluate_searchqa", RUN_ID, tables.session) == DagRunRow({"split": "val"}, None)
