"""The environment of the platform's processes, including Airflow's configuration."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from local.home import ADMIN, IMPORT_PATH, PROJECT, Home, Settings
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.pipeline.tasks.dag_ids import PREFIX_VARIABLE
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE as DEPLOYMENT_VARIABLE

HOME_VARIABLE = "SKILLOPT_HOME"
TARGET_CONNECTION = "AIRFLOW_CONN_SKILLOPT_TARGET"
OPTIMIZER_CONNECTION = "AIRFLOW_CONN_SKILLOPT_OPTIMIZER"
S3_CONNECTION = "AIRFLOW_CONN_SKILLOPT_S3"
UNCHECKED_KEY = "loopback-only-unchecked"
"""Key for the S3 server and the stand-in, which listen on loopback and check no key. Airflow masks it in logs, so it
must not be a common word."""
REGION = "us-east-1"
IDLE_VARIABLE = "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"
"""Seconds between polls of an idle scheduler; each poll costs some milliseconds."""
OWN_VARIABLES = (LIST_VARIABLE, DEPLOYMENT_VARIABLE, PREFIX_VARIABLE, IDLE_VARIABLE)
"""Other variables that users can set for the platform, next to AIRFLOW_CONN_* and AIRFLOW_VAR_*."""
DEFAULT_CONNECTIONS = (TARGET_CONNECTION, OPTIMIZER_CONNECTION, S3_CONNECTION)
"""Connections with a default in the platform."""
BROKER_SOCKET = "broker.sock"
LOG_BUCKET = "skillopt-logs"
"""Bucket for task logs with Celery workers."""

_FOREIGN = ("AIRFLOW__", "AIRFLOW_HOME", "AIRFLOW_CONFIG", "PGPORT", "PYTHONDONTWRITEBYTECODE", "MAKE", "MFLAGS")


def environment(home: Path) -> dict[str, str]:
    """Return the full environment of a process of this home's platform."""
    platform = Home.at(home)
    return inherited(os.environ) | platform_variables(platform, platform.read(), os.environ)


def inherited(outer: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in outer.items() if name in OWN_VARIABLES or not name.startswith(_FOREIGN)}


def platform_variables(home: Home, settings: Settings, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the platform's variables; the user's AIRFLOW_CONN_* override the stand-in's.

    A service with other values restarts, so they include the list of benchmarks and the DAG prefix.
    """
    user = {
        name: value
        for name, value in outer.items()
        if name.startswith(("AIRFLOW_CONN_", "AIRFLOW_VAR_", *OWN_VARIABLES))
        and (value or not name.startswith("AIRFLOW_CONN_"))
    }
    return (
        own_variables(home, outer)
        | {
            "SPT_NOENV": "1",  # a process title would overwrite HOME_VARIABLE, and `down` would miss the process
            "PYTHONPATH": IMPORT_PATH,
            "PYTHONUNBUFFERED": "1",
            DEPLOYMENT_VARIABLE: str(home.deployment_file),
        }
        | ({"DOCKER_HOST": settings.docker_host} if settings.docker_host else {})
        | {f"AIRFLOW__{name}": value for name, value in _airflow(home, settings).items()}
        | _connections(settings)
        | user
    )


def own_variables(home: Home, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of every process that works for the home, in the platform or not."""
    return {
        HOME_VARIABLE: str(home.root),
        "AIRFLOW_HOME": str(home.airflow),
        # Python reads the lowercase variable first.
        **dict.fromkeys(
            ("no_proxy", "NO_PROXY"), _with_loopback(*(outer.get(n, "") for n in ("no_proxy", "NO_PROXY")))
        ),
    }


def uses_stand_in(outer: Mapping[str, str]) -> bool:
    return not (outer.get(TARGET_CONNECTION) and outer.get(OPTIMIZER_CONNECTION))


def own_connections(outer: Mapping[str, str], before: Iterable[str]) -> tuple[str, ...]:
    """Return the names of default connections that the user overrides.

    Raises:
        PlatformError: the last start had an override that this shell lacks.
    """
    missing = [name for name in before if name not in outer]
    if missing:
        raise PlatformError(
            f"the last start had {' and '.join(missing)} but this shell doesn't. Export it again, or set it to an "
            f"empty string ({' '.join(f'{name}=' for name in missing)}) to use the platform's own server"
        )
    return tuple(name for name in DEFAULT_CONNECTIONS if outer.get(name))


def airflow_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.airflow}"


def s3_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.s3}"


def model_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.model}/v1"


def s3_connection(address: str) -> str:
    return f"aws://{UNCHECKED_KEY}:{UNCHECKED_KEY}@/?region_name={REGION}&endpoint_url={quote(address, safe='')}"


def model_connection(address: str, model: str) -> str:
    """Return the JSON of an Airflow connection to a server that checks no key."""
    connection = {"conn_type": "pydanticai", "host": address, "password": UNCHECKED_KEY}
    return json.dumps(connection | {"extra": {"model": model}})


def registry_address(settings: Settings) -> str:
    return f"127.0.0.1:{settings.ports.registry}"


def database_url(home: Home) -> str:
    return f"postgresql+psycopg2://postgres@/postgres?host={quote(str(home.sockets))}"


def _connections(settings: Settings) -> dict[str, str]:
    return {
        S3_CONNECTION: s3_connection(s3_url(settings)),
        TARGET_CONNECTION: model_connection(model_url(settings), "openai-chat:stand-in-target"),
        OPTIMIZER_CONNECTION: model_connection(model_url(settings), "openai-chat:stand-in-optimizer"),
    }


def _airflow(home: Home, settings: Settings) -> dict[str, str]:
    """Return Airflow's options as SECTION__OPTION, tuned for short tasks on two cores."""
    return {
        "CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "8",
        "CORE__FERNET_KEY": settings.fernet_key,
        "CORE__EXECUTION_API_SERVER_URL": f"{airflow_url(settings)}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.airflow / "passwords.json"),
        "DATABASE__SQL_ALCHEMY_CONN": database_url(home),
        "API__HOST": "127.0.0.1",
        "API__PORT": str(settings.ports.airflow),
        "API__BASE_URL": airflow_url(settings),
        "API__WORKERS": "1",
        "API__SECRET_KEY": settings.session_key,
        "API_AUTH__JWT_SECRET": settings.jwt_secret,
        "LOGGING__BASE_LOG_FOLDER": str(home.airflow / "logs"),
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
        "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        # Running tasks retry while `make up` restarts the API server.
        "WORKERS__EXECUTION_API_RETRIES": "10",
        # Detects a killed worker after about 30 s instead of 5 min.
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "25",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home.airflow / "bundles"),
        **(_celery(home) if settings.workers.count else {}),
    }


def _celery(home: Home) -> dict[str, str]:
    """Return Airflow's options for Celery workers."""
    return {
        "CORE__EXECUTOR": "CeleryExecutor",
        "CORE__PARALLELISM": "32",
        "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "CELERY__BROKER_URL": f"redis+socket://{home.sockets / BROKER_SOCKET}",
        "CELERY__RESULT_BACKEND": f"db+{database_url(home)}",
        # Tasks that a worker prefetched are lost when it dies.
        "CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        # Longer than any task: after this time, Celery delivers a running task again.
        "CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": str(365 * 24 * 3600),
        "SCHEDULER__TASK_QUEUED_TIMEOUT": "120",
        "LOGGING__REMOTE_LOGGING": "True",
        "LOGGING__REMOTE_BASE_LOG_FOLDER": f"s3://{LOG_BUCKET}/tasks",
        "LOGGING__REMOTE_LOG_CONN_ID": StorageGroup().conn_id,
    }


def _with_loopback(*no_proxy: str) -> str:
    names = [name for names in no_proxy for name in names.split(",") if name]
    return ",".join(dict.fromkeys([*names, "127.0.0.1", "localhost"]))
