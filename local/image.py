"""Container images: their inputs, base image, and builds."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from requests import RequestException, Response
from urllib3.exceptions import HTTPError
from uv import find_uv_bin

from local import compiled, npm
from local.engine import install_packages
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.rollout.settings import IN_IMAGE

Report = Callable[[str], None]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("include/skillopt_airflow")
CARRIED = Path("skillopt_airflow/project/benchmarks")
DOCKERFILE = Path("docker/sandbox.Dockerfile")
REQUIREMENTS = Path("docker/sandbox-requirements.txt")
IMAGE = HARNESSES["chat"].image
INPUTS_LABEL = "skillopt.inputs"
BASE = "python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d"
BOOTSTRAPPED_BASE = "skillopt-sandbox-base:bookworm-git"
SUITE = "bookworm"
PYTHON = "3.11"
PULL_SECONDS = 300.0
SILENT_SECONDS = 30
BUILD_SECONDS = 900
ON = " on "
"""Separates the hash of the inputs and a custom base in an image's label."""
BUILDERS = (Path("local/image.py"), Path("local/npm.py"), Path("local/compiled.py"), compiled.LOCK)
"""Code that builds the images; part of their inputs."""


Files = Mapping[Path, Path]
"""Source files by their path in the image, below the program's folder."""


def program_files(root: Path) -> Files:
    """Return the files of the sandbox image, without data and benchmark configurations.

    Adapters are inside the package, as in the wheel. They are copied, not mounted, because a remote engine or a cluster
    can't mount this machine's folders.
    """
    package = root / PACKAGE
    files = [package / f"{name}.py" for name in ("__init__", "benchmarks", "consumer")]
    files += [path for folder in ("core", "tasks", "rollout") for path in (package / folder).rglob("*.py")]
    adapters = {
        CARRIED / name / file: benchmarks.folder(name) / file for name in benchmarks.names() for file in IN_IMAGE
    }
    return _placed(root, files) | {place: path for place, path in adapters.items() if path.is_file()}


def gateway_files(root: Path) -> Files:
    """Return the files of the gateway image: model calls and file transfer of sandboxes."""
    package = root / PACKAGE
    files = [package / "__init__.py", package / "limited_process.py"]
    files += [path for folder in ("core", "tasks", "gateway") for path in (package / folder).rglob("*.py")]
    transfer = ("__init__", "untrusted_output", "task_workload", "kubernetes/__init__", "kubernetes/courier")
    return _placed(root, [*files, *(package / "sandbox" / f"{name}.py" for name in transfer)])


def airflow_files(root: Path) -> Files:
    return {path.relative_to(root): path for name in ("dags", "plugins") for path in sorted((root / name).glob("*.py"))}


def wheel_files(root: Path) -> Files:
    """Return a superset of the files in the project's wheel."""
    paths = [path for folder in (PACKAGE, Path("benchmarks"), Path("skills")) for path in (root / folder).rglob("*")]
    files = [root / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    files += [*(path for path in paths if path.is_file() and "__pycache__" not in path.parts)]
    return {path.relative_to(root): path for path in sorted(files)}


def _placed(root: Path, files: Iterable[Path]) -> dict[Path, Path]:
    return {path.relative_to(root / "include"): path for path in sorted(files)}


@dataclass(frozen=True)
class Recipe:
    """How to build one image; paths are relative to the project."""

    image: str
    dockerfile: Path
    requirements: tuple[Path, ...] = ()
    """Lock files of Python packages."""
    program: Callable[[Path], Files] = lambda root: {}
    cli: npm.CLI | None = None
    compiled: str = ""
    """A requirement without a wheel, to compile."""
    on_sandbox: bool = False
    """True if its base is the sandbox image instead of Python's."""
    has_wheel: bool = False
    """True if it also installs the project."""
    rebuild_with_sandbox: bool = True
    """Rebuild an existing image when the sandbox image is built."""


RECIPES: Mapping[str, Recipe] = {
    "sandbox": Recipe(IMAGE, DOCKERFILE, (REQUIREMENTS,), program_files),
    "codex": Recipe(HARNESSES["codex"].image, Path("docker/codex.Dockerfile"), cli=npm.CODEX, on_sandbox=True),
    "claude_code": Recipe(
        HARNESSES["claude_code"].image, Path("docker/claude_code.Dockerfile"), cli=npm.CLAUDE_CODE, on_sandbox=True
    ),
    "alfworld": Recipe(
        "skillopt-sandbox-alfworld:latest",
        Path("docker/alfworld.Dockerfile"),
        (Path("docker/alfworld-requirements.txt"),),
        compiled="fast-downward-textworld==20.6.4",
        on_sandbox=True,
    ),
    "gateway": Recipe(
        SandboxGroup().gateway_image,
        Path("docker/gateway.Dockerfile"),
        (Path("docker/gateway-requirements.txt"),),
        gateway_files,
    ),
    "airflow": Recipe(
        "skillopt-airflow:latest",
        Path("docker/airflow.Dockerfile"),
        (Path("requirements.txt"), Path("docker/airflow-requirements.txt")),
        airflow_files,
        has_wheel=True,
        rebuild_with_sandbox=False,
    ),
}
"""Only the sandbox image is built by default."""


def ensure(home: Path, docker_host: str, report: Report, names: Iterable[str] = (), base: str = "") -> str:
    """Build missing and outdated images, and return the name of the sandbox image.

    Also rebuilds outdated images that were built before, because they must match the sandbox image.

    Args:
        home: the platform's folder, with a cache.
        docker_host: the engine's URL.
        report: called with each action.
        names: images of RECIPES to build.
        base: base of the images in `names` that don't extend the sandbox image. By default the previous base, or
            Python's.
    """
    names = set(names)
    required = {"sandbox", *names}
    with open_engine(docker_host, "an image could not be built") as client:
        for name, recipe in RECIPES.items():
            built = _built_from(client, recipe.image)
            if name not in required and (built is None or not recipe.rebuild_with_sandbox):
                continue
            own = "" if recipe.on_sandbox else base if name in names and base else (built or "").partition(ON)[2]
            inputs = inputs_hash(ROOT, name) + (f"{ON}{own}" if own else "")
            if built != inputs:
                _make(client, docker_host, home.resolve(), report, name, inputs, own)
    return IMAGE


@contextmanager
def open_engine(docker_host: str, failure: str) -> Iterator[docker.DockerClient]:
    try:
        with closing(docker.DockerClient(base_url=docker_host, timeout=BUILD_SECONDS)) as client:
            yield client
    except (DockerException, RequestException) as error:
        raise ImageMissing(f"{failure} on {docker_host}: {error}") from error


def _make(
    client: docker.DockerClient, docker_host: str, home: Path, report: Report, name: str, inputs: str, base: str
) -> None:
    recipe = RECIPES[name]
    if not base:
        base = IMAGE if recipe.on_sandbox else _base(client, docker_host, home, report)
    report(f"building {recipe.image}")
    with tempfile.TemporaryDirectory(prefix="skillopt-image-") as folder:
        stage_context(ROOT, Path(folder), _architecture(client), home / "cache", name)
        _build(client, Path(folder), base, recipe.image, inputs)
    # The previous image has no name anymore and would fill the disk.
    try:
        client.images.prune(filters={"dangling": True, "label": [INPUTS_LABEL]})
    except APIError as error:
        # Conflict: another build is pruning.
        if error.status_code != HTTPStatus.CONFLICT:
            raise


def stage_program(root: Path, target: Path, files: Callable[[Path], Files] = program_files) -> None:
    """Copy an image's files into a folder, by default those of `python -m skillopt_airflow.rollout`."""
    for place, path in files(root).items():
        copy = target / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def stage_context(root: Path, target: Path, architecture: str, cache: Path, name: str) -> None:
    """Stage the build context: the Dockerfile, and either a CLI or the program and its packages.

    The first compilation takes minutes; the cache stores the result.
    """
    recipe = RECIPES[name]
    shutil.copyfile(root / recipe.dockerfile, target / "Dockerfile")
    if recipe.cli is not None:
        npm.stage(recipe.cli, architecture, cache, target / "cli")
        return
    stage_program(root, target / "program", recipe.program)
    locked = [word for lock in recipe.requirements for word in ("--requirements", str(root / lock))]
    _install(recipe, ["--require-hashes", *locked], architecture, target / "packages")
    if recipe.has_wheel:
        with tempfile.TemporaryDirectory(prefix="skillopt-wheel-") as folder:
            # Uses the locked build backend of this environment.
            build = ["build", "--wheel", "--no-build-isolation", "--python", sys.executable]
            _uv(recipe, [*build, "--out-dir", folder, str(root)])
            _install(recipe, [*map(str, Path(folder).glob("*.whl"))], architecture, target / "packages")
    if recipe.compiled:
        compiled.stage(recipe.compiled, architecture, cache, target / "packages")


def _install(recipe: Recipe, packages: list[str], architecture: str, target: Path) -> None:
    platform = ["--python-version", PYTHON, "--python-platform", f"{architecture}-manylinux_2_28"]
    install = ["pip", "install", "--no-deps", "--only-binary", ":all:"]
    _uv(recipe, [*install, "--target", str(target), *platform, *packages])


def _uv(recipe: Recipe, arguments: list[str]) -> None:
    result = subprocess.run([find_uv_bin(), "--quiet", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ImageMissing(
            f"{recipe.image}: uv can't fetch the packages (set UV_DEFAULT_INDEX to use a mirror): "
            f"{result.stderr.strip()[-500:]}"
        )


def input_files(root: Path, name: str = "sandbox") -> Files:
    """Return all files that affect an image's content, including those of its base, by unique names."""
    recipe = RECIPES[name]
    below = [recipe.dockerfile, *BUILDERS, *recipe.requirements]
    below += [] if recipe.cli is None else [recipe.cli.lock]
    files = {path: root / path for path in below}
    files |= {Path("program") / at: path for at, path in recipe.program(root).items()}
    if recipe.has_wheel:
        files |= wheel_files(root)
    return {**input_files(root), **files} if recipe.on_sandbox else files


def inputs_hash(root: Path, name: str = "sandbox") -> str:
    """Return the SHA-256 of everything that affects an image's content."""
    digest = hashlib.sha256("\0".join([BASE, SUITE, PYTHON, name]).encode())
    for place, path in input_files(root, name).items():
        content = path.read_bytes()
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _built_from(client: docker.DockerClient, image: str) -> str | None:
    try:
        return client.images.get(image).labels.get(INPUTS_LABEL)
    except ImageNotFound:
        return None


def _architecture(client: docker.DockerClient) -> str:
    machine = str(client.version()["Arch"])
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _base(client: docker.DockerClient, docker_host: str, home: Path, report: Report) -> str:
    for name in (BASE, BOOTSTRAPPED_BASE):
        with suppress(ImageNotFound):
            client.images.get(name)
            return name
    archive = home / "cache" / "sandbox-base-git.tar"
    if not archive.exists():
        report(f"pulling {BASE}")
        reason = _pull(docker_host)
        if not reason:
            return BASE
        report(f"can't pull {BASE} ({reason}); building a base from Debian packages, about a minute")
        _bootstrap(archive, reason)
    repository, _, tag = BOOTSTRAPPED_BASE.partition(":")
    client.api.import_image(src=str(archive), repository=repository, tag=tag)
    return BOOTSTRAPPED_BASE


class _ImpatientClient(docker.APIClient):
    """Applies the timeout to pulls too, unlike Docker's client."""

    def post(self, url: str | bytes, *args: Any, **options: Any) -> Response:
        return super().post(url, *args, **options | {"timeout": self.timeout})


def _pull(docker_host: str) -> str:
    """Pull the base with a timeout; return the reason of a failure, or an empty string."""
    client = _ImpatientClient(base_url=docker_host, timeout=SILENT_SECONDS)
    deadline = time.monotonic() + PULL_SECONDS
    try:
        for event in client.pull(BASE, stream=True, decode=True):
            if "error" in event:
                return _one_line(event["error"])
            if time.monotonic() > deadline:
                return f"not finished after {PULL_SECONDS:.0f} s"
        return ""
    except APIError as error:
        return _one_line(str(error.explanation))
    except (RequestException, HTTPError):
        return f"no registry answered in {SILENT_SECONDS} s"
    finally:
        client.close()


def _bootstrap(archive: Path, reason: str) -> None:
    """Build the base from Debian packages; leave no partial archive."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ImageMissing(
            f"{BASE} cannot be pulled ({reason}), and building a base instead needs root on Debian or Ubuntu. "
            f"Give the engine access to a registry, or use a local base: `make image NAME=sandbox BASE=image`"
        )
    if shutil.which("mmdebstrap") is None:
        install_packages("mmdebstrap", "debian-archive-keyring")
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".unfinished.tar")
    command = ["mmdebstrap", "--variant=minbase", "--include=python3,git", SUITE, str(unfinished)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise ImageMissing(f"mmdebstrap failed to build a base image: {_one_line(result.stderr[-500:])}")
    unfinished.rename(archive)


def _build(client: docker.DockerClient, context: Path, base: str, image: str, inputs: str) -> None:
    try:
        client.images.build(
            path=str(context),
            tag=image,
            buildargs={"BASE": base, **_proxies()},
            labels={INPUTS_LABEL: inputs},
            # The sandbox image may install git. The local engine has only the host's network.
            network_mode="host" if image == IMAGE and base != BOOTSTRAPPED_BASE else "none",
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        lines = "".join(str(line.get("stream", "")) for line in error.build_log).strip()
        raise ImageMissing(f"building {image} failed: {error.msg}: {_one_line(lines[-500:])}") from error


def _proxies() -> dict[str, str]:
    """Return the proxy variables, which Docker passes to build steps and stores in no layer."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {name: os.environ[name] for name in (*names, *map(str.upper, names)) if name in os.environ}


def _one_line(text: str) -> str:
    return " ".join(text.split())
