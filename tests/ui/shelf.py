"""Published skills and nights on stores in memory, and the tables of Airflow that the pages look at."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow import models
from airflow.api_fastapi.common.db.common import _get_session
from airflow.models.dagrun import DagRun
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.ui import access
from skillopt_airflow.ui.pages import app
from tests import page_data
from tests.training.local_store import LocalStore

TABLES = ("dag_run", "dag")
SINCE = datetime(2026, 11, 21, 4, tzinfo=UTC)


class Shelf:
    """What the buckets hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores: dict[str, LocalStore] = {}
        monkeypatch.setattr(access, "open_bucket", lambda storage, bucket: self.bucket(bucket))

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
    """Airflow's DAG runs."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def has_run(self, dag_id: str, run_id: str, conf: dict[str, Any] | None = None) -> None:
        row = {"dag_id": dag_id, "run_id": run_id, "conf": conf, "run_type": "manual", "state": "success"}
        fixed = {"run_after": SINCE, "log_template_id": 1, "span_status": "ended"}
        self.session.execute(insert(DagRun.metadata.tables["dag_run"]).values(**row | fixed))


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
