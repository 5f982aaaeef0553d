from datetime import UTC, datetime, timedelta

import pytest

from skillopt_airflow.ui.skills_list import late_dags
from tests.ui.shelf import Tables

DAG = "regate_a"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVENING, MORNING = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
SCHEDULED = {"run_type": "scheduled", "logical_date": EVENING, "data_interval_start": EVENING}


def late(tables: Tables, hours: float = 6) -> bool:
    return late_dags(tables.session, {DAG: timedelta(hours=hours)}, NOW) == {DAG}


def test_a_night_that_has_not_succeeded_in_time_is_late(tables: Tables) -> None:
    tables.has_dag(DAG, due=MORNING + timedelta(days=1))
    tables.has_run(DAG, "night", state="running", data_interval_end=MORNING, **SCHEDULED)
    assert (late(tables), late(tables, hours=13)) == (True, False)


@pytest.mark.parametrize(("state", "kind"), [("success", "scheduled"), ("success", "backfill"), ("failed", "backfill")])
def test_only_the_newest_night_counts_and_no_backfill(tables: Tables, state: str, kind: str) -> None:
    tables.has_dag(DAG, due=MORNING + timedelta(days=1))
    earlier = {"logical_date": EVENING - timedelta(days=1), "data_interval_end": EVENING}
    tables.has_run(DAG, "earlier", state="failed", **SCHEDULED | earlier)
    tables.has_run(DAG, "night", state=state, data_interval_end=MORNING, **SCHEDULED | {"run_type": kind})
    assert not late(tables)


def test_a_night_that_airflow_never_began_is_late(tables: Tables) -> None:
    tables.has_dag(DAG, due=MORNING)
    assert (late(tables), late(tables, hours=13)) == (True, False)


def test_a_paused_dag_has_no_late_night(tables: Tables) -> None:
    tables.has_dag(DAG, paused=True, due=MORNING)
    tables.has_run(DAG, "night", state="failed", data_interval_end=MORNING, **SCHEDULED)
    assert not late(tables)
    assert late_dags(tables.session, {}, NOW) == set()
