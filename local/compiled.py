"""Source-only packages, compiled for an image with compilers from PyPI.

The ziglang compilers target a fixed glibc version, so the result loads in the image regardless of this machine.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from shlex import quote

from uv import find_uv_bin

from local.home import PROJECT
from skillopt_airflow.core.errors import ImageMissing

LOCK = Path("docker/compiled-requirements.txt")
"""Hashes of the package, its build backend, and the compilers."""
COMPILERS = "ziglang==0.17.1"
C_LIBRARY = "gnu.2.31"
LAST_CHARS = 500


def stage(requirement: str, architecture: str, cache: Path, target: Path) -> None:
    """Copy a compiled package into a folder; compile it if it isn't cached."""
    cached = cache / f"{requirement}-{architecture}"
    if not cached.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (
            # Not in the cache: make splits paths at spaces, and a checkout's path may have some.
            tempfile.TemporaryDirectory(prefix="compiled-") as folder,
            tempfile.TemporaryDirectory(prefix="compiled-", dir=cache) as staging,
        ):
            _compile(requirement, architecture, Path(folder))
            shutil.move(Path(folder) / "built", staging)
            (Path(staging) / "built").rename(cached)
    shutil.copytree(cached, target, dirs_exist_ok=True)


def _compile(requirement: str, architecture: str, folder: Path) -> None:
    if shutil.which("make") is None:
        raise ImageMissing(f"{requirement}: compiling it needs the program make. Install it")
    _install(folder, "tools", [COMPILERS], {})
    commands = {"CC": "cc", "CXX": "c++", "AR": "ar", "RANLIB": "ranlib"}
    target = f" -target {architecture}-linux-{C_LIBRARY} -g0"
    for variable, tool in commands.items():
        script = folder / variable
        options = target if variable in ("CC", "CXX") else ""
        environment = f"PYTHONPATH={quote(f'{folder}/tools')} ZIG_GLOBAL_CACHE_DIR={quote(f'{folder}/zig')}"
        script.write_text(f'#!/bin/sh\n{environment} exec {quote(sys.executable)} -m ziglang {tool}{options} "$@"\n')
        script.chmod(0o755)
    name = requirement.partition("==")[0]
    variables = {variable: str(folder / variable) for variable in commands}
    _install(folder, "built", ["--no-binary", name, requirement], variables)


def _install(folder: Path, into: str, what: list[str], variables: dict[str, str]) -> None:
    lock = str(PROJECT / LOCK)
    locked = ["--no-deps", "--require-hashes", "--constraints", lock]
    locked += ["--require-build-hashes", "--build-constraints", lock]
    install = [find_uv_bin(), "pip", "install", "--quiet", "--target", str(folder / into), *locked, *what]
    result = subprocess.run(install, capture_output=True, text=True, check=False, env=os.environ | variables)
    if result.returncode != 0:
        raise ImageMissing(f"{what[-1]} could not be fetched or compiled: {result.stderr.strip()[-LAST_CHARS:]}")
