"""The environment that the platform's processes run in: the one place that configures Airflow."""

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
"""Key of the S3 server and the stand-in, which listen on loopback only and check none. Airflow masks it in logs, so it
must not be a word that occurs there."""
REGION = "us-east-1"
IDLE_VARIABLE = "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"
"""Seconds that a scheduler with nothing to do waits before it looks again; each look costs some milliseconds."""
OWN_VARIABLES = (LIST_VARIABLE, DEPLOYMENT_VARIABLE, PREFIX_VARIABLE, IDLE_VARIABLE)
"""Variables that a user may set for the platform besides connections and Airflow's variables."""
BROUGHT_ALONG = (TARGET_CONNECTION, OPTIMIZER_CONNECTION, S3_CONNECTION)
"""Connections that the platform has some for."""
BROKER_SOCKET = "broker.sock"
LOG_BUCKET = "skillopt-logs"
"""Bucket of the task logs where Celery workers run the tasks."""

_FOREIGN = ("AIRFLOW__", "AIRFLOW_HOME", "AIRFLOW_CONFIG", "PGPORT", "PYTHONDONTWRITEBYTECODE", "MAKE", "MFLAGS")


def environment(home: Path) -> dict[str, str]:
    """Return the whole environment of a process that belongs to the platform of this home."""
    place = Home.at(home)
    return inherited(os.environ) | platform_variables(place, place.read(), os.environ)


def inherited(outer: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in outer.items() if name in OWN_VARIABLES or not name.startswith(_FOREIGN)}


def platform_variables(home: Home, settings: Settings, outer: Mapping[str, str]) -> dict[str, str]:
    """Return what the platform sets; the user's own AIRFLOW_CONN_* win over the stand-in's.

    A service that runs with other variables than these is started anew, so the list of benchmarks
    and the DAGs' prefix are among them.
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
            "SPT_NOENV": "1",  # else a process that sets its title wipes the line above, and `down` does not see it
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
    """Return what every process has that works for the home, part of the platform or not."""
    return {
        HOME_VARIABLE: str(home.root),
        "AIRFLOW_HOME": str(home.airflow),
        # Python's clients read the lower case first.
        **dict.fromkeys(
            ("no_proxy", "NO_PROXY"), _with_loopback(*(outer.get(n, "") for n in ("no_proxy", "NO_PROXY")))
        ),
    }


def stand_in_serves(outer: Mapping[str, str]) -> bool:
    return not (outer.get(TARGET_CONNECTION) and outer.get(OPTIMIZER_CONNECTION))


def own_connections(outer: Mapping[str, str], before: Iterable[str]) -> tuple[str, ...]:
    """Return the variables of the user's connections, among those that the platform has some for."""
    lost = [name for name in before if name not in outer]
    if lost:
        raise PlatformError(
            f"the last start had {' and '.join(lost)} from its shell, and this shell has not: export it again, or set "
            f"it to nothing ({' '.join(f'{name}=' for name in lost)}) for the server that the platform brings along"
        )
    return tuple(name for name in BROUGHT_ALONG if outer.get(name))


def airflow_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.airflow}"


def s3_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.s3}"


def model_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.ports.model}/v1"


def s3_connection(address: str) -> str:
    return f"aws://{UNCHECKED_KEY}:{UNCHECKED_KEY}@/?region_name={REGION}&endpoint_url={quote(address, safe='')}"


def model_connection(address: str, model: str) -> str:
    """Return the Airflow connection of a server that checks no key, as JSON."""
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
    """Return Airflow's options as SECTION__OPTION; the measured values cost few seconds a task on two cores."""
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
        # Running tasks wait for the API server while `make up` starts it anew.
        "WORKERS__EXECUTION_API_RETRIES": "10",
        # A killed worker is noticed after about half a minute instead of five.
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "25",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home.airflow / "bundles"),
        **(_celery(home) if settings.workers.count else {}),
    }


def _celery(home: Home) -> dict[str, str]:
    """Return Airflow's options where Celery workers run the tasks."""
    return {
        "CORE__EXECUTOR": "CeleryExecutor",
        "CORE__PARALLELISM": "32",
        "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "CELERY__BROKER_URL": f"redis+socket://{home.sockets / BROKER_SOCKET}",
        "CELERY__RESULT_BACKEND": f"db+{database_url(home)}",
        # What a worker has taken and not begun is lost to the others when it dies.
        "CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        # A task that runs longer is given to another worker as well: more than the longest one may take.
        "CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": str(365 * 24 * 3600),
        "SCHEDULER__TASK_QUEUED_TIMEOUT": "120",
        "LOGGING__REMOTE_LOGGING": "True",
        "LOGGING__REMOTE_BASE_LOG_FOLDER": f"s3://{LOG_BUCKET}/tasks",
        "LOGGING__REMOTE_LOG_CONN_ID": StorageGroup().conn_id,
    }


def _with_loopback(*no_proxy: str) -> str:
    names = [name for names in no_proxy for name in names.split(",") if name]
    return ",".join(dict.fromkeys([*names, "127.0.0.1", "localhost"]))
