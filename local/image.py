"""The sandbox image: its build context, its base, and building it when an input changed."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from requests import RequestException
from uv import find_uv_bin

from include.core.errors import ImageMissing
from local.engine import install_packages

Report = Callable[[str], None]

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = Path("docker/sandbox.Dockerfile")
REQUIREMENTS = Path("docker/sandbox-requirements.txt")
IMAGE = "skillopt-sandbox:latest"
INPUTS_LABEL = "skillopt.inputs"
BASE = "python:3.11-slim-bookworm"
BOOTSTRAPPED_BASE = "skillopt-sandbox-base:bookworm"
SUITE = "bookworm"
PYTHON = "3.11"
PULL_SECONDS = 300.0
SILENT_SECONDS = 30
BUILD_SECONDS = 900


def ensure(home: Path, docker_host: str, report: Report) -> str:
    """The name of the sandbox image, which is built if it is missing or an input of it changed.

    Raises:
        ImageMissing: the base, a package or the build failed; the text says which and why.
    """
    try:
        client = docker.DockerClient(base_url=docker_host, timeout=BUILD_SECONDS)
    except DockerException as error:
        raise ImageMissing(f"the sandbox image cannot be built: no engine answers at {docker_host}: {error}") from error
    try:
        inputs = inputs_hash(ROOT)
        if _built_from(client) == inputs:
            return IMAGE
        base = _base(client, docker_host, home.resolve(), report)
        report("building the sandbox image")
        with tempfile.TemporaryDirectory(prefix="skillopt-image-") as folder:
            stage_context(ROOT, Path(folder), _architecture(client))
            _build(client, Path(folder), base, inputs)
        # The former image has lost its name and would fill the disk.
        client.images.prune(filters={"dangling": True, "label": [INPUTS_LABEL]})
        return IMAGE
    except (DockerException, RequestException) as error:
        raise ImageMissing(f"the sandbox image could not be built on {docker_host}: {error}") from error
    finally:
        client.close()


def program_files(root: Path) -> Sequence[Path]:
    """What of the project enters the image, relative to its root: no data, no configuration of a benchmark."""
    folders = [root / "include" / "core", root / "include" / "rollout"]
    files = [root / "include" / "__init__.py", root / "benchmarks" / "__init__.py"]
    files += [path for folder in folders for path in folder.rglob("*.py")]
    for adapter in root.glob("benchmarks/[!_]*/adapter.py"):
        files += [adapter, adapter.with_name("__init__.py")]
    return sorted(path.relative_to(root) for path in files)


def stage_program(root: Path, target: Path) -> None:
    """Copy what the image gets into a folder, from where `python -m include.rollout` runs."""
    for path in program_files(root):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / path)


def stage_context(root: Path, target: Path, architecture: str) -> None:
    """The whole build context: Dockerfile, program, and the packages for the image's Python.

    Raises:
        ImageMissing: with the installer's last words.
    """
    shutil.copyfile(root / DOCKERFILE, target / "Dockerfile")
    stage_program(root, target / "program")
    install = [find_uv_bin(), "pip", "install", "--no-deps", "--only-binary", ":all:", "--quiet"]
    install += ["--target", str(target / "packages"), "--requirements", str(root / REQUIREMENTS)]
    install += ["--python-version", PYTHON, "--python-platform", f"{architecture}-manylinux_2_28"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageMissing(f"the sandbox's packages could not be fetched: {done.stderr.strip()[-500:]}")


def inputs_hash(root: Path) -> str:
    """Hex SHA-256 over every file and name that decides what the image holds."""
    digest = hashlib.sha256("\0".join([BASE, SUITE, PYTHON]).encode())
    for path in [DOCKERFILE, REQUIREMENTS, Path("local/image.py"), *program_files(root)]:
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _built_from(client: docker.DockerClient) -> str | None:
    try:
        return client.images.get(IMAGE).labels.get(INPUTS_LABEL)
    except ImageNotFound:
        return None


def _architecture(client: docker.DockerClient) -> str:
    machine = str(client.version()["Arch"])
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _base(client: docker.DockerClient, docker_host: str, home: Path, report: Report) -> str:
    for name in (BASE, BOOTSTRAPPED_BASE):
        if client.images.list(name=name):
            return name
    archive = home / "cache" / "sandbox-base.tar"
    if not archive.exists():
        report(f"pulling {BASE}")
        reason = _pull(docker_host)
        if not reason:
            return BASE
        report(f"{BASE} cannot be pulled ({reason}); making a base from Debian's packages, about a minute")
        _bootstrap(archive, reason)
    repository, _, tag = BOOTSTRAPPED_BASE.partition(":")
    client.api.import_image(src=str(archive), repository=repository, tag=tag)
    return BOOTSTRAPPED_BASE


def _pull(docker_host: str) -> str:
    """Pull the base in bounded time; why it did not work, or nothing."""
    client = docker.APIClient(base_url=docker_host, timeout=SILENT_SECONDS)
    deadline = time.monotonic() + PULL_SECONDS
    try:
        for event in client.pull(BASE, stream=True, decode=True):
            if "error" in event:
                return _one_line(event["error"])
            if time.monotonic() > deadline:
                return f"not done after {PULL_SECONDS:.0f} s"
        return ""
    except APIError as error:
        return _one_line(str(error.explanation))
    except RequestException:
        return f"no registry answered in {SILENT_SECONDS} s"
    finally:
        client.close()


def _bootstrap(archive: Path, reason: str) -> None:
    """Make the base from the distribution's packages, complete or not at all.

    Raises:
        ImageMissing: not root, or not a Debian-like machine, or the packages cannot be fetched.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ImageMissing(
            f"{BASE} cannot be pulled ({reason}), and making a base instead needs root on Debian or Ubuntu: "
            f"give the engine access to a registry, or load the image with `docker load`"
        )
    if shutil.which("mmdebstrap") is None:
        install_packages("mmdebstrap", "debian-archive-keyring")
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".unfinished.tar")
    command = ["mmdebstrap", "--variant=minbase", "--include=python3", SUITE, str(unfinished)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise ImageMissing(f"mmdebstrap could not make a base image: {_one_line(done.stderr[-500:])}")
    unfinished.rename(archive)


def _build(client: docker.DockerClient, context: Path, base: str, inputs: str) -> None:
    try:
        client.images.build(
            path=str(context),
            tag=IMAGE,
            buildargs={"BASE": base},
            labels={INPUTS_LABEL: inputs},
            network_mode="none",
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        lines = "".join(str(line.get("stream", "")) for line in error.build_log).strip()
        raise ImageMissing(f"building the sandbox image failed: {error.msg}: {_one_line(lines[-500:])}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())
