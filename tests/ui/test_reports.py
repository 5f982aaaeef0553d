from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient

from skillopt_airflow.pipeline import addresses
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.pages import STORED
from tests.ui.conftest import StoredPage

PAGE = "<!doctype html><title>searchqa</title>"
RUN = "manual__2026-11-21T04-00-00-1a2b3c4d"


def path(run: str = RUN) -> str:
    return reports.REPORT_ROUTE.format(benchmark="searchqa", run=run)


def test_a_viewer_gets_the_stored_page_and_it_may_load_nothing(viewer: TestClient, bucket: StoredPage) -> None:
    bucket.holds(f"runs/searchqa/{RUN}/report.html", PAGE)
    answer = viewer.get(path())
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'self'", "sandbox"} <= set(policy)
    assert not any("script-src" in rule for rule in policy)


@pytest.mark.parametrize(("code", "status"), [("NoSuchKey", 404), ("AccessDenied", 403)])
def test_a_missing_report_is_told_from_a_store_that_refuses(
    viewer: TestClient, bucket: StoredPage, code: str, status: int
) -> None:
    bucket.refuses(code, status)
    answer = viewer.get(path())
    assert answer.status_code == (404 if code == "NoSuchKey" else 502)
    assert "s3://skillopt" in answer.text
    assert answer.headers["content-security-policy"] == STORED["Content-Security-Policy"]


@pytest.mark.parametrize("run", ["%2E%2E", "..%2F..%2Fsearchqa", "manual__2026-11-21T04:00:00+00:00", "a" * 121])
def test_what_is_no_name_never_reaches_the_store(viewer: TestClient, bucket: StoredPage, run: str) -> None:
    assert viewer.get(path(run)).status_code == 404


@pytest.mark.parametrize("page", ["/docs", "/redoc", "/openapi.json"])
def test_nothing_but_the_route_is_served(viewer: TestClient, page: str) -> None:
    assert viewer.get(page).status_code == 404


def test_the_link_leads_to_the_page_of_the_dag_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://flow.example.org/team/")
    run_id = "manual__2026-11-21T04:00:00+00:00"
    ended: Any = type("Ended", (), {"dag_id": "train_searchqa", "run_id": run_id})()
    link = addresses.ReportLink().get_link(operator=ended, ti_key=ended)
    wanted = addresses.DAG_RUN_REPORT.format(dag_id="train_searchqa", run_id=run_id)
    assert unquote(link) == f"/team{addresses.UI_PREFIX}{wanted}"
    assert "+" not in link
