"""The platform's Celery workers: processes of this machine, which share its home and its Docker engine."""

import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from local import services
from local.home import Home, Settings

ENGINE_QUEUE = "engine"
"""Queue of the tasks that need a Docker engine."""
DEFAULT_QUEUE = "default"
SLOTS = 8
START_SECONDS = 240.0
PREFIX_VARIABLE = "SKILLOPT_WORKER_PREFIX"
"""Variable with a command that runs each worker's command. The cluster tests give each worker its own host with it."""


def name(number: int) -> str:
    """Return the name of a worker and its service; the first is number 1."""
    return f"worker-{number}"


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Run the workers of the settings until each takes tasks, and end all others."""
    wanted = range(1, settings.workers.count + 1)
    stop(home, {name(number) for number in wanted})
    prefix = shlex.split(os.environ.get(PREFIX_VARIABLE, ""))
    common = {key: value for key, value in variables.items() if key != "DOCKER_HOST"}
    docker_host = home.read().docker_host

    def have(number: int) -> None:
        worker, log = name(number), services.log_path(home, name(number))
        has_engine = number <= settings.workers.engines
        own = {"DOCKER_HOST": docker_host} if has_engine else {}
        command = (*prefix, *_command(worker, has_engine))
        service = services.Service(worker, command, common | own, (services.LOCK,))
        # Celery's log has this line as soon as the worker takes tasks.
        ready = f"{worker} ready."
        services.ensure(home, service, lambda: ready in log.read_text(errors="replace"), cancelled, START_SECONDS)

    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        list(pool.map(have, wanted))


def stop(home: Home, spared: set[str]) -> None:
    for worker in {log.name.partition(".")[0] for log in home.logs.glob("worker-*.log")} - spared:
        services.stop(home, worker)


def _command(worker: str, has_engine: bool) -> tuple[str, ...]:
    queues = ",".join([DEFAULT_QUEUE, *([ENGINE_QUEUE] if has_engine else [])])
    program = (sys.executable, "-m", "local.scheduler", "celery", "worker", "--skip-serve-logs", "--without-gossip")
    return (*program, "--celery-hostname", f"celery@{worker}", "--queues", queues, "--concurrency", str(SLOTS))
