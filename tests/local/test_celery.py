"""The services that Celery adds: workers, and a broker that is one service, whether or not its program was there."""

import os
import shutil
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from local import celery, services
from local.home import Home, Workers

ENGINE = "unix:///an/engine.sock"


@pytest.fixture(autouse=True)
def _workers(home: Home) -> None:
    home.write(replace(home.read(), workers=Workers(2, 1), docker_host=ENGINE))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, services.Service]:
    asked: dict[str, services.Service] = {}

    def ensure(home: Home, service: services.Service, *_: Any) -> None:
        asked[service.name] = service

    monkeypatch.setattr(services, "ensure", ensure)
    return asked


def test_the_first_workers_take_the_tasks_that_need_an_engine(home: Home, asked: dict[str, services.Service]) -> None:
    celery.ensure_workers(home, home.read(), {"DOCKER_HOST": "another", "A": "b"}, Event())
    with_engine, without = asked["worker-1"], asked["worker-2"]
    assert "default,engine" in with_engine.command
    assert with_engine.variables == {"A": "b", "DOCKER_HOST": ENGINE}
    assert "default" in without.command
    assert without.variables == {"A": "b"}


def test_a_prefix_runs_each_workers_command(
    home: Home, asked: dict[str, services.Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, celery.PREFIX_VARIABLE, "unshare --uts")
    celery.ensure_workers(home, home.read(), {}, Event())
    assert {service.command[:2] for service in asked.values()} == {("unshare", "--uts")}


def test_workers_beyond_the_wanted_ones_are_ended(
    home: Home, asked: dict[str, services.Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(services, "stop", lambda home, name: ended.append(name))
    for name in ("worker-1", "worker-3", "worker-3.previous", "scheduler"):
        (home.logs / f"{name}.log").touch()
    celery.ensure_workers(home, home.read(), {}, Event())
    assert ended == ["worker-3"]


def test_a_start_that_installs_redis_asks_for_the_same_service_as_the_next_one(
    home: Home, asked: dict[str, services.Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    prints, installed = [], []
    monkeypatch.setattr(celery, "install_packages", installed.append)
    for found in (None, "/usr/bin/redis-server"):
        monkeypatch.setattr(shutil, "which", lambda _, found=found: found)
        celery.ensure_broker(home, {}, Event(), lambda _: None)
        prints.append(asked[celery.BROKER].fingerprint)
    assert installed == [celery.BROKER_PROGRAM]
    assert prints[0] == prints[1]
