"""Nights that an outage swallowed, and the backfill that brings them."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import date as Date  # noqa: N812 - a date is called date wherever nights are spoken of
from datetime import datetime, time, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig, without
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.store.datasets import has_partition, partition_uri
from skillopt_airflow.store.night_table import Night

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST_DAYS = 366
"""How far back is looked; each day costs a few requests."""


def lost_nights(
    config: TrainConfig, benchmark: str, nights: Sequence[Night], date: str, earlier: Iterable[str], client: "S3Client"
) -> tuple[str, ...]:
    """Return the dates between the settled night before this one and this one whose items are there.

    Args:
        config: of this night.
        benchmark: its benchmark.
        nights: those that are settled.
        date: that of this night.
        earlier: dates on which a night began before it by the schedule, the newest first; no other is one of a night.
        client: for data in S3.
    """
    settled = [night.date for night in nights if night.date < date]
    if not settled:
        return ()
    since = max(max(settled), str(Date.fromisoformat(date) - timedelta(days=MOST_DAYS)))
    between = sorted({*takewhile(lambda day: day > since, earlier)} - {date})
    root = benchmarks.folder(benchmark)
    return tuple(day for day in between if has_partition(partition_uri(config.data, config.regate, day), root, client))


def backfill_of(
    dag_id: str, dates: Sequence[str], config: TrainConfig, base: str, overrides: Mapping[str, JsonValue]
) -> str:
    """Return Airflow's command that runs the nights from the first to the last of the dates.

    Args:
        dag_id: that of the nights' DAG.
        dates: YYYY-MM-DD, in their order.
        config: that of a night; it has the target and the time zone.
        base: the benchmark's own target, which a night needs not name.
        overrides: those of that night, which find the same items and the same nights before it.
    """
    zone = ZoneInfo(config.regate.timezone)
    first = datetime.combine(Date.fromisoformat(dates[0]), time(), zone).isoformat()
    # The end of the day, since a night may begin at any hour of it.
    last = datetime.combine(Date.fromisoformat(dates[-1]), time(23, 59, 59), zone).isoformat()
    target = str(config.model.target)
    asked: JsonObject = {} if target == base else {"target": target}
    overrides = without(overrides, "model.target")
    # Without one Airflow leaves a night's DAG run the configuration that it ran with last.
    conf = json.dumps(asked | ({"overrides": {**overrides}} if overrides else {}))
    return (
        f"airflow backfill create --dag-id {dag_id} --from-date {first} --to-date {last} --max-active-runs 1 "
        f"--reprocess-behavior completed --dag-run-conf {shlex.quote(conf)}"
    )
