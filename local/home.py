"""The folder that holds all state of one local platform, and the choices remembered in it."""

import hashlib
import json
import os
import secrets
import socket
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from skillopt_airflow.core.errors import PlatformError

PROJECT = Path(__file__).resolve().parent.parent
IMPORT_PATH = os.pathsep.join([str(PROJECT / "include"), str(PROJECT)])
"""PYTHONPATH of a process that imports the package and this folder."""
ADMIN = "admin"
SOCKET_PATH_BYTES = 107
POSTGRES_PORT = 5432
SOCKET_NAME = f".s.PGSQL.{POSTGRES_PORT}"
"""PostgreSQL's name for its socket, the longest name in the folder of sockets."""


@dataclass(frozen=True)
class Ports:
    """Loopback ports, one a server."""

    airflow: int
    s3: int
    model: int
    registry: int = 0
    """Of the images, for Celery workers; 0 until there are any."""


@dataclass(frozen=True)
class Workers:
    """The Celery workers."""

    count: int = 0
    """0 means that LocalExecutor runs the tasks beside the scheduler."""
    engines: int = 0
    """Number of workers that take the tasks which need the Docker engine: the first ones."""


NO_WORKERS = Workers()


@dataclass(frozen=True)
class Settings:
    """Choices that a platform made once and keeps: addresses, keys, the login."""

    ports: Ports
    workers: Workers = NO_WORKERS
    docker_host: str = ""
    """Address of the engine that the last start found; empty before the first."""
    connections: tuple[str, ...] = ()
    """Variables of the user's own connections at the last start, among those that the platform has some for."""
    fernet_key: str = field(default_factory=lambda: urlsafe_b64encode(secrets.token_bytes(32)).decode())
    jwt_secret: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    """The UI's password of the user `admin`."""


class Inside:
    """A path at a fixed place in the `root` of whatever has it as an attribute."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, folder: Any, owner: type) -> Path:
        return Path(folder.root, self._place)


@dataclass(frozen=True)
class Home:
    """Paths of a platform's folder; `root` is absolute, because processes are recognised by it."""

    root: Path

    postgres = Inside("postgres")
    """PostgreSQL's data directory."""
    s3 = Inside("s3")
    """The folder of the S3 server's objects and state."""
    airflow = Inside("airflow")
    """AIRFLOW_HOME."""
    bin = Inside("bin")
    """The folder of the commands that a user types."""
    logs = Inside("logs")
    """The folder with one log file a service; task logs are below AIRFLOW_HOME."""
    settings_file = Inside("settings.json")
    """The file with ports, keys and the login, readable to the owner alone."""
    deployment_file = Inside("deployment.yaml")
    """The administrator's file of the platform's Airflow, which every start writes anew."""
    lock_file = Inside("lock")
    """The file that the one process holds that starts or stops the platform."""

    @classmethod
    def at(cls, path: Path) -> "Home":
        """Return the home at a path, which is created if it is not there."""
        root = path.expanduser().resolve()
        root.mkdir(parents=True, exist_ok=True)
        return cls(root)

    @property
    def sockets(self) -> Path:
        """Return the folder of sockets: in the home, unless a path in there would be too long for a socket."""
        inside = self.root / "sockets"
        if len(os.fsencode(inside / SOCKET_NAME)) <= SOCKET_PATH_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"skillopt-{digest}"

    def prepare(self) -> None:
        """Create the folders."""
        for folder in (self.s3, self.airflow, self.logs):
            folder.mkdir(exist_ok=True)
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        if self.sockets.is_symlink() or self.sockets.stat().st_uid != os.geteuid():
            raise PlatformError(
                f"{self.sockets} belongs to another user: remove it, or set TMPDIR to a folder of yours"
            )

    def read(self) -> Settings:
        """Return the remembered settings."""
        try:
            stored = json.loads(self.settings_file.read_text())
            made = {"ports": Ports(**stored["ports"]), "workers": Workers(**stored.get("workers", {}))}
            made |= {"connections": tuple(stored.get("connections", ()))}
            return Settings(**{**stored, **made})
        except FileNotFoundError:
            raise PlatformError(f"no platform was started in {self.root} yet: run `make up`") from None
        except (ValueError, TypeError, KeyError) as error:
            raise PlatformError(
                f"{self.settings_file} is damaged ({error}): delete it, the next start makes it"
            ) from error

    def read_or_choose(self) -> Settings:
        """Return the remembered settings, or new ones."""
        if self.settings_file.exists():
            return self.read()
        return self.write(Settings(ports=Ports(*free_ports(3))))

    def write(self, settings: Settings) -> Settings:
        """Remember the settings, in one move."""
        draft = self.settings_file.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(asdict(settings), indent=2))
        draft.replace(self.settings_file)
        return settings

    def replace_taken_ports(self, settings: Settings, idle: Iterable[str]) -> Settings:
        """Choose new ports for those idle servers whose port was taken by a stranger meanwhile."""
        taken = [name for name in idle if not _is_free(getattr(settings.ports, name))]
        if not taken:
            return settings
        chosen = dict(zip(taken, free_ports(len(taken)), strict=True))
        return self.write(replace(settings, ports=replace(settings.ports, **chosen)))


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in sockets]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
