"""The broker's process is one service, whether or not its program was there before."""

import shutil
from pathlib import Path
from threading import Event

import pytest

from local import broker, services
from local.home import Home


def test_a_start_that_installs_redis_asks_for_the_same_service_as_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[services.Service] = []
    installed: list[str] = []
    monkeypatch.setattr(services, "ensure", lambda home, service, *_: asked.append(service))
    monkeypatch.setattr(broker, "install_packages", installed.append)
    for found in (None, "/usr/bin/redis-server"):
        monkeypatch.setattr(shutil, "which", lambda _, found=found: found)
        broker.ensure(Home.at(tmp_path), {}, Event(), lambda _: None)
    assert installed == [broker.PACKAGE]
    first, second = asked
    assert first.fingerprint == second.fingerprint
