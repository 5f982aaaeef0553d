import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber
from fastapi.testclient import TestClient

from skillopt_airflow.pipeline import addresses
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.pages import STORED
from tests.ui.users import log_in

PAGE = "<!doctype html><title>searchqa</title>"
RUN = "manual__2026-11-21T04-00-00-1a2b3c4d"


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    log_in(monkeypatch)
    with TestClient(reports.app) as client:
        yield client


def path(benchmark: str = "searchqa", run: str = RUN) -> str:
    return reports.REPORT_ROUTE.format(benchmark=benchmark, run=run)


def test_a_viewer_gets_the_stored_page_and_it_may_load_nothing(browser: TestClient, bucket: Stubber) -> None:
    body = StreamingBody(io.BytesIO(PAGE.encode()), len(PAGE))
    wanted = {"Bucket": "skillopt", "Key": f"runs/searchqa/{RUN}/report.html"}
    bucket.add_response("get_object", {"Body": body, "ETag": "1"}, wanted)
    answer = browser.get(path())
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'self'", "sandbox"} <= set(policy)
    assert not any("script-src" in rule for rule in policy)


@pytest.mark.parametrize(("code", "status"), [("NoSuchKey", 404), ("AccessDenied", 403)])
def test_a_missing_report_is_told_from_a_store_that_refuses(
    browser: TestClient, bucket: Stubber, code: str, status: int
) -> None:
    bucket.add_client_error("get_object", code, http_status_code=status)
    answer = browser.get(path())
    assert answer.status_code == (404 if code == "NoSuchKey" else 502)
    assert "s3://skillopt" in answer.text
    assert answer.headers["content-security-policy"] == STORED["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("benchmark", "run"),
    [
        ("no-such-benchmark", RUN),
        ("searchqa", "%2E%2E"),
        ("searchqa", "..%2F..%2Fsearchqa"),
        ("searchqa", "manual__2026-11-21T04:00:00+00:00"),
        ("searchqa", "a" * 121),
    ],
)
def test_what_is_no_name_never_reaches_the_store(
    browser: TestClient, bucket: Stubber, benchmark: str, run: str
) -> None:
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
