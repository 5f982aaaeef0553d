"""The rows that a training leaves in Airflow's database, and its pause behind an epoch."""

from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

import psycopg2
from psycopg2 import sql

from bench.checkout import PLACE, Checkout, checkout, write_sample
from local.home import Home
from local.postgres import DATABASE

NAME = "scale"
EPOCHS, STEPS, BATCH = 2, 10, 8
PARSED = ("dag", "dag_code", "dag_version", "serialized_dag", "job", "asset", "team", "rendered")
"""Beginnings of the names of tables whose rows come from reading DAG files and from Airflow's own processes."""


class Left(NamedTuple):
    """The rows that a training left."""

    tasks: int
    """Task instances."""
    rows: int
    bytes: int
    gaps: list[float]
    """Seconds from the end of each epoch's DAG run to the end of the training's task that waits for it."""


def train() -> Left:
    """Train on a platform of its own.

    Raises:
        PlatformError: the training did not succeed.
    """
    folder = PLACE / ".local" / "data" / NAME
    layer = {
        "data": {"uri": str(folder), "split_mode": "split_dir"},
        "train": {"num_epochs": EPOCHS, "steps_per_epoch": STEPS, "batch_size": BATCH},
        "gradient": {"minibatch_size": 2},
        "evaluation": {"eval_test": False},
    }
    with checkout({NAME: layer}) as place:
        write_sample(folder, {"train": BATCH * STEPS, "val": BATCH, "test": BATCH})
        place.wait_for(NAME)
        before = _tables(place.home)
        run_id = place.run(f"train_{NAME}", {})
        after = _tables(place.home)
        epoch = f"train_{NAME}_epoch"
        runs = {f"train_{NAME}": [run_id], epoch: [run["dag_run_id"] for run in place.api.runs(epoch)]}
        tasks = sum(len(place.api.task_instances(dag, run)) for dag, found in runs.items() for run in found)
        rows, size = (sum(after[table][part] - before.get(table, (0, 0))[part] for table in after) for part in (0, 1))
        return Left(tasks, rows, size, _gaps(place, run_id))


def _tables(home: Home) -> Mapping[str, tuple[int, int]]:
    """Return rows and bytes, indexes included, of each table that runs write to."""
    connection = psycopg2.connect(host=str(home.sockets), user="postgres", dbname=DATABASE)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_stat_user_tables")
        names = [name for (name,) in cursor.fetchall() if not name.startswith(PARSED) or name == "dag_run"]
        found = {}
        for name in names:
            query = sql.SQL("SELECT count(*), pg_total_relation_size({}) FROM {}")
            cursor.execute(query.format(sql.Literal(name), sql.Identifier(name)))
            found[name] = cursor.fetchone()
        return found


def _gaps(place: Checkout, run_id: str) -> list[float]:
    rows = {row["task_id"]: row for row in place.api.task_instances(f"train_{NAME}", run_id)}
    gaps = []
    for run in place.api.runs(f"train_{NAME}_epoch"):
        number = run["dag_run_id"].rpartition("__epoch_")[2]
        ended = rows[f"epoch_{number}"]["end_date"]
        gaps.append((datetime.fromisoformat(ended) - datetime.fromisoformat(run["end_date"])).total_seconds())
    return gaps
