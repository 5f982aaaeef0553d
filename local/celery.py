"""The services of `make up EXECUTOR=celery`: a broker, an image registry, and workers."""

import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from local import image, services
from local.engine import install_packages
from local.environment import BROKER_SOCKET, registry_address
from local.home import Home, Settings
from skillopt_airflow.core.errors import ImageMissing

BROKER = "broker"
BROKER_PROGRAM = "redis-server"
REGISTRY = "registry"
REGISTRY_PROGRAM = "docker-registry"
SERVER_SECONDS = 60.0
ENGINE_QUEUE = "engine"
"""Queue for tasks that need a Docker engine."""
DEFAULT_QUEUE = "default"
SLOTS = 8
WORKER_SECONDS = 240.0
PREFIX_VARIABLE = "SKILLOPT_WORKER_PREFIX"
"""Command prefix of each worker. The cluster tests use it to run each worker on its own host."""


def ensure_broker(home: Home, variables: dict[str, str], cancelled: Event, report: Callable[[str], None]) -> None:
    """Start the broker on a socket in the home; it stores its queue on disk and survives a kill."""
    folder = _install(home, BROKER, BROKER_PROGRAM, report)
    listening = ("--port", "0", "--unixsocket", str(broker_socket(home)), "--unixsocketperm", "600")
    persistence = ("--dir", str(folder), "--appendonly", "yes", "--save", "")
    # A process title would overwrite the environment that identifies the process.
    service = services.Service(BROKER, (BROKER_PROGRAM, *listening, *persistence, "--set-proc-title", "no"), variables)
    services.ensure(home, service, lambda: broker_answers(broker_socket(home)), cancelled, SERVER_SECONDS)


def broker_socket(home: Home) -> Path:
    return home.sockets / BROKER_SOCKET


def broker_answers(path: Path) -> bool:
    """Return whether Redis responds and has loaded its data."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def ensure_registry(
    home: Home, settings: Settings, variables: dict[str, str], cancelled: Event, report: Callable[[str], None]
) -> None:
    """Start the registry on loopback, where engines require no certificate."""
    folder = _install(home, REGISTRY, REGISTRY_PROGRAM, report)
    configuration = folder / "config.yml"
    storage = {"filesystem": {"rootdirectory": str(folder)}, "delete": {"enabled": True}}
    http = {"addr": registry_address(settings)}
    # JSON is YAML.
    configuration.write_text(json.dumps({"version": 0.1, "storage": storage, "http": http}))
    service = services.Service(REGISTRY, (REGISTRY_PROGRAM, "serve", str(configuration)), variables | http)
    url = f"http://{registry_address(settings)}/v2/"
    services.ensure(home, service, lambda: services.serves(url), cancelled, SERVER_SECONDS)


def push_images(settings: Settings, docker_host: str) -> None:
    """Push the sandbox and gateway images, because runs on Celery workers need their digests."""
    with image.open_engine(docker_host, "an image could not be pushed") as client:
        for recipe in (recipe for recipe in image.RECIPES.values() if recipe.rebuild_with_sandbox):
            for built in client.images.list(name=recipe.image):
                name, _, tag = f"{registry_address(settings)}/{recipe.image}".rpartition(":")
                built.tag(name, tag)
                for event in client.images.push(name, tag, stream=True, decode=True):
                    if "error" in event:
                        raise ImageMissing(f"{name}:{tag} could not be pushed: {event['error']}")


def worker_name(number: int) -> str:
    return f"worker-{number}"


def ensure_workers(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Start the configured workers, wait until each takes tasks, and stop all others."""
    numbers = range(1, settings.workers.count + 1)
    stop_workers(home, {worker_name(number) for number in numbers})
    prefix = shlex.split(os.environ.get(PREFIX_VARIABLE, ""))
    common = {key: value for key, value in variables.items() if key != "DOCKER_HOST"}
    docker_host = home.read().docker_host

    def start(number: int) -> None:
        worker = worker_name(number)
        log = services.log_path(home, worker)
        has_engine = number <= settings.workers.engines
        own = {"DOCKER_HOST": docker_host} if has_engine else {}
        command = (*prefix, *_command(worker, has_engine))
        service = services.Service(worker, command, common | own, (services.LOCK,))
        # Celery logs this line when the worker takes tasks.
        ready = f"{worker} ready."
        services.ensure(home, service, lambda: ready in log.read_text(errors="replace"), cancelled, WORKER_SECONDS)

    with ThreadPoolExecutor(max_workers=len(numbers)) as pool:
        list(pool.map(start, numbers))


def stop_workers(home: Home, keep: set[str]) -> None:
    for worker in {log.name.partition(".")[0] for log in home.logs.glob("worker-*.log")} - keep:
        services.stop(home, worker)


def _command(worker: str, has_engine: bool) -> tuple[str, ...]:
    queues = ",".join([DEFAULT_QUEUE, *([ENGINE_QUEUE] if has_engine else [])])
    program = (sys.executable, "-m", "local.scheduler", "celery", "worker", "--skip-serve-logs", "--without-gossip")
    return (*program, "--celery-hostname", f"celery@{worker}", "--queues", queues, "--concurrency", str(SLOTS))


def _install(home: Home, name: str, program: str, report: Callable[[str], None]) -> Path:
    """Install the package `program` if it is missing, and return the server's folder."""
    if shutil.which(program) is None:
        report(f"installing {program}")
        install_packages(program)
    folder = home.root / name
    folder.mkdir(exist_ok=True)
    return folder
