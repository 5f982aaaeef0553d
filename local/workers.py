"""The Celery workers of a platform, each as on a host of its own."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from local import services
from local.home import Home, Settings

ENGINE_QUEUE = "engine"
"""Queue of the tasks that need a Docker engine."""
START_SECONDS = 240.0
READY = "ready."
"""The word of Celery's log with which a worker begins to take tasks."""
OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")


def name(number: int) -> str:
    """Return the name of a worker's service and host; the first is number 1."""
    return f"worker-{number}"


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Have so many workers run as the settings say, and take tasks; others that run are ended.

    Raises:
        PlatformError: one does not start; the text has the last lines of its log.
    """
    wanted = range(1, settings.workers.count + 1)
    stop(home, {name(number) for number in wanted})
    isolated = has_namespaces() if wanted else False
    common = {key: value for key, value in variables.items() if key != "DOCKER_HOST"}

    def have(number: int) -> None:
        has_engine = number <= settings.workers.engines
        command = [*(OWN_NAMESPACES if isolated else ()), sys.executable, "-m", "local.worker_host", name(number)]
        command += ["--engine"] if has_engine else []
        service = services.Service(name(number), tuple(command), common, (services.LOCK,))
        lives, started = services.have(home, service)
        if started:
            log = services.log_path(home, name(number))
            ready = f"{name(number)} {READY}"
            services.wait(
                home,
                name(number),
                lambda: ready in log.read_text(errors="replace"),
                cancelled,
                START_SECONDS,
                lives,
            )

    if wanted:
        with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
            list(pool.map(have, wanted))


def stop(home: Home, spared: set[str]) -> None:
    """End the workers of other names."""
    for number in range(1, len(list(home.workers.glob("*"))) + 1):
        if name(number) not in spared:
            services.stop(home, name(number))


def has_namespaces() -> bool:
    """Return whether this machine gives a process mounts, process numbers and a host name of its own."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run([*OWN_NAMESPACES, "true"], capture_output=True, check=False)
    return done.returncode == 0
