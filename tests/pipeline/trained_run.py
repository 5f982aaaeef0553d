"""A run of `train_searchqa` on a running platform, and what it left in the object store."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx
import pandas as pd

from local.airflow_api import REQUEST_SECONDS
from local.environment import airflow_url
from local.home import ADMIN
from skillopt_airflow.core.run.history import History
from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.store.keys import RunKeys, run_name, trajectories_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.run_states import RunStates
from skillopt_airflow.store.tables.parquet import parts_of

DAG = "train_searchqa"
EPOCH_DAG = "train_searchqa_epoch"
TASK_SECONDS = 300.0
SHORT = {
    "train.num_epochs": 1,
    "train.steps_per_epoch": 2,
    # The first candidate is accepted, and the second one rejected.
    "train.seed": 16,
    "train.batch_size": 16,
    "evaluation.val_limit": 24,
    # What publishing is decided by.
    "evaluation.test_limit": 20,
    "publishing.gate_policy": "strict",
    # A call under way when an evaluation ends early is answered, and leaves no row to count.
    "evaluation.early_reject": False,
}


@dataclass(frozen=True)
class TrainedRun:
    """A run by its id; `prefix` is the storage prefix that it was given."""

    platform: Any
    run_id: str
    prefix: str = ""

    @classmethod
    def trigger(cls, platform: Any, run_id: str, overrides: Mapping[str, Any]) -> "TrainedRun":
        for dag in (DAG, EPOCH_DAG):
            platform.api.wait_for_dag(dag)
        platform.api.trigger(DAG, {"overrides": dict(overrides)}, run_id)
        return cls(platform, run_id, overrides.get("storage.prefix", ""))

    def wait(self) -> "TrainedRun":
        state = self.platform.api.wait(DAG, self.run_id, seconds=900)
        assert state == "success", self.failures()
        return self

    def failures(self) -> str:
        """The logs of the tasks that failed, as one text, which pytest prints whole."""
        return "\n".join(
            line
            for row in self.task_instances()
            if row["state"] == "failed" and not row["task_id"].startswith("epoch_")
            for line in self.log(row)
        )

    def log(self, row: Mapping[str, Any]) -> list[str]:
        lines: list[str] = self.platform.api.log(
            row["dag_id"], row["dag_run_id"], row["task_id"], row["try_number"], row["map_index"]
        )
        return lines

    def task_instances(self) -> Iterator[Mapping[str, Any]]:
        yield from self.platform.api.task_instances(DAG, self.run_id)
        for run in self.platform.api.runs(EPOCH_DAG):
            if run["dag_run_id"].startswith(f"{self.run_id}__"):
                yield from self.platform.api.task_instances(EPOCH_DAG, run["dag_run_id"])

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.platform.s3, "skillopt")

    @property
    def artifacts(self) -> ObjectStore:
        return ObjectStore(self.platform.s3, "skillopt-artifacts")

    @property
    def keys(self) -> RunKeys:
        return RunKeys(self.prefix, "searchqa", run_name(self.run_id))

    @property
    def history(self) -> History:
        return self.store.get_model(self.keys.history, History)

    @property
    def state(self) -> RunState:
        return RunStates(self.store, self.keys).read(self.keys.runtime_state)


def create_connection(platform: Any, conn_id: str, host: str, model: str, password: str = "") -> None:
    """Through the REST API, as the UI's form does; an earlier one of the same name gives way."""
    platform.api.send("DELETE", f"/connections/{conn_id}")
    body = {"connection_id": conn_id, "conn_type": "pydanticai", "host": host, "extra": json.dumps({"model": model})}
    body |= {"password": password} if password else {}
    platform.api.request("POST", "/connections", json=body)


def wait_for_task(
    platform: Any, dag_id: str, run_id: str, task_id: str, state: str, seconds: float = TASK_SECONDS
) -> None:
    """Over REST, until the task is in the state; another end of it fails at once."""
    deadline = time.monotonic() + seconds
    while True:
        states = {row["task_id"]: row["state"] for row in platform.api.task_instances(dag_id, run_id)}
        if states.get(task_id) == state:
            return
        assert states.get(task_id) not in ("failed", "upstream_failed"), states
        assert time.monotonic() < deadline, states
        time.sleep(1)


def set_paused(platform: Any, dag_id: str, *, paused: bool) -> None:
    """As the switch in the UI; a paused DAG's runs wait."""
    platform.api.request("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})


def token(platform: Any) -> str:
    login = {"username": ADMIN, "password": platform.settings.password}
    url = f"{airflow_url(platform.settings)}/auth/token"
    answer = httpx.post(url, json=login, timeout=REQUEST_SECONDS).raise_for_status()
    issued: str = answer.json()["access_token"]
    return issued


def trajectories(run: TrainedRun) -> pd.DataFrame:
    """All stored rollouts of the benchmark in the run's part of the bucket, the Hive partitions as columns."""
    parts = []
    for key in parts_of(run.store, trajectories_of(run.prefix, "searchqa")):
        part = pd.read_parquet(BytesIO(run.store.get_bytes(key)))
        values = dict(folder.split("=", 1) for folder in key.split("/") if "=" in folder)
        parts.append(part.assign(**{name: value for name, value in values.items() if name not in part}))
    return pd.concat(parts, ignore_index=True)


def executions(run: TrainedRun) -> set[int]:
    """How often a sample of an item was carried out under a skill."""
    rows = trajectories(run)
    ok = rows[rows["status"] == "ok"]
    return set(ok.groupby(["skill_sha256", "split", "sample", "item_id"]).size())


def stand_in(platform: Any) -> str:
    host: str = json.loads(platform.environment["AIRFLOW_CONN_SKILLOPT_TARGET"])["host"]
    return host
