"""The labels of an engine's containers and volumes, and the removal of those that nobody needs any more."""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from skillopt_airflow.sandbox import staging

SANDBOX_LABEL = "skillopt.sandbox"
"""The installation that a container belongs to."""
FOLDER_LABEL = "skillopt.folder"
ATTEMPT_LABEL = "skillopt.attempt"
ITEM_LABEL = "skillopt.item"
"""Place of its item in the workload, where an item has a container of its own."""
EXPIRES_LABEL = "skillopt.expires"
"""Unix time after which no live task can need it: each task ends its containers before."""
NEVER = ""
"""In the place of that time."""
GRACE_SECONDS = 300
CONFLICT = 409
REMOVAL_SECONDS = 3
"""Seconds that another thread may take to remove a container; a task that is stopped has only seconds."""


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that every attempt of one workload shares; the installation is part of them."""
    installation = os.environ.get("SKILLOPT_HOME") or os.environ.get("AIRFLOW_HOME") or "skillopt"
    return {SANDBOX_LABEL: installation} | {f"skillopt.{name}": value for name, value in labels.items()}


def expiry(seconds: float) -> dict[str, str]:
    """Return the label of what a task needs for at most so many seconds from now on."""
    return {EXPIRES_LABEL: str(round(time.time() + seconds + GRACE_SECONDS))}


def remove_all(client: Any, labels: Mapping[str, str]) -> int:
    """Remove the containers with all the labels, their volumes and folders, and return how many containers."""
    containers, volumes = _found(client, labels)
    _remove(client, containers, volumes)
    return len(containers)


def reap(client: Any) -> int:
    """Remove what tasks of this installation that are certainly dead left behind, and return how many containers."""
    containers, volumes = (
        [one for one in found if _is_dead(one.get("Labels") or {})] for found in _found(client, identity({}))
    )
    _remove(client, containers, volumes)
    return len(containers)


def remove_container(client: Any, container_id: str) -> None:
    """Remove it, running or not, unless someone else did or is at it."""
    from docker.errors import APIError, NotFound
    from requests import RequestException

    try:
        client.remove_container(container_id, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        with suppress(RequestException):
            client.wait(container_id, timeout=REMOVAL_SECONDS, condition="removed")


def _found(client: Any, labels: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
    return client.containers(all=True, filters=wanted), client.volumes(filters=wanted)["Volumes"] or []


def _is_dead(labels: Mapping[str, str]) -> bool:
    moment, folder = labels.get(EXPIRES_LABEL, NEVER), labels.get(FOLDER_LABEL)
    # Of a task of another host only the time is known.
    lives = folder is not None and staging.is_held(Path(folder))
    return moment.isdecimal() and int(moment) < time.time() and not lives


def _remove(client: Any, containers: Iterable[Any], volumes: Iterable[Any]) -> None:
    from docker.errors import APIError

    for container in containers:
        remove_container(client, container["Id"])
        folder = container["Labels"].get(FOLDER_LABEL)
        if folder:
            staging.remove(Path(folder))
    for volume in volumes:
        # Another attempt may be at it.
        with suppress(APIError):
            client.remove_volume(volume["Name"], force=True)
