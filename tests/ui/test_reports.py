from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.pipeline.tasks import addresses
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.pages import STORED
from tests.training.in_process import InterruptedRun, Training
from tests.ui.conftest import StoredPage

PAGE = "<!doctype html><title>searchqa</title>"
RUN = "manual__2026-11-21T04-00-00-1a2b3c4d"


def path(run: str = RUN) -> str:
    return reports.REPORT_ROUTE.format(benchmark="searchqa", run=run)


def test_a_viewer_gets_the_stored_page_and_it_may_load_nothing(viewer: TestClient, bucket: StoredPage) -> None:
    bucket.holds_report(f"runs/searchqa/{RUN}/", PAGE)
    answer = viewer.get(path())
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'self'", "sandbox"} <= set(policy)
    assert not any("script-src" in rule for rule in policy)


def test_a_store_that_refuses_is_a_message(viewer: TestClient, bucket: StoredPage) -> None:
    bucket.refuses("AccessDenied", 403)
    answer = viewer.get(path())
    assert answer.status_code == 502
    assert "s3://skillopt" in answer.text
    assert answer.headers["content-security-policy"] == STORED["Content-Security-Policy"]


@pytest.mark.slow
def test_a_run_that_goes_on_shows_how_far_it_is(viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training.of(train__num_epochs=1, evaluation__eval_test=False, budget__max_calls=5000, reports=True)
    monkeypatch.setattr(reports, "open_bucket", lambda storage, bucket: training.store)
    address = path(training.run.ref.run)
    assert (viewer.get(address).status_code, "No report yet" in viewer.get(address).text) == (404, True)
    for task, words in (
        ("prepare", "Beginning: score_seed"),
        ("steps/step_0002/plan", "<strong>1 of 2 steps</strong>"),
    ):
        training.interrupt_after = task
        with suppress(InterruptedRun):
            training()
        answer = viewer.get(address)
        assert (answer.status_code, words in answer.text) == (200, True)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "<code>Step 2: rollout</code>" in answer.text
    assert "Estimated before the first call" in answer.text
    shown = html.document_fromstring(answer.text)
    assert {one.get("id") for one in shown.xpath("//*[@data-refresh]")} == {
        *("summary", "curve", "steps", "skill", "costs", "time")
    }
    # So that a part that renews keeps what is open, and where it was scrolled to.
    ids = shown.xpath("//*[@data-refresh]//details/@id")
    assert len(ids) == len(shown.xpath("//*[@data-refresh]//details")) == len(set(ids)) > 0
    training.interrupt_after = ""
    training()
    assert viewer.get(address).text == training.store.get_text(training.run.keys.report)


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
