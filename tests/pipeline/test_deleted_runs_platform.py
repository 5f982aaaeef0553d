"""A training whose epoch somebody deletes, and one whose tasks `airflow db clean` deletes."""

import time
from contextlib import closing

import psycopg2
import pytest
from platform_control import RunningPlatform

from tests.pipeline.trained_run import DAG, EPOCH_DAG, SHORT, TrainedRun, executions, wait_for_task

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def in_second_step(platform: RunningPlatform, name: str) -> tuple[TrainedRun, str]:
    """A training that has ended a step, and its epoch's DAG run."""
    run = TrainedRun.trigger(platform, f"{name}-{time.time_ns()}", SHORT | {"storage.prefix": f"{name}/"})
    epoch = f"{run.run_id}__epoch_01"
    wait_for_task(platform, DAG, run.run_id, "epoch_01", "deferred")
    wait_for_task(platform, EPOCH_DAG, epoch, "step_01.gate", "success")
    return run, epoch


def execute(platform: RunningPlatform, statement: str, *values: object) -> None:
    address = platform.environment[DATABASE].replace("+psycopg2", "")
    with closing(psycopg2.connect(address)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_a_training_goes_on_after_its_epoch_was_deleted(platform: RunningPlatform, plain: TrainedRun) -> None:
    run, epoch = in_second_step(platform, "deleted")
    # As who marks it failed and deletes it at once.
    execute(platform, "delete from dag_run where dag_id = %s and run_id = %s", EPOCH_DAG, epoch)
    run.wait()
    assert executions(run) == {1}
    decisions = [(moment.name, moment.action, moment.candidate) for moment in run.history.moments]
    assert decisions == [(moment.name, moment.action, moment.candidate) for moment in plain.history.moments]


def test_a_training_whose_tasks_were_cleaned_away_says_what_to_do_and_goes_on(
    platform: RunningPlatform, plain: TrainedRun
) -> None:
    run, epoch = in_second_step(platform, "cleaned")
    # What `airflow db clean` does to task instances that began before its timestamp, and to no other DAG's here.
    cleaned = "delete from task_instance where dag_id = %s and run_id = %s and state is distinct from 'running'"
    execute(platform, cleaned, EPOCH_DAG, epoch)
    wait_for_task(platform, DAG, run.run_id, "epoch_01", "failed", seconds=500)
    [row] = [row for row in run.task_instances() if row["task_id"] == "epoch_01"]
    assert any("airflow db clean" in line for line in run.log(row))
    platform.api.request("PATCH", f"/dags/{EPOCH_DAG}/dagRuns/{epoch}", json={"state": "failed"})
    assert platform.api.send("DELETE", f"/dags/{EPOCH_DAG}/dagRuns/{epoch}").is_success
    again = {"dry_run": False, "task_ids": ["epoch_01"], "dag_run_id": run.run_id, "include_downstream": True}
    platform.api.request("POST", f"/dags/{DAG}/clearTaskInstances", json=again)
    run.wait()
    assert executions(run) == {1}
    assert run.state == plain.state
