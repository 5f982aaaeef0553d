"""Starting and stopping the whole platform."""

import fcntl
import functools
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import psutil

from local import (
    airflow_services,
    broker,
    engine,
    image,
    modelserver,
    objectstore,
    postgres,
    processes,
    registry,
    services,
    shell_commands,
    workers,
)
from local.display import Display
from local.environment import own_connections, platform_variables, registry_address, stand_in_serves
from local.home import NO_WORKERS, Home, Settings, Workers, free_ports
from skillopt_airflow.core.errors import SkillOptError

DATABASE, STORE, MODEL, ENGINE, IMAGE, AIRFLOW, WORKERS = (
    "database",
    "S3 server",
    "model stand-in",
    "Docker engine",
    "sandbox image",
    "Airflow",
    "workers",
)


class Start:
    """One start: brings up what does not run, in parallel as far as one part does not need another."""

    def __init__(self, home: Home, settings: Settings, display: Display) -> None:
        self._home = home
        self._settings = settings
        self._display = display
        self._cancelled = Event()
        self._variables = platform_variables(home, replace(settings, docker_host=""), os.environ)

    def run(self) -> None:
        """Return when all parts are ready.

        Raises:
            SkillOptError: the first failure of a part, after the other parts were stopped from starting.
        """
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

    def _submit(self, pool: ThreadPoolExecutor) -> list[Future[str]]:
        database = pool.submit(self._part, DATABASE, self._have_database)
        docker = pool.submit(self._part, ENGINE, self._have_engine)
        images = pool.submit(self._part, IMAGE, lambda: self._have_image(docker.result()))
        airflow = pool.submit(self._part, AIRFLOW, lambda: self._have_airflow(database, docker))
        parts = [database, docker, images, airflow, pool.submit(self._part, STORE, self._have_store)]
        if stand_in_serves(os.environ):
            parts.append(pool.submit(self._part, MODEL, self._have_model))
        if self._settings.workers.count:
            parts.append(pool.submit(self._part, WORKERS, lambda: self._have_workers(airflow, images)))
        else:
            workers.stop(self._home, set())
        return parts

    def _part(self, name: str, work: Callable[[], str]) -> str:
        result = work()
        self._display.done(name)
        return result

    def _have_database(self) -> str:
        self._display.note(DATABASE, "starting PostgreSQL")
        postgres.ensure(self._home, self._cancelled)
        self._display.note(DATABASE, "bringing the schema up to date")
        airflow_services.migrate(self._home, self._variables)
        return ""

    def _have_store(self) -> str:
        self._display.note(STORE, "starting")
        objectstore.ensure(self._home, self._settings, self._variables, self._cancelled)
        return ""

    def _have_model(self) -> str:
        self._display.note(MODEL, "starting (it is no language model)")
        modelserver.ensure(self._home, self._settings, self._variables, self._cancelled)
        return ""

    def _have_engine(self) -> str:
        self._display.note(ENGINE, "looking for one that answers")
        docker_host = engine.ensure(self._home.root, lambda text: self._display.note(ENGINE, text))
        self._home.write(replace(self._settings, docker_host=docker_host))
        return docker_host

    def _have_image(self, docker_host: str) -> str:
        self._display.note(IMAGE, "building if its inputs changed")
        name = image.ensure(self._home.root, docker_host, lambda text: self._display.note(IMAGE, text))
        if self._settings.workers.count:
            self._display.note(IMAGE, "pushing to the workers' registry")
            note = functools.partial(self._display.note, IMAGE)
            registry.ensure(self._home, self._settings, self._variables, self._cancelled, note)
            registry.push(self._settings, docker_host)
        return name

    def _have_workers(self, airflow: Future[str], images: Future[str]) -> str:
        self._display.note(WORKERS, "starting the broker")
        note = functools.partial(self._display.note, WORKERS)
        broker.ensure(self._home, self._variables, self._cancelled, note)
        self._display.note(WORKERS, "waiting for Airflow and the images")
        airflow.result()
        images.result()
        self._display.note(WORKERS, f"starting {self._settings.workers.count}")
        workers.ensure(self._home, self._settings, self._variables, self._cancelled)
        return ""

    def _have_airflow(self, database: Future[str], docker: Future[str]) -> str:
        self._display.note(AIRFLOW, "waiting for the database")
        database.result()
        self._display.note(AIRFLOW, "starting API server, scheduler, DAG processor, triggerer")
        airflow_services.ensure(self._home, self._settings, self._variables, self._cancelled, docker.result)
        return ""


def up(home: Home, hosts: Workers | None = None) -> Settings:
    """Start what does not run yet, and return the settings.

    A start that fails or is interrupted stops what it had started; a platform that ran before goes on.

    Args:
        home: the platform's folder.
        hosts: the Celery workers that it is to have; None for those of a platform that runs, and for none else.

    Raises:
        SkillOptError: a part does not start; the text says why and what to do.
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
        parts = [DATABASE, STORE, ENGINE, IMAGE, AIRFLOW, *([MODEL] if stand_in_serves(os.environ) else [])]
        parts += [WORKERS] if hosts.count else []
        try:
            with Display(parts) as display:
                Start(home, settings, display).run()
        except BaseException:
            if not was_running:
                _stop_all(home)
            raise
        shell_commands.write(home)
        return home.read()


def down(home: Home) -> None:
    """Stop all that belongs to the home, whoever started it and however that ended; the data stays."""
    processes.end(processes.of_home(home), services.END_SECONDS)
    with _exclusive(home):
        _stop_all(home)


def is_running(home: Home) -> bool:
    """Return whether anything of the platform runs."""
    return bool(processes.of_home(home) or processes.of_postgres(home))


def states(home: Home) -> dict[str, str]:
    """Return what runs, service by service."""
    states = {"postgres": "running" if postgres.is_running(home) else "stopped"}
    settings = home.read() if home.settings_file.exists() else None
    models = [] if settings and not stand_in_serves(dict.fromkeys(settings.connections, "own")) else [modelserver.NAME]
    names = [objectstore.NAME, *models, *airflow_services.NAMES]
    hosts = settings.workers.count if settings else 0
    names += [broker.NAME, registry.NAME, *map(workers.name, range(1, hosts + 1))] if hosts else []
    for name in names:
        process = services.running(home, name)
        states[name] = "stopped" if process is None else f"running, process {process.pid}"
    return states


_SERVERS = {
    "airflow": airflow_services.SERVER,
    "s3": objectstore.NAME,
    "model": modelserver.NAME,
    "registry": registry.NAME,
}
"""The service behind each port of the settings."""


def _write_deployment(home: Home, settings: Settings) -> None:
    """Write the administrator's file: whoever has the platform is its administrator, and may name everything."""
    rules: dict[str, object] = {"allowed": "everything"}
    if settings.workers.count:
        # A tag may mean another image than the last time.
        sandbox = {"registry": registry_address(settings), "pull": "always", "queue": workers.ENGINE_QUEUE}
        rules["defaults"] = {"sandbox": sandbox}
    home.deployment_file.write_text(json.dumps(rules, indent=2))


def _stop_all(home: Home) -> None:
    processes.end(processes.of_home(home), services.END_SECONDS)
    _remove_containers(home)
    postgres.stop(home)
    with _told():
        engine.stop(home.root)
    processes.end(processes.of_home(home), services.END_SECONDS)
    shutil.rmtree(home.sockets, ignore_errors=True)


def _remove_containers(home: Home) -> None:
    """Remove sandboxes from an engine that was there before; those of our own engine end with it."""
    candidates = {os.environ.get("DOCKER_HOST", ""), engine.DEFAULT_SOCKET}
    with _told():
        candidates.add(home.read().docker_host if home.settings_file.exists() else "")
    for docker_host in candidates - {"", engine.OwnEngine(home.root).url}:
        with _told():
            if engine.answers(docker_host):
                engine.remove_containers(docker_host, home.root)


@contextmanager
def _told() -> Iterator[None]:
    """Say what went wrong, and have whoever stops the platform go on with the rest."""
    try:
        yield
    except SkillOptError as error:
        print(f"warning: {error}", file=sys.stderr)


@contextmanager
def _exclusive(home: Home) -> Iterator[None]:
    """Allow one start or stop of a home at a time; the lock ends with its process, however that ends."""
    with home.lock_file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another start or stop of {home.root} on {socket.gethostname()} is under way; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
