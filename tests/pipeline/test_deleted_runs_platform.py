"""A training whose epoch somebody deletes."""

import time
from contextlib import closing

import psycopg2
import pytest
from platform_control import RunningPlatform

from tests.pipeline.trained_run import DAG, EPOCH_DAG, SHORT, TrainedRun, executions, wait_for_task

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


@pytest.mark.platform
@pytest.mark.nightly
def test_a_training_goes_on_after_its_epoch_was_deleted(platform: RunningPlatform, plain: TrainedRun) -> None:
    name = f"deleted-{time.time_ns()}"
    run = TrainedRun.trigger(platform, name, SHORT | {"storage.prefix": f"{name}/"})
    epoch = f"{run.run_id}__epoch_01"
    wait_for_task(platform, DAG, run.run_id, "epoch_01", "deferred")
    wait_for_task(platform, EPOCH_DAG, epoch, "step_01.gate", "success")
    # Airflow's API only deletes runs that have ended; this is as fast as marking it failed and deleting it.
    address = platform.environment[DATABASE].replace("+psycopg2", "")
    with closing(psycopg2.connect(address)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("delete from dag_run where dag_id = %s and run_id = %s", (EPOCH_DAG, epoch))
    run.wait()
    assert executions(run) == {1}
    decisions = [(moment.name, moment.action, moment.candidate) for moment in run.history.moments]
    assert decisions == [(moment.name, moment.action, moment.candidate) for moment in plain.history.moments]
