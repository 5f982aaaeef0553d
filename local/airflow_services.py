"""Airflow's database schema and its four processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from importlib.metadata import version
from threading import Event
from typing import Any

from local import services
from local.airflow_api import AirflowApi
from local.environment import airflow_url, inherited
from local.home import ADMIN, PROJECT, Home, Settings
from skillopt_airflow.core.errors import PlatformError

SERVER = "api-server"
SCHEDULER = "scheduler"
PROCESSOR = "dag-processor"
TRIGGERER = "triggerer"
NAMES = (SERVER, SCHEDULER, PROCESSOR, TRIGGERER)
START_SECONDS = 240.0


def api(settings: Settings) -> AirflowApi:
    return AirflowApi(airflow_url(settings), ADMIN, settings.password)


def migrate(home: Home, variables: dict[str, str]) -> None:
    """Migrate the database to the installed Airflow, once per version."""
    stamp = home.postgres / "airflow-schema"
    installed = version("apache-airflow-core")
    if stamp.exists() and stamp.read_text() == installed:
        return
    log = services.log_path(home, "migrate")
    with log.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=inherited(os.environ) | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=PROJECT,
            check=False,
        )
    if done.returncode != 0:
        raise PlatformError(f"airflow db migrate failed; {services.last_lines(log)}")
    stamp.write_text(installed)


def ensure(
    home: Home, settings: Settings, variables: dict[str, str], cancelled: Event, engine: Callable[[], str]
) -> None:
    """Start all four and wait until they are healthy. Only the scheduler's tasks need the engine's URL."""
    _write_password(home, settings)
    common = {name: value for name, value in variables.items() if name != "DOCKER_HOST"}

    def start(name: str) -> None:
        extra = {"DOCKER_HOST": engine()} if name == SCHEDULER else {}
        program = "local.scheduler" if name == SCHEDULER else "airflow"
        # Task logs are in a shared folder; log servers would listen on all addresses.
        options = ("--skip-serve-logs",) if name in (SCHEDULER, TRIGGERER) else ()
        command = (sys.executable, "-m", program, name, *options)
        # Restarting the scheduler ends running tasks, and its children reload changed code anyway. So only a changed
        # lock, which replaces packages, restarts it.
        sources = (services.LOCK, *([] if name == SCHEDULER else [services.PACKAGE]))
        now = datetime.now().astimezone()
        is_alive, started = services.ensure_process(home, services.Service(name, command, common | extra, sources))
        since = now if started else None
        services.wait(home, name, lambda: _is_healthy(settings, name, since), cancelled, START_SECONDS, is_alive)

    with ThreadPoolExecutor(max_workers=len(NAMES)) as pool:
        list(pool.map(start, NAMES))


def health(settings: Settings) -> dict[str, str]:
    """Return Airflow's status per component, such as `healthy`; empty if the API server doesn't respond."""
    return {name: str(state.get("status")) for name, state in _components(settings).items()}


def _components(settings: Settings) -> dict[str, dict[str, Any]]:
    with closing(api(settings)) as client:
        return client.health()


def _is_healthy(settings: Settings, name: str, since: datetime | None) -> bool:
    """Return whether it has a heartbeat after `since`; Airflow counts a killed process as healthy for 30 s."""
    components = _components(settings)
    if name == SERVER:
        return components.get("metadatabase", {}).get("status") == "healthy"
    component = name.replace("-", "_")
    state = components.get(component, {})
    if state.get("status") != "healthy":
        return False
    return since is None or datetime.fromisoformat(state[f"latest_{component}_heartbeat"]) > since


def _write_password(home: Home, settings: Settings) -> None:
    """Write the simple auth manager's file, readable only by its owner."""
    passwords = home.airflow / "passwords.json"
    passwords.touch(mode=0o600)
    passwords.write_text(json.dumps({ADMIN: settings.password}) + "\n")
