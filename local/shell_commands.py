"""The commands in the home's `bin`: programs of the virtual environment, in the platform's environment.

The scripts contain no keys. They read the settings at each call, so they need read access to them.
"""

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from local.environment import (
    DEFAULT_CONNECTIONS,
    REGION,
    S3_CONNECTION,
    UNCHECKED_KEY,
    environment,
    own_connections,
    s3_url,
)
from local.home import IMPORT_PATH, PROJECT, SOCKET_NAME, Home
from skillopt_airflow.core.errors import PlatformError

PROGRAMS = ("airflow", "python")
_SCRIPT = """#!/bin/sh
# {program} in the environment of the platform of {home}; every `make up` rewrites this file.
PYTHONPATH={path} exec {python} -P -m local.shell_commands {home} {program} "$@"
"""


def write(home: Home) -> None:
    """Write one script per program; scripts work from any folder."""
    home.bin.mkdir(exist_ok=True)
    for program in PROGRAMS:
        words = {"program": program, "home": home.root, "path": IMPORT_PATH, "python": sys.executable}
        script = home.bin / program
        draft = script.with_suffix(".draft")
        draft.write_text(_SCRIPT.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
        draft.chmod(0o755)
        draft.replace(script)


def shell_path(path: Path) -> str:
    return shlex.quote(str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path))


def paths(home: Home) -> str:
    return " and ".join(shell_path(home.bin / program) for program in PROGRAMS)


def command_environment(home: Home, program: str, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a program.

    Python also gets boto3's variables for the S3 server, unless the user has another object store. Airflow doesn't,
    because they would override the user's AWS account for models.
    """
    variables = environment(home.root)
    if program == "python" and not outer.get(S3_CONNECTION):
        variables |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), UNCHECKED_KEY)
        variables |= dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), REGION)
        variables |= {"AWS_ENDPOINT_URL_S3": s3_url(home.read())}
        # The consumer's cache is state of the platform, so it belongs into the home.
        variables |= {"XDG_CACHE_HOME": str(home.root / "cache")}
    return variables


def missing_connections(home: Home) -> dict[str, str]:
    """Return the user's connections that this shell lacks, from the running platform's environment."""
    from local import airflow_services, processes, services

    before = home.read().connections
    server = services.running(home, airflow_services.SERVER)
    running = {
        name: value
        for name, value in ({} if server is None else processes.variables(server)).items()
        if name.startswith("AIRFLOW_CONN_")
        and name not in os.environ
        and (name in before or name not in DEFAULT_CONNECTIONS)
    }
    own_connections(os.environ | running, before)
    return running


def require_running(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(home.sockets / SOCKET_NAME))
        except OSError:
            raise PlatformError(f"the platform of {home.root} is not running. Start it with `make up`") from None


def main(folder: str, program: str, *arguments: str) -> None:
    home = Home(Path(folder))
    try:
        require_running(home)
        os.environ.update(missing_connections(home))
        variables = command_environment(home, program, os.environ)
    except PlatformError as error:
        sys.exit(f"error: {error}")
    executable = Path(sys.executable).parent / program
    os.execve(executable, [str(executable), *arguments], variables)


if __name__ == "__main__":
    main(*sys.argv[1:])
