"""For a process with an Airflow of its own: in each of two runs a task emits news, and does so again.

In the second run it does so for another target, too, which the environment variable TARGET names.

Arguments: a folder with one DAG file, whose only task emits. Prints the states, and the runs of the events.
"""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow.models.asset import AssetEvent
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.pipeline.stored_dag import store_dag

if __name__ == "__main__":
    dag = store_dag(Path(sys.argv[1]))
    states, runs = [], []
    for day in (1, 2):
        run = dag.test(logical_date=datetime(2026, 11, day, tzinfo=UTC))
        runs.append(run.run_id)
        [ti] = run.get_task_instances()
        states.append(ti.state)
        _run_task(ti=ti, task=dag.get_task(ti.task_id))
        [again] = run.get_task_instances()
        states.append(again.state)
    os.environ["TARGET"] = "another"
    _run_task(ti=again, task=dag.get_task(again.task_id))
    [other] = run.get_task_instances()
    states.append(other.state)
    with create_session() as session:
        told = [
            runs.index(event.source_run_id) for event in session.scalars(select(AssetEvent).order_by(AssetEvent.id))
        ]
    print(json.dumps({"states": states, "told": told}))
