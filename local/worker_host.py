"""A worker as on a host of its own: `python -m local.worker_host NAME [--engine]`.

Where this process was started with mounts of its own, AIRFLOW_HOME, temporary files, the home folder and the data of
its Docker engine have the same paths as on the other hosts and are its own, and what others hold is not there. It
shares the database, the broker and the object store with them, and the code.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

from local import engine
from local.environment import HOME_VARIABLE, environment
from local.home import Home
from local.workers import ENGINE_QUEUE

OWN = ("tmp", "home", "airflow")
HIDDEN = ("s3", "postgres", "registry", "broker", "workers")
"""Folders of other hosts."""
DEFAULT_QUEUE = "default"
SLOTS = 8


def main(arguments: list[str]) -> int:
    """Be the host until its worker ends; return the worker's exit code."""
    parser = argparse.ArgumentParser(prog="python -m local.worker_host", description=__doc__)
    parser.add_argument("name", help="of the host")
    parser.add_argument("--engine", action="store_true", help="whether it has a Docker engine")
    options = parser.parse_args(arguments)
    home = Home.at(Path(os.environ[HOME_VARIABLE]))
    place = home.workers / options.name
    for folder in OWN:
        (place / folder).mkdir(parents=True, exist_ok=True)
    os.environ.pop("DOCKER_HOST", None)
    # The first process of a host of its own.
    alone = os.getpid() == 1
    if alone:
        place = _move_in(home, place, options.name)
    variables = environment(home.root) | {"TMPDIR": str(place / "tmp"), "HOME": str(place / "home")}
    variables |= _own_variables(place)
    variables.pop("DOCKER_HOST", None)
    if options.engine:
        variables["DOCKER_HOST"] = engine.ensure(place if alone else home.root, lambda text: print(text, flush=True))
    queues = [DEFAULT_QUEUE, *([ENGINE_QUEUE] if options.engine else [])]
    try:
        return _work(options.name, queues, variables)
    finally:
        if alone:
            engine.stop(place)


def _own_variables(place: Path) -> dict[str, str]:
    """Return the variables that this host alone has, such as another clock, to see what comes of it."""
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


def _work(name: str, queues: list[str], variables: dict[str, str]) -> int:
    """Run the worker; as the first process of a host, take in the children that others leave."""
    program = [sys.executable, "-m", "local.scheduler", "celery", "worker", "--skip-serve-logs", "--without-gossip"]
    program += ["--celery-hostname", f"celery@{name}", "--queues", ",".join(queues), "--concurrency", str(SLOTS)]
    worker = subprocess.Popen(program, env=variables)

    def stop(number: int, frame: FrameType | None) -> None:
        worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    while True:
        pid, status = os.wait()
        if pid == worker.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
