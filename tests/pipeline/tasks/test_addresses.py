"""Addresses that lead to a DAG run."""

import pytest

from skillopt_airflow.pipeline.tasks.addresses import run_url

BASE = "AIRFLOW__API__BASE_URL"


def test_a_run_has_the_address_at_which_airflow_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/dags/train_searchqa/runs/manual__2026%3A1"
    for base, expected in (("https://airflow.corp/team/", f"https://airflow.corp/team{path}"), ("", path)):
        monkeypatch.setenv(BASE, base)
        assert run_url("train_searchqa", "manual__2026:1") == expected
