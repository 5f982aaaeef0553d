import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from botocore.response import StreamingBody
from botocore.stub import Stubber
from fastapi.testclient import TestClient

from skillopt_airflow.pipeline import addresses
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.pages import STORED

PAGE = "<!doctype html><title>searchqa</title>"
RUN = "manual__2026-11-21T04-00-00-1a2b3c4d"


@pytest.fixture
def browser() -> Iterator[TestClient]:
    with TestClient(reports.app) as client:
        yield client
    reports.app.dependency_overrides.clear()


def log_in(monkeypatch: pytest.MonkeyPatch, role: str | None) -> None:
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", SimpleAuthManager())
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    reports.app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="ann", role=role)


def path(benchmark: str = "searchqa", run: str = RUN) -> str:
    return reports.REPORT_ROUTE.format(benchmark=benchmark, run=run)


@pytest.mark.parametrize("benchmark", ["searchqa", "no-such-benchmark"])
def test_without_a_login_there_is_nothing_to_see(browser: TestClient, benchmark: str) -> None:
    answer = browser.get(path(benchmark))
    assert answer.status_code == 401
    assert PAGE not in answer.text


def test_a_user_without_a_role_may_not_read(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, role=None)
    assert browser.get(path()).status_code == 403


def test_a_viewer_gets_the_stored_page_and_it_may_load_nothing(
    browser: TestClient, bucket: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, role="viewer")
    body = StreamingBody(io.BytesIO(PAGE.encode()), len(PAGE))
    wanted = {"Bucket": "skillopt", "Key": f"runs/searchqa/{RUN}/report.html"}
    bucket.add_response("get_object", {"Body": body, "ETag": "1"}, wanted)
    answer = browser.get(path())
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'self'", "sandbox"} <= set(policy)
    assert not any("script-src" in rule for rule in policy)


def test_a_run_without_a_report_is_not_found(
    browser: TestClient, bucket: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, role="viewer")
    bucket.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    answer = browser.get(path())
    assert answer.status_code == 404
    assert "No report yet" in answer.text
    assert f"s3://skillopt/runs/searchqa/{RUN}/report.html" in answer.text
    assert answer.headers["content-security-policy"] == STORED["Content-Security-Policy"]


def test_a_store_that_refuses_is_named_and_not_taken_for_a_missing_report(
    browser: TestClient, bucket: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, role="viewer")
    bucket.add_client_error("get_object", "AccessDenied", http_status_code=403)
    answer = browser.get(path())
    assert answer.status_code == 502
    assert "This page cannot be read" in answer.text
    assert "s3://skillopt" in answer.text


@pytest.mark.parametrize(
    ("benchmark", "run"),
    [
        ("no-such-benchmark", RUN),
        ("_template", RUN),
        ("searchqa", ".."),
        ("searchqa", "%2E%2E"),
        ("searchqa", "..%2F..%2Fsearchqa"),
        ("searchqa", "manual__2026-11-21T04:00:00+00:00"),
        ("searchqa", "a" * 121),
    ],
)
def test_what_is_no_name_never_reaches_the_store(
    browser: TestClient, bucket: Stubber, monkeypatch: pytest.MonkeyPatch, benchmark: str, run: str
) -> None:
    log_in(monkeypatch, role="viewer")
    assert browser.get(path(benchmark, run)).status_code in (403, 404)


@pytest.mark.parametrize("page", ["/docs", "/redoc", "/openapi.json"])
def test_nothing_but_the_route_is_served(browser: TestClient, page: str) -> None:
    assert browser.get(page).status_code == 404


@pytest.mark.parametrize(
    ("base_url", "prefix"), [("http://localhost:8080", ""), ("https://flow.example.org/team/", "/team")]
)
def test_the_link_leads_to_the_page_of_the_dag_run(monkeypatch: pytest.MonkeyPatch, base_url: str, prefix: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    run_id = "manual__2026-11-21T04:00:00+00:00"
    ended: Any = type("Ended", (), {"dag_id": "train_searchqa", "run_id": run_id})()
    link = addresses.ReportLink().get_link(operator=ended, ti_key=ended)
    wanted = addresses.DAG_RUN_REPORT.format(dag_id="train_searchqa", run_id=run_id)
    assert unquote(link) == f"{prefix}{addresses.UI_PREFIX}{wanted}"
    assert "+" not in link
