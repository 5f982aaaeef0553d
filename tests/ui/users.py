"""Who is logged in, as the pages ask Airflow: a manager of rights that lets a user read some DAGs."""

from collections.abc import Collection
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel

from skillopt_airflow.ui.pages import app


class Rights(SimpleAuthManager):
    """Lets users read the runs of the listed DAGs alone; of all where none is listed."""

    def __init__(self, dags: Collection[str] | None) -> None:
        super().__init__()
        self.dags = dags

    def is_authorized_dag(self, *, details: Any = None, **others: Any) -> bool:
        listed = self.dags is None or details.id in self.dags
        return listed and super().is_authorized_dag(details=details, **others)


def log_in(monkeypatch: pytest.MonkeyPatch, dags: Collection[str] | None = None, role: str | None = "viewer") -> Rights:
    manager = Rights(dags)
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", manager)
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    monkeypatch.setitem(app.dependency_overrides, get_user, lambda: SimpleAuthManagerUser(username="ann", role=role))
    return manager
