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
    """Bring the database's schema to the installed Airflow's, once a version."""
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
    """Have all four run and healthy; the scheduler's tasks are the ones that need the engine's address."""
    _write_password(home, settings)
    common = {name: value for name, value in variables.items() if name != "DOCKER_HOST"}

    def have(name: str) -> None:
        extra = {"DOCKER_HOST": engine()} if name == SCHEDULER else {}
        program = "local.scheduler" if name == SCHEDULER else "airflow"
        # Task logs are read from the common folder; servers that hand them out would listen on all addresses.
        options = ("--skip-serve-logs",) if name in (SCHEDULER, TRIGGERER) else ()
        command = (sys.executable, "-m", program, name, *options)
        # The scheduler's end ends running tasks, and its children notice changed code themselves. Only a changed lock
        # is worth that, since it has replaced packages under them.
        sources = (services.LOCK, *([] if name == SCHEDULER else [services.PACKAGE]))
        now = datetime.now().astimezone()
        lives, started = services.have(home, services.Service(name, command, common | extra, sources))
        since = now if started else None
        services.wait(home, name, lambda: _is_healthy(settings, name, since), cancelled, START_SECONDS, lives)

    with ThreadPoolExecutor(max_workers=len(NAMES)) as pool:
        list(pool.map(have, NAMES))


def health(settings: Settings) -> dict[str, str]:
    """Return what Airflow says of each component, such as `healthy`; empty if the API server does not answer."""
    return {name: str(state.get("status")) for name, state in _components(settings).items()}


def _components(settings: Settings) -> dict[str, dict[str, Any]]:
    with closing(api(settings)) as client:
        return client.health()


def _is_healthy(settings: Settings, name: str, since: datetime | None) -> bool:
    """Return whether it is healthy by a heartbeat after `since`: a killed predecessor's counts for half a minute."""
    components = _components(settings)
    if name == SERVER:
        return components.get("metadatabase", {}).get("status") == "healthy"
    component = name.replace("-", "_")
    state = components.get(component, {})
    if state.get("status") != "healthy":
        return False
    return since is None or datetime.fromisoformat(state[f"latest_{component}_heartbeat"]) > since


def _write_password(home: Home, settings: Settings) -> None:
    """Write the simple auth manager's file, which only its owner can read."""
    passwords = home.airflow / "passwords.json"
    passwords.touch(mode=0o600)
    passwords.write_text(json.dumps({ADMIN: settings.password}) + "\n")
