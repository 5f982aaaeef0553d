import pytest

from skillopt_airflow.report.view import ReportView
from tests.report.example_run import example


@pytest.fixture(scope="session")
def view() -> ReportView:
    return example()
