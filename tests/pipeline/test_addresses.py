"""Addresses that lead to a DAG run."""

import pytest

from skillopt_airflow.pipeline.addresses import run_address

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
