"""A run whose provider keeps failing, whose worker and scheduler are killed, and whose key must not show up anywhere.

What containers know is in tests/sandbox/test_operator.py and test_escapes.py there.
"""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import docker
import pandas as pd
import psutil
import psycopg2
import pyarrow.parquet as pq
import pytest
from platform_control import RunningPlatform, control

from local import services
from local.served import served
from skillopt_airflow.core.errors import ObjectMissing
from tests.pipeline.faulty_model import FaultyModel
from tests.pipeline.trained_run import (
    DAG,
    SHORT,
    TrainedRun,
    create_connection,
    executions,
    stand_in,
    trajectories,
    wait_for_task,
)

pytestmark = pytest.mark.platform

KEY = "sk-distinctive-5f1c0b9e77aa"
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
HOLDS_CONNECTIONS = "connection"
CONCURRENCY = 4


@dataclass(frozen=True)
class FaultyRun:
    began: datetime
    """Before it nobody knew the key."""
    run: TrainedRun
    server: FaultyModel
    stored_before: int
    """Rows of the first step's rollout when the worker was killed."""


@pytest.fixture(scope="module")
def faulty(own: RunningPlatform, plain_started: TrainedRun) -> Iterator[FaultyRun]:
    """Beside the run that it is compared with, for which the first test that wants this one must not wait."""
    name, began = f"faulty-{time.time_ns()}", datetime.now(UTC) - timedelta(seconds=2)
    with served(FaultyModel(stand_in(own), hang=10.0)) as server:
        for role in ("target", "optimizer"):
            model = f"openai-chat:stand-in-{role}"
            create_connection(own, f"skillopt_faulty_{role}", server.base_url, model, password=KEY)
        settings = {f"model.{role}_conn_id": f"skillopt_faulty_{role}" for role in ("target", "optimizer")}
        settings |= {"model.call_timeout": 3.0, "storage.prefix": f"{name}/"}
        settings |= {"model.concurrency": CONCURRENCY}
        run = TrainedRun.trigger(own, name, SHORT | settings)
        # It makes fewer tries of a call.
        wait_for_task(own, DAG, run.run_id, "preflight", "success")
        server.fails = True
        wait_for_task(own, DAG, run.run_id, "score_seed", "success")
        server.delay = 1.5
        stored_before = rows_of_a_rollout_under_way(run)
        kill_workers(own)
        server.delay = 0.0
        control(own.home.root, "up", DOCKER_HOST=own.environment["DOCKER_HOST"])
        yield FaultyRun(began, run.wait(), server, stored_before)


def test_whatever_fails_every_rollout_is_carried_out_once(faulty: FaultyRun) -> None:
    assert 0 < faulty.stored_before < 16
    assert executions(faulty.run) == {1}
    assert set(faulty.server.outcomes) == {"answer", "busy", "broken", "hang", "garbage"}
    paid, stored = faulty.server.answers["stand-in-target"], len(trajectories(faulty.run))
    # What was under way when the worker was killed is paid for again.
    assert stored <= paid <= stored + CONCURRENCY


def test_neither_faults_nor_a_killed_worker_change_a_decision(plain: TrainedRun, faulty: FaultyRun) -> None:
    decisions = [(moment.name, moment.action, moment.candidate) for moment in faulty.run.history.moments]
    assert decisions == [(moment.name, moment.action, moment.candidate) for moment in plain.history.moments]
    assert faulty.run.store.get_text(faulty.run.keys.best_skill) == plain.store.get_text(plain.keys.best_skill)
    assert faulty.run.state == plain.state
    assert not any(moment.fallbacks for moment in faulty.run.history.moments)


def test_the_share_of_calls_lost_to_a_failing_provider_is_reported(faulty: FaultyRun) -> None:
    target = [cost for cost in faulty.run.history.costs if cost.role == "target"]
    lost = sum(cost.attempts - cost.calls for cost in target) / sum(cost.attempts for cost in target)
    assert lost == pytest.approx(faulty.server.lost, abs=0.03)
    assert 0.3 < lost < 0.5
    assert "attempts failed and were retried" in faulty.run.store.get_text(faulty.run.keys.report)


def test_the_key_reached_the_provider_and_nothing_else_in_the_bucket(faulty: FaultyRun) -> None:
    assert faulty.server.keys == {f"Bearer {KEY}"}
    read = 0
    for store in (faulty.run.store, faulty.run.artifacts):
        for key in (key for key, written in store.list_dated("").items() if written >= faulty.began):
            read += 1
            try:
                content = store.get_bytes(key)
            except ObjectMissing:
                # Another test's clean-up has merged it with others.
                continue
            if key.endswith(".parquet"):
                content += repr(pq.read_table(BytesIO(content)).to_pylist()).encode()
            assert KEY.encode() not in content, key
    assert read > 50


def test_the_key_is_in_no_log_and_no_file_of_the_platform(own: RunningPlatform, faulty: FaultyRun) -> None:
    read = 0
    for path in own.home.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            read += 1
            assert not _holds(path, KEY.encode()), path
    assert read > 100


def test_the_key_is_in_no_row_outside_the_connections(own: RunningPlatform, faulty: FaultyRun) -> None:
    address = own.environment[DATABASE].replace("+psycopg2", "")
    with closing(psycopg2.connect(address)) as connection, connection.cursor() as cursor:
        cursor.execute("select table_name from information_schema.tables where table_schema = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        assert {HOLDS_CONNECTIONS, "xcom", "task_instance", "dag_run"} <= set(tables)
        for table in tables:
            cursor.execute(f'select count(*) from "{table}" as one where one::text like %s', (f"%{KEY}%",))
            assert cursor.fetchone() == (0,), table


def rows_of_a_rollout_under_way(run: TrainedRun) -> int:
    """Wait until a rollout of the first step is under way with some of its rows stored; how many are."""
    deadline = time.monotonic() + 300
    label = [f"skillopt.run={run.keys.run}", "skillopt.stage=rollout"]
    with closing(docker.DockerClient(base_url=run.platform.environment["DOCKER_HOST"])) as client:
        while time.monotonic() < deadline:
            if client.containers.list(filters={"label": label}, ignore_removed=True):
                keys = [key for key in run.store.list_keys(f"{run.prefix}trajectories/") if "/split=train/" in key]
                if keys:
                    return sum(len(pd.read_parquet(BytesIO(run.store.get_bytes(key)))) for key in keys)
            assert run.platform.api.run(DAG, run.run_id)["state"] != "failed", run.failures()
            time.sleep(0.1)
    raise AssertionError(f"no rollout of {run.run_id} was seen half done")


def kill_workers(running: RunningPlatform) -> None:
    """End the scheduler and every worker and task below it, with no chance to tidy up."""
    scheduler = services.running(running.home, "scheduler")
    assert scheduler is not None
    for victim in (*scheduler.children(recursive=True), scheduler):
        with suppress(psutil.NoSuchProcess):  # a task may end by itself meanwhile
            victim.kill()


def _holds(path: Path, wanted: bytes) -> bool:
    """Read in pieces that overlap, since a database's files are large."""
    rest = b""
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                if wanted in rest + piece:
                    return True
                rest = piece[-len(wanted) :]
    except FileNotFoundError:
        # A log or a database file that was replaced while this looks.
        return False
    return False
