"""A run behind a provider that keeps failing, and with a key that must not show up anywhere.

What containers know is in tests/sandbox/test_operator.py and test_escapes.py there.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow.parquet as pq
import pytest

from local.served import served
from skillopt_airflow.core.errors import ObjectMissing
from tests.pipeline.faulty_model import FaultyModel
from tests.pipeline.trained_run import SHORT, TrainedRun, create_connection, executions, stand_in, trajectories

pytestmark = pytest.mark.platform

KEY = "sk-distinctive-5f1c0b9e77aa"
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
HOLDS_CONNECTIONS = "connection"


@dataclass(frozen=True)
class FaultyRun:
    began: datetime
    """Before it nobody knew the key."""
    run: TrainedRun
    server: FaultyModel


@pytest.fixture(scope="module")
def faulty(platform: Any, plain_started: TrainedRun) -> Iterator[FaultyRun]:
    """Beside the run that it is compared with, for which the first test that wants this one must not wait."""
    name, began = f"faulty-{time.time_ns()}", datetime.now(UTC) - timedelta(seconds=2)
    with served(FaultyModel(stand_in(platform), hang=10.0)) as server:
        for role in ("target", "optimizer"):
            model = f"openai-chat:stand-in-{role}"
            create_connection(platform, f"skillopt_faulty_{role}", server.base_url, model, password=KEY)
        settings = {f"model.{role}_conn_id": f"skillopt_faulty_{role}" for role in ("target", "optimizer")}
        settings |= {"model.call_timeout": 3.0, "model.max_attempts": 12, "storage.prefix": f"{name}/"}
        # A check of the models beforehand makes its own calls, which fail as well.
        settings |= {"model.concurrency": 16, "train.preflight": False}
        run = TrainedRun.trigger(platform, name, SHORT | settings).wait()
        yield FaultyRun(began, run, server)


def test_behind_a_failing_provider_every_rollout_is_paid_once(faulty: FaultyRun) -> None:
    assert executions(faulty.run) == {1}
    assert set(faulty.server.outcomes) == {"answer", "busy", "broken", "hang", "garbage"}
    assert faulty.server.answers["stand-in-target"] == len(trajectories(faulty.run))


def test_a_failing_provider_changes_no_decision(plain: TrainedRun, faulty: FaultyRun) -> None:
    decisions = [(moment.name, moment.action, moment.candidate_score) for moment in faulty.run.history.moments]
    assert decisions == [(moment.name, moment.action, moment.candidate_score) for moment in plain.history.moments]
    assert faulty.run.store.get_text(faulty.run.keys.best_skill) == plain.store.get_text(plain.keys.best_skill)
    assert not any(moment.fallbacks for moment in faulty.run.history.moments)


def test_the_share_of_calls_lost_to_a_failing_provider_is_reported(faulty: FaultyRun) -> None:
    target = [cost for cost in faulty.run.history.costs if cost.role == "target"]
    lost = sum(cost.attempts - cost.calls for cost in target) / sum(cost.attempts for cost in target)
    assert lost == pytest.approx(faulty.server.lost, abs=0.03)
    assert 0.3 < lost < 0.5
    assert "were lost and made again" in faulty.run.store.get_text(faulty.run.keys.report)


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


def test_the_key_is_in_no_log_and_no_file_of_the_platform(platform: Any, faulty: FaultyRun) -> None:
    read = 0
    for path in Path(platform.home.root).rglob("*"):
        if path.is_file() and not path.is_symlink():
            read += 1
            assert not _holds(path, KEY.encode()), path
    assert read > 100


def test_the_key_is_in_no_row_outside_the_connections(platform: Any, faulty: FaultyRun) -> None:
    address = platform.environment[DATABASE].replace("+psycopg2", "")
    with closing(psycopg2.connect(address)) as connection, connection.cursor() as cursor:
        cursor.execute("select table_name from information_schema.tables where table_schema = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        assert {HOLDS_CONNECTIONS, "xcom", "task_instance", "dag_run"} <= set(tables)
        for table in tables:
            cursor.execute(f'select count(*) from "{table}" as one where one::text like %s', (f"%{KEY}%",))
            assert cursor.fetchone() == (0,), table


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
