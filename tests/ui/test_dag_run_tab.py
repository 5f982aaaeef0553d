"""The report of a training in the tab of its DAG runs."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.pipeline.tasks import addresses
from skillopt_airflow.store.keys import run_name
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from skillopt_airflow.training.run.run_record import RunRef
from tests.ui.conftest import StoredPage
from tests.ui.shelf import Tables

PAGE = "<!doctype html><title>searchqa</title>"
TRAINING, EPOCH = "train_searchqa", "train_searchqa_epoch"
RUN_ID = "manual__2026-11-21T04:00:00+00:00"
MOVED = StorageGroup(bucket="elsewhere", prefix="team/a/")


def path(dag_id: str, run_id: str = RUN_ID) -> str:
    return addresses.DAG_RUN_REPORT.format(dag_id=dag_id, run_id=run_id)


def epoch_conf(**more: Any) -> dict[str, Any]:
    training = RunRef(benchmark="searchqa", run=run_name(RUN_ID), storage=StorageGroup())
    return training.model_dump(mode="json") | {"epoch": 2, "offset": 0} | more


@pytest.mark.parametrize(
    ("dag_id", "run_id", "conf", "storage"),
    [
        (TRAINING, RUN_ID, None, StorageGroup()),
        (TRAINING, RUN_ID, {"overrides": {"storage": MOVED.model_dump()}, "train.seed": 7}, MOVED),
        (EPOCH, f"{RUN_ID}__epoch_02", epoch_conf(storage=MOVED.model_dump()), MOVED),
        # Of a version that had other knobs.
        (TRAINING, RUN_ID, {"train.num_epochs": 99, "overrides": {"train.knob_that_was": 1}}, StorageGroup()),
    ],
)
def test_a_run_shows_the_report_of_its_training(
    viewer: TestClient,
    tables: Tables,
    bucket: StoredPage,
    dag_id: str,
    run_id: str,
    conf: dict[str, Any] | None,
    storage: StorageGroup,
) -> None:
    tables.has_run(dag_id, run_id, conf)
    bucket.holds_report(f"{storage.prefix}runs/searchqa/{run_name(RUN_ID)}/", PAGE, storage.bucket)
    answer = viewer.get(path(dag_id, run_id))
    assert (answer.status_code, answer.text) == (200, PAGE)


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        (TRAINING, {"overrides": {"storage.bucket": MOVED.bucket, "storage.conn_id": "theirs"}}),
        (EPOCH, epoch_conf(storage={"bucket": MOVED.bucket, "conn_id": "theirs"})),
        ("evaluate_searchqa", {"overrides": {"storage": {"bucket": MOVED.bucket, "conn_id": "theirs"}}}),
    ],
)
def test_a_storage_that_no_run_may_name_is_not_opened(
    viewer: TestClient,
    tables: Tables,
    bucket: StoredPage,
    monkeypatch: pytest.MonkeyPatch,
    dag_id: str,
    conf: dict[str, Any],
) -> None:
    monkeypatch.delenv(VARIABLE)
    tables.has_run(dag_id, RUN_ID, conf)
    answer = viewer.get(path(dag_id))
    assert answer.status_code in (404, 502)
    assert "storage.conn_id = &#39;theirs&#39;" in answer.text
    assert "storage.bucket and storage.prefix = &#39;s3://elsewhere/&#39;" in answer.text


@pytest.mark.parametrize("conf", [None, epoch_conf(benchmark="livemathematicianbench"), epoch_conf(run=RUN_ID)])
def test_an_epoch_that_no_training_triggered_reads_nothing(
    viewer: TestClient, tables: Tables, bucket: StoredPage, conf: dict[str, Any] | None
) -> None:
    tables.has_run(EPOCH, RUN_ID, conf)
    answer = viewer.get(path(EPOCH))
    assert (answer.status_code, "This run has no report" in answer.text) == (404, True)


def test_what_has_no_report_says_so(viewer: TestClient) -> None:
    for dag_id, run_id, status, said in (
        # Airflow shows the tab on the runs of every DAG.
        ("another_dag", RUN_ID, 200, "train_&lt;benchmark&gt;"),
        (TRAINING, "<script>alert(1)", 404, "&lt;script&gt;"),
    ):
        answer = viewer.get(path(dag_id, run_id))
        assert (answer.status_code, said in answer.text, "<script" in answer.text) == (status, True, False)
