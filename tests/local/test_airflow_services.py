from threading import Event
from typing import Any

import pytest

from local import airflow_services, services
from local.home import PROJECT, Home


def test_the_projects_code_starts_anew_what_keeps_it_and_ends_no_running_task(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, services.Service] = {}

    def have(home: Home, service: services.Service) -> Any:
        asked[service.name] = service
        return lambda: True, True

    monkeypatch.setattr(services, "ensure_process", have)
    monkeypatch.setattr(services, "wait", lambda *_: None)
    airflow_services.ensure(home, home.read(), {}, Event(), lambda: "unix:///an/engine.sock")
    lock, package = PROJECT / "requirements-local.txt", PROJECT / "include"
    assert {name: service.sources for name, service in asked.items()} == {
        "api-server": (lock, package),
        "triggerer": (lock, package),
        "scheduler": (lock,),
        "dag-processor": (lock, package),
    }
