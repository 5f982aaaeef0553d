"""The nights' DAG in a time zone; what its tasks do is tested on the platform."""

from datetime import UTC, datetime

import pytest
from airflow.sdk import CronDataIntervalTimetable

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.triggered import night_date
from tests.training.in_process import configured


def config(timezone: str) -> TrainConfig:
    return configured("searchqa", {"regate.timezone": timezone})


@pytest.mark.parametrize(
    ("begin", "timezone", "date"),
    [
        (datetime(2026, 11, 1, tzinfo=UTC), "UTC", "2026-11-01"),
        # Midnight in Berlin, before and after the clocks change; and in Auckland.
        (datetime(2026, 10, 24, 22, tzinfo=UTC), "Europe/Berlin", "2026-10-25"),
        (datetime(2026, 10, 25, 23, tzinfo=UTC), "Europe/Berlin", "2026-10-26"),
        (datetime(2026, 10, 31, 11, tzinfo=UTC), "Pacific/Auckland", "2026-11-01"),
    ],
)
def test_a_night_has_the_date_of_its_time_zone(begin: datetime, timezone: str, date: str) -> None:
    assert night_date(begin, config(timezone)) == date


def test_the_schedule_is_in_the_time_zone() -> None:
    timetable = regate_dag("searchqa", config("Europe/Berlin")).schedule
    assert isinstance(timetable, CronDataIntervalTimetable)
    assert str(getattr(timetable.timezone, "name", timetable.timezone)) == "Europe/Berlin"
