"""Published skills and nights on stores in memory, and the tables of Airflow that the pages look at."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow import models
from airflow.api_fastapi.common.db.common import _get_session
from airflow.models.dagrun import DagRun
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.ui import buckets
from skillopt_airflow.ui.pages import app
from tests import page_data
from tests.training.local_store import LocalStore

TABLES = ("dag_run", "task_instance", "hitl_detail", "dag", "xcom")
SINCE = datetime(2026, 11, 21, 4, tzinfo=UTC)


class Shelf:
    """What the buckets hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores: dict[str, LocalStore] = {}
        monkeypatch.setattr(buckets, "open_bucket", lambda storage, bucket: self.bucket(bucket))

    def bucket(self, name: str) -> LocalStore:
        return self.stores.setdefault(name, LocalStore())

    @property
    def runs(self) -> LocalStore:
        return self.bucket(StorageGroup().bucket)

    @property
    def published(self) -> LocalStore:
        return self.bucket(StorageGroup().artifact_bucket)

    def publish(self, benchmark: str, target: str, *texts: str) -> ArtifactStore:
        return page_data.publish(self.published, "", benchmark, target, texts or [page_data.skill_text(3)])

    def nights(
        self, benchmark: str, target: str, artifacts: ArtifactStore, count: int, drop_at: int | None = None
    ) -> None:
        versions = artifacts.list_versions()
        champion, *before = (page_data.contender(artifacts, name) for name in versions[::-1][:2])
        made = page_data.nights(benchmark, target, champion, next(iter(before), None), count, drop_at)
        page_data.store_nights(self.runs, RegateKeys("", benchmark, target), made)


class Tables:
    """Rows of Airflow's database."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def has_run(self, dag_id: str, run_id: str, conf: dict[str, Any] | None = None, **more: Any) -> None:
        row = {"dag_id": dag_id, "run_id": run_id, "conf": conf, "run_type": "manual", "state": "success"}
        fixed = {"run_after": SINCE, "log_template_id": 1, "span_status": "ended"}
        self.insert("dag_run", **row | fixed | more)

    def waits(self, dag_id: str, run_id: str, task_id: str = "approve", *, answered: bool = False, **conf: Any) -> None:
        self.has_run(dag_id, run_id, conf)
        task = self.has_task(dag_id, run_id, task_id, "awaiting_input")
        self.insert(
            "hitl_detail", ti_id=task, options=["Approve", "Reject"], subject=f"Change {dag_id}?", params={},
            created_at=SINCE, responded_at=SINCE if answered else None, params_input={},
        )  # fmt: skip

    def has_task(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> UUID:
        key = uuid4()
        task = {"task_id": task_id, "dag_id": dag_id, "run_id": run_id, "map_index": map_index, "try_number": 1}
        more = {"max_tries": 0, "pool": "default", "pool_slots": 1, "state": state, "executor_config": {}}
        self.insert("task_instance", id=key, dag_version_id=None, span_status="ended", **task | more)
        return key

    def has_dag(self, dag_id: str, *, paused: bool = False, due: datetime | None = None) -> None:
        self.insert(
            "dag", dag_id=dag_id, is_paused=paused, is_stale=False, next_dagrun_create_after=due, bundle_name="dags",
            max_active_tasks=1, max_active_runs=1, max_consecutive_failed_dag_runs=0, has_task_concurrency_limits=False,
            has_import_errors=False, fail_fast=False, timetable_partitioned=False,
        )  # fmt: skip

    def insert(self, table: str, **values: Any) -> None:
        columns = DagRun.metadata.tables[table]
        known = {name: value for name, value in values.items() if name in columns.columns}
        self.session.execute(insert(columns).values(**known))


@contextmanager
def airflow_tables() -> Iterator[Tables]:
    """The tables, empty, as the pages' own session."""
    models.import_all_models()
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    tables = DagRun.metadata.tables
    DagRun.metadata.create_all(engine, tables=[tables[name] for name in TABLES])
    session = Session(engine)
    app.dependency_overrides[_get_session] = lambda: session
    try:
        yield Tables(session)
    finally:
        del app.dependency_overrides[_get_session]
        session.close()
        engine.dispose()
