from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from skillopt_airflow.ui import access
from skillopt_airflow.ui.plugin import app
from tests.ui.shelf import Tables
from tests.ui.users import log_in

ANN = SimpleAuthManagerUser(username="ann", role="viewer")
ROUTES = [one.path for one in app.routes if isinstance(one, APIRoute) and not one.path.startswith("/static")]
OF_DAG_RUNS = [route for route in ROUTES if "{dag_id}" in route]


@pytest.fixture
def browser(tables: Tables) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_login_or_the_right_no_page_shows_anything(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    def get(benchmark: str) -> Any:
        return browser.get(route.format(benchmark=benchmark, run="run", dag_id=f"train_{benchmark}", run_id="run"))

    own, unknown = get("searchqa"), get("no-such-benchmark")
    assert (own.status_code, unknown.status_code) == (401, 401)
    assert own.text == unknown.text
    log_in(monkeypatch, ["train_docvqa"])
    own, unknown = get("searchqa"), get("no-such-benchmark")
    assert own.status_code == unknown.status_code == (200 if route == "/skills" else 403)
    assert own.text == unknown.text
    assert "searchqa" not in own.text


@pytest.mark.parametrize("route", OF_DAG_RUNS)
@pytest.mark.parametrize("dag_id", ["train_searchqa_epoch", "publish_searchqa"])
def test_who_may_not_read_a_training_does_not_read_it_through_another_dag(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, dag_id: str, route: str
) -> None:
    log_in(monkeypatch, [dag_id])
    assert browser.get(route.format(dag_id=dag_id, run_id="run")).status_code == 403


def test_the_benchmarks_are_those_of_the_dags_that_a_user_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, ["train_searchqa", "train_docvqa", "another_dag", "regate_officeqa"])
    assert access.readable_benchmarks(Mock(), ANN) == ["docvqa", "searchqa"]


def test_a_right_to_a_dag_without_its_runs_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = log_in(monkeypatch)
    monkeypatch.setattr(manager, "is_authorized_dag", lambda *, access_entity=None, **_: access_entity is None)
    assert access.readable_benchmarks(Mock(), ANN) == []


def test_a_dag_is_asked_about_as_its_team_s(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = log_in(monkeypatch)
    teams = {"train_searchqa": "search", "train_docvqa": "documents"}
    monkeypatch.setattr(DagModel, "get_team_name", teams.get)
    monkeypatch.setattr(manager, "is_authorized_dag", lambda *, details, **_: details.team_name == "search")
    assert access.readable_benchmarks(Mock(), ANN) == ["searchqa"]


def test_a_benchmark_that_is_not_there_is_forbidden_to_who_may_read_its_dag(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    for benchmark in ("no-such-benchmark", "_template"):
        assert browser.get(f"/skills/{benchmark}").status_code == 403
