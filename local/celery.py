"""What `make up EXECUTOR=celery` adds: a broker, a registry of images, and workers on the same home and engine."""

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
"""A Redis, and the name of its package."""
REGISTRY = "registry"
REGISTRY_PROGRAM = "docker-registry"
SERVER_SECONDS = 60.0
ENGINE_QUEUE = "engine"
"""Queue of the tasks that need a Docker engine."""
DEFAULT_QUEUE = "default"
SLOTS = 8
WORKER_SECONDS = 240.0
PREFIX_VARIABLE = "SKILLOPT_WORKER_PREFIX"
"""Variable with a command that runs each worker's command. The cluster tests give each worker its own host with it."""


def ensure_broker(home: Home, variables: dict[str, str], cancelled: Event, report: Callable[[str], None]) -> None:
    """Have the broker run, on a socket of the home; it keeps what it was given, so that one that was killed goes on."""
    folder = _installed(home, BROKER, BROKER_PROGRAM, report)
    listening = ("--port", "0", "--unixsocket", str(broker_socket(home)), "--unixsocketperm", "600")
    kept = ("--dir", str(folder), "--appendonly", "yes", "--save", "")
    # A title would lie over the environment by which the process is found again.
    service = services.Service(BROKER, (BROKER_PROGRAM, *listening, *kept, "--set-proc-title", "no"), variables)
    services.ensure(home, service, lambda: broker_answers(broker_socket(home)), cancelled, SERVER_SECONDS)


def broker_socket(home: Home) -> Path:
    return home.sockets / BROKER_SOCKET


def broker_answers(path: Path) -> bool:
    """Return whether a Redis answers at the socket and has loaded its data."""
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
    """Have the registry run, on loopback, where engines need no certificate of it."""
    folder = _installed(home, REGISTRY, REGISTRY_PROGRAM, report)
    configuration = folder / "config.yml"
    storage = {"filesystem": {"rootdirectory": str(folder)}, "delete": {"enabled": True}}
    http = {"addr": registry_address(settings)}
    # JSON is YAML.
    configuration.write_text(json.dumps({"version": 0.1, "storage": storage, "http": http}))
    service = services.Service(REGISTRY, (REGISTRY_PROGRAM, "serve", str(configuration)), variables | http)
    url = f"http://{registry_address(settings)}/v2/"
    services.ensure(home, service, lambda: services.serves(url), cancelled, SERVER_SECONDS)


def push_images(settings: Settings, docker_host: str) -> None:
    """Push what sandboxes run in or beside, for the digests that runs on Celery workers need."""
    with image.opened_engine(docker_host, "an image could not be pushed") as client:
        for recipe in (recipe for recipe in image.RECIPES.values() if recipe.follows):
            for built in client.images.list(name=recipe.image):
                name, _, tag = f"{registry_address(settings)}/{recipe.image}".rpartition(":")
                built.tag(name, tag)
                for event in client.images.push(name, tag, stream=True, decode=True):
                    if "error" in event:
                        raise ImageMissing(f"{name}:{tag} could not be pushed: {event['error']}")


def worker_name(number: int) -> str:
    return f"worker-{number}"


def ensure_workers(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Run the workers of the settings until each takes tasks, and end all others."""
    wanted = range(1, settings.workers.count + 1)
    stop_workers(home, {worker_name(number) for number in wanted})
    prefix = shlex.split(os.environ.get(PREFIX_VARIABLE, ""))
    common = {key: value for key, value in variables.items() if key != "DOCKER_HOST"}
    docker_host = home.read().docker_host

    def have(number: int) -> None:
        worker = worker_name(number)
        log = services.log_path(home, worker)
        has_engine = number <= settings.workers.engines
        own = {"DOCKER_HOST": docker_host} if has_engine else {}
        command = (*prefix, *_command(worker, has_engine))
        service = services.Service(worker, command, common | own, (services.LOCK,))
        # Celery's log has this line as soon as the worker takes tasks.
        ready = f"{worker} ready."
        services.ensure(home, service, lambda: ready in log.read_text(errors="replace"), cancelled, WORKER_SECONDS)

    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        list(pool.map(have, wanted))


def stop_workers(home: Home, spared: set[str]) -> None:
    for worker in {log.name.partition(".")[0] for log in home.logs.glob("worker-*.log")} - spared:
        services.stop(home, worker)


def _command(worker: str, has_engine: bool) -> tuple[str, ...]:
    queues = ",".join([DEFAULT_QUEUE, *([ENGINE_QUEUE] if has_engine else [])])
    program = (sys.executable, "-m", "local.scheduler", "celery", "worker", "--skip-serve-logs", "--without-gossip")
    return (*program, "--celery-hostname", f"celery@{worker}", "--queues", queues, "--concurrency", str(SLOTS))


def _installed(home: Home, name: str, program: str, report: Callable[[str], None]) -> Path:
    """Return a server's folder, once its program, which is a package of the same name, is there."""
    if shutil.which(program) is None:
        report(f"installing {program}")
        install_packages(program)
    folder = home.root / name
    folder.mkdir(exist_ok=True)
    return folder
