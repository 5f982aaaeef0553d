"""Addresses that lead to a DAG run, and to its report."""

from types import SimpleNamespace
from typing import Any

import pytest

from skillopt_airflow.pipeline.addresses import ReportLink, run_address

BASE = "AIRFLOW__API__BASE_URL"


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://airflow.corp/team/", "https://airflow.corp/team/dags/train_searchqa/runs/manual__2026%3A1"),
        ("", "/dags/train_searchqa/runs/manual__2026%3A1"),
    ],
)
def test_a_run_has_the_address_at_which_airflow_is_known(
    base: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BASE, base)
    assert run_address("train_searchqa", "manual__2026:1") == expected


def test_a_report_is_found_by_whatever_name_the_browser_knows_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BASE, "https://airflow.corp/team/")
    ended: Any = SimpleNamespace(dag_id="train_searchqa", run_id="manual__2026:1")
    link = ReportLink().get_link(operator=ended, ti_key=ended)
    assert link == "/team/skillopt/dag_runs/train_searchqa/manual__2026%3A1/report"
