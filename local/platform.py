"""Starting and stopping the whole platform."""

import fcntl
import functools
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from local import airflow_services, celery, engine, image, objectstore, postgres, processes, services, shell_commands
from local.environment import model_url, own_connections, platform_variables, registry_address, uses_stand_in
from local.home import NO_WORKERS, PROJECT, Home, Settings, Workers, free_ports
from skillopt_airflow.core.errors import SkillOptError


class Display:
    """Progress of parts that start in parallel; thread-safe."""

    def __init__(self, parts: Iterable[str]) -> None:
        console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self.bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = {name: self.bars.add_task(name, total=1, note="") for name in parts}

    def note(self, part: str, text: str, completed: int = 0) -> None:
        if self.bars.disable:
            # One write, so that lines of threads don't mix.
            sys.stdout.write(f"[{time.monotonic() - self._began:5.1f} s] {part}: {text}\n")
            sys.stdout.flush()
        else:
            self.bars.update(self._tasks[part], completed=completed, note=text)


DATABASE, STORE, MODEL = "database", "S3 server", "model stand-in"
ENGINE, IMAGE, AIRFLOW, WORKERS = "Docker engine", "sandbox image", "Airflow", "workers"

STAND_IN = "model"
"""Service name of the offline stand-in."""
STAND_IN_CODE = PROJECT / "local" / "standin"
STAND_IN_SECONDS = 60.0

Note = Callable[[str], None]


class Start:
    """Starts the services that don't run, in parallel where possible."""

    def __init__(self, home: Home, settings: Settings, display: Display) -> None:
        self._home = home
        self._settings = settings
        self._display = display
        self._cancelled = Event()
        self._variables = platform_variables(home, replace(settings, docker_host=""), os.environ)
        self._service = (home, settings, self._variables, self._cancelled)

    def run(self) -> None:
        pool = ThreadPoolExecutor()
        try:
            for part in as_completed(self._submit(pool)):
                part.result()
        except BaseException:
            self._cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end(psutil.Process().children(recursive=True), services.END_SECONDS)
            raise
        pool.shutdown()

    def _submit(self, pool: ThreadPoolExecutor) -> list[Future[Any]]:
        def part(name: str, work: Callable[[Note], Any]) -> Future[Any]:
            return pool.submit(self._part, name, work)

        database, docker = part(DATABASE, self._have_database), part(ENGINE, self._have_engine)
        images = part(IMAGE, lambda note: self._have_image(docker.result(), note))
        airflow = part(AIRFLOW, lambda note: self._have_airflow(database, docker, note))
        parts = [database, docker, images, airflow, part(STORE, lambda note: objectstore.ensure(*self._service))]
        if uses_stand_in(os.environ):
            parts.append(part(MODEL, self._have_stand_in))
        if self._settings.workers.count:
            parts.append(part(WORKERS, lambda note: self._have_workers(airflow, images, note)))
        else:
            celery.stop_workers(self._home, set())
        return parts

    def _part(self, name: str, work: Callable[[Note], Any]) -> Any:
        note = functools.partial(self._display.note, name)
        note("starting")
        result = work(note)
        self._display.note(name, "ready", completed=1)
        return result

    def _have_database(self, note: Note) -> None:
        postgres.ensure(self._home, self._cancelled)
        note("migrating the schema")
        airflow_services.migrate(self._home, self._variables)

    def _have_stand_in(self, _: Note) -> None:
        command = (sys.executable, "-m", "local.standin", "--port", str(self._settings.ports.model))
        service = services.Service(STAND_IN, command, self._variables, (services.LOCK, services.PACKAGE, STAND_IN_CODE))
        url = f"{model_url(self._settings)}/models"
        services.ensure(self._home, service, lambda: services.serves(url), self._cancelled, STAND_IN_SECONDS)

    def _have_engine(self, note: Note) -> str:
        docker_host = engine.ensure(self._home.root, note)
        self._home.write(replace(self._settings, docker_host=docker_host))
        return docker_host

    def _have_image(self, docker_host: str, note: Note) -> None:
        note("checking, and building if inputs changed")
        image.ensure(self._home.root, docker_host, note)
        if self._settings.workers.count:
            note("pushing to the workers' registry")
            celery.ensure_registry(*self._service, note)
            celery.push_images(self._settings, docker_host)

    def _have_workers(self, airflow: Future[Any], images: Future[Any], note: Note) -> None:
        note("starting the broker")
        celery.ensure_broker(self._home, self._variables, self._cancelled, note)
        note("waiting for Airflow and the images")
        airflow.result()
        images.result()
        note(f"starting {self._settings.workers.count} workers")
        celery.ensure_workers(*self._service)

    def _have_airflow(self, database: Future[Any], docker: Future[str], note: Note) -> None:
        note("waiting for the database")
        database.result()
        note("starting API server, scheduler, DAG processor, triggerer")
        airflow_services.ensure(*self._service, docker.result)


def up(home: Home, hosts: Workers | None = None) -> Settings:
    """Start all services that don't run yet, and return the settings.

    If the start fails, stop everything, unless the platform ran before. If `hosts` is None, a running platform keeps
    its Celery workers.
    """
    with _exclusive(home):
        home.prepare()
        was_running = is_running(home)
        idle = [name for name, service in _SERVERS.items() if services.running(home, service) is None]
        settings = home.replace_taken_ports(home.read_or_choose(), idle)
        ports = settings.ports if settings.ports.registry else replace(settings.ports, registry=free_ports(1)[0])
        if hosts is None:
            hosts = settings.workers if was_running else NO_WORKERS
        connections = own_connections(os.environ, settings.connections)
        settings = home.write(replace(settings, workers=hosts, ports=ports, connections=connections))
        _write_deployment(home, settings)
        parts = [DATABASE, STORE, ENGINE, IMAGE, AIRFLOW, *([MODEL] if uses_stand_in(os.environ) else [])]
        parts += [WORKERS] if hosts.count else []
        try:
            display = Display(parts)
            with display.bars:
                Start(home, settings, display).run()
        except BaseException:
            if not was_running:
                _stop_all(home)
            raise
        shell_commands.write(home)
        return home.read()


def down(home: Home) -> None:
    """Stop all services of the home, including orphans; keep the data."""
    processes.end(processes.of_home(home), services.END_SECONDS)
    with _exclusive(home):
        _stop_all(home)


def is_running(home: Home) -> bool:
    return bool(processes.of_home(home) or processes.of_postgres(home))


def states(home: Home) -> dict[str, str]:
    states = {"postgres": "running" if postgres.is_running(home) else "stopped"}
    settings = home.read() if home.settings_file.exists() else None
    models = [] if settings and not uses_stand_in(dict.fromkeys(settings.connections, "own")) else [STAND_IN]
    names = [objectstore.NAME, *models, *airflow_services.NAMES]
    hosts = settings.workers.count if settings else 0
    names += [celery.BROKER, celery.REGISTRY, *map(celery.worker_name, range(1, hosts + 1))] if hosts else []
    for name in names:
        process = services.running(home, name)
        states[name] = "stopped" if process is None else f"running, process {process.pid}"
    return states


_SERVERS = {"airflow": airflow_services.SERVER, "s3": objectstore.NAME, "model": STAND_IN, "registry": celery.REGISTRY}
"""Service per port in the settings."""


def _write_deployment(home: Home, settings: Settings) -> None:
    """Write the administrator's file; the platform's user is its administrator, so everything is allowed."""
    rules: dict[str, object] = {"allowed": "everything"}
    if settings.workers.count:
        sandbox = {"registry": registry_address(settings), "queue": celery.ENGINE_QUEUE}
        rules["defaults"] = {"sandbox": sandbox}
    home.deployment_file.write_text(json.dumps(rules, indent=2))


def _stop_all(home: Home) -> None:
    processes.end(processes.of_home(home), services.END_SECONDS)
    _remove_containers(home)
    postgres.stop(home)
    with _warn_on_error():
        engine.stop(home.root)
    processes.end(processes.of_home(home), services.END_SECONDS)
    shutil.rmtree(home.sockets, ignore_errors=True)


def _remove_containers(home: Home) -> None:
    """Remove sandboxes from engines that the platform didn't start; its own engine removes them when it stops."""
    candidates = {os.environ.get("DOCKER_HOST", ""), engine.DEFAULT_SOCKET}
    with _warn_on_error():
        candidates.add(home.read().docker_host if home.settings_file.exists() else "")
    for docker_host in candidates - {"", engine.OwnEngine(home.root).url}:
        with _warn_on_error():
            if engine.answers(docker_host):
                engine.remove_containers(docker_host, home.root)


@contextmanager
def _warn_on_error() -> Iterator[None]:
    """Print errors as warnings, so that the stop continues."""
    try:
        yield
    except SkillOptError as error:
        print(f"warning: {error}", file=sys.stderr)


@contextmanager
def _exclusive(home: Home) -> Iterator[None]:
    """Allow one start or stop of a home at a time; the lock ends with its process."""
    with home.lock_file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another start or stop of {home.root} on {socket.gethostname()} is running; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
