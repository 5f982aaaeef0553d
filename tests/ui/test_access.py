from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from skillopt_airflow import benchmarks
from skillopt_airflow.ui import access, pages
from tests.ui.users import log_in

ANN = SimpleAuthManagerUser(username="ann", role="viewer")


def test_the_benchmarks_are_those_of_the_dags_that_a_user_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, ["train_searchqa", "train_docvqa", "another_dag", "regate_officeqa"])
    assert access.readable_benchmarks(ANN) == ["docvqa", "searchqa"]


def test_who_may_read_all_dags_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = log_in(monkeypatch)
    assert access.readable_benchmarks(ANN) == list(benchmarks.names())
    assert len(manager.asked) == len(benchmarks.names())


def test_a_right_to_a_dag_without_its_runs_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = log_in(monkeypatch)
    monkeypatch.setattr(manager, "is_authorized_dag", lambda *, access_entity=None, **_: access_entity is None)
    assert access.readable_benchmarks(ANN) == []


def test_a_dag_is_asked_about_as_its_team_s(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = log_in(monkeypatch)
    teams = {"train_searchqa": "search", "train_docvqa": "documents"}
    monkeypatch.setattr(access.DagModel, "get_dag_id_to_team_name_mapping", lambda dag_ids: teams)

    def of_search(*, details: Any, **_: Any) -> bool:
        return details.team_name == "search"

    monkeypatch.setattr(manager, "is_authorized_dag", of_search)
    assert access.readable_dags(["train_searchqa", "train_docvqa"], ANN) == {"train_searchqa"}


@pytest.mark.parametrize("benchmark", ["docvqa", "no-such-benchmark", "_template"])
def test_an_unreadable_benchmark_answers_like_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, benchmark: str
) -> None:
    log_in(monkeypatch, ["train_searchqa", "train_no-such-benchmark"])
    app = FastAPI()
    app.get("/of/{benchmark}", dependencies=[Depends(access.may_read)])(lambda benchmark: benchmark)
    app.dependency_overrides = pages.app.dependency_overrides
    with TestClient(app) as client:
        answer = client.get(f"/of/{benchmark}")
        assert (answer.status_code, answer.json()) == (403, {"detail": "Forbidden"})
        assert client.get("/of/searchqa").status_code == 200
