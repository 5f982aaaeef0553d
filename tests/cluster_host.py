"""A Celery worker's command on its own host: `unshare ... python -m tests.cluster_host COMMAND`.

AIRFLOW_HOME, temporary files, the home folder and the data of its Docker engine have the same paths as on the other
hosts, and are separate. What other hosts hold isn't there. Hosts share the database, the broker, the object store and
the code.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from local import engine
from local.celery import ENGINE_QUEUE
from local.environment import HOME_VARIABLE
from local.home import Home
from local.services import SERVICE_VARIABLE

NAMESPACES = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")
PREFIX = shlex.join([*NAMESPACES, sys.executable, "-m", "tests.cluster_host"])
OWN = ("tmp", "home", "airflow")
HIDDEN = ("s3", "postgres", "registry", "broker", "workers")
"""Folders of other hosts."""


def main(command: Sequence[str]) -> int:
    """Be the host until its worker ends; return the worker's exit code."""
    home, name = Home.at(Path(os.environ[HOME_VARIABLE])), os.environ[SERVICE_VARIABLE]
    own = folder_of(home, name)
    for folder in OWN:
        (own / folder).mkdir(parents=True, exist_ok=True)
    os.environ.pop("DOCKER_HOST", None)
    place = _move_in(home, own, name)
    variables = os.environ | {"TMPDIR": str(place / "tmp"), "HOME": str(place / "home")} | _own_variables(place)
    if ENGINE_QUEUE in command[command.index("--queues") + 1].split(","):
        variables["DOCKER_HOST"] = engine.ensure(place, lambda text: print(text, flush=True))
    try:
        return _work(command, variables)
    finally:
        engine.stop(place)


def folder_of(home: Home, name: str) -> Path:
    """The folder of what a host has of its own."""
    return home.root / "workers" / name


def _own_variables(place: Path) -> dict[str, str]:
    """The variables that only this host has, such as another clock."""
    file = place / "variables.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _move_in(home: Home, own: Path, name: str) -> Path:
    """Put the host's own folders where they are looked for, and empty ones where those of others are.

    Returns:
        its folder, by the path that all hosts know theirs by.
    """
    _mount("-t", "proc", "proc", "/proc")
    # Sockets of other engines are there.
    _mount("-t", "tmpfs", "tmpfs", "/run")
    place = home.root / "host"
    place.mkdir(exist_ok=True)
    _mount("--bind", str(own), str(place))
    _mount("--bind", str(own / "airflow"), str(home.airflow))
    for folder in HIDDEN:
        if (home.root / folder).is_dir():
            _mount("-t", "tmpfs", "tmpfs", str(home.root / folder))
    socket.sethostname(name)
    return place


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _work(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run the worker; as the first process of a host, take in the children that others leave."""
    worker = subprocess.Popen(command, env=variables)

    def stop(number: int, frame: FrameType | None) -> None:
        worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    while True:
        pid, status = os.wait()
        if pid == worker.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
