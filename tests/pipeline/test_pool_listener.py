import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models import Variable
from airflow.models.pool import Pool
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from skillopt_airflow.pipeline import pool_listener
from skillopt_airflow.ui.plugin import SkillOptPlugin


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    for table in ("slot_pool", "variable"):
        Pool.metadata.tables[table].create(engine)
    with Session(engine) as opened:
        yield opened
    engine.dispose()


def stored(session: Session) -> list[Any]:
    return [json.loads(one.val) for one in session.scalars(select(Variable)) if one.key == pool_listener.VARIABLE]


def test_the_pools_are_kept_as_they_are_now(session: Session) -> None:
    session.add(Pool(pool="default_pool", slots=128, include_deferred=False))
    pool_listener.keep_pools(session)
    assert stored(session) == [{"default_pool": 128}]
    session.add(Pool(pool="provider", slots=24, include_deferred=False))
    pool_listener.keep_pools(session)
    session.expire_all()
    assert stored(session) == [{"default_pool": 128, "provider": 24}]


def test_the_listener_looks_when_a_run_of_this_project_begins(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []

    @contextmanager
    def create(scoped: bool) -> Iterator[Session]:
        opened.append(scoped)
        yield session

    monkeypatch.setattr("airflow.utils.session.create_session", create)
    for run in (SimpleNamespace(), SimpleNamespace(dag=None), SimpleNamespace(dag=SimpleNamespace(tags=["other"]))):
        pool_listener.on_dag_run_running(dag_run=run, msg="")
    assert opened == []
    pool_listener.on_dag_run_running(dag_run=SimpleNamespace(dag=SimpleNamespace(tags=["skillopt", "train"])), msg="")
    assert opened == [False]
    assert stored(session) == [{}]


def test_airflow_finds_the_listener_in_the_plugin() -> None:
    assert SkillOptPlugin.listeners == [pool_listener]
