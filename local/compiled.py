"""A package that PyPI has as source alone, with its native library compiled for an image by compilers from PyPI.

The compilers are those of the package ziglang: they aim at a C library of a stated age, whatever the one of this
machine, so that what they make loads in the image.
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
"""The hashes of what is compiled, of its build backend and of the compilers."""
COMPILERS = "ziglang==0.17.1"
C_LIBRARY = "gnu.2.31"
LAST_CHARS = 500


def stage(requirement: str, architecture: str, cache: Path, target: Path) -> None:
    """Add a package to a folder of packages, compiled if the cache has it not."""
    kept = cache / f"{requirement}-{architecture}"
    if not kept.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with (
            # Not in the cache: make splits the compilers' paths at a space, which a checkout's may have.
            tempfile.TemporaryDirectory(prefix="compiled-") as folder,
            tempfile.TemporaryDirectory(prefix="compiled-", dir=cache) as near,
        ):
            _compile(requirement, architecture, Path(folder))
            shutil.move(Path(folder) / "built", near)
            (Path(near) / "built").rename(kept)
    shutil.copytree(kept, target, dirs_exist_ok=True)


def _compile(requirement: str, architecture: str, folder: Path) -> None:
    """Compile into `built` below the folder."""
    if shutil.which("make") is None:
        raise ImageMissing(f"{requirement} is compiled for the image, which needs the program make: install it")
    _install(folder, "tools", [COMPILERS], {})
    commands = {"CC": "cc", "CXX": "c++", "AR": "ar", "RANLIB": "ranlib"}
    aim = f" -target {architecture}-linux-{C_LIBRARY} -g0"
    for variable, tool in commands.items():
        script = folder / variable
        options = aim if variable in ("CC", "CXX") else ""
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
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=os.environ | variables)
    if done.returncode != 0:
        raise ImageMissing(f"{what[-1]} could not be fetched or compiled: {done.stderr.strip()[-LAST_CHARS:]}")
