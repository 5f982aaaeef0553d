"""Images of items that bring a repository: built once on the sandbox image, and kept under the hash of what they hold.

Packages are fetched by the worker's pip, as wheels alone, so that nothing of theirs runs there and the container in
which an image is put together needs no network.
"""

import hashlib
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.core.types import Item, ItemImage, canonical_json, sha256
from skillopt_airflow.sandbox.docker_exec import executed
from skillopt_airflow.sandbox.labels import expiry, identity, remove_container
from skillopt_airflow.sandbox.tar_archive import packed

REPOSITORY = "skillopt-item"
"""Name of the images; the tag is the hash."""
ITEM_IMAGE_LABEL = "skillopt.item-image"
FOLDER = "/opt/item"
"""Has tree, git, venv and item.json in an image."""
SETUP = Path(__file__).with_name("item_setup.py")
FETCH_SECONDS = 1200
BUILD_SECONDS = 600
DAY_SECONDS = 86400
MAX_SAID_BYTES = 64 * 1024
GLIBCS = (28, 27, 24, 17, 12, 5)
"""Minor versions of glibc 2 whose wheels run on the sandbox base."""

Contents = Callable[[Item], Mapping[str, bytes]]

log = logging.getLogger(__name__)
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class ItemImages:
    """The images of one workload's items on its engine."""

    def __init__(self, client: Any, base: str, limits: SandboxGroup, contents: Contents) -> None:
        """Take the engine's low-level client, the run's sandbox image, and what reads the files of an item's image."""
        self._client = client
        self._base = base
        self._limits = limits
        self._contents = contents
        self._building = threading.BoundedSemaphore(limits.image_builds)
        self._base_id = ""

    def of(self, item: Item) -> str:
        """Return the name of an item's image, which is built or pulled if it is missing.

        Raises:
            ImageMissing: the packages, the tree or git are not to be had; or the image's name leads to none.
        """
        from skillopt_airflow.sandbox.docker_connection import ensure_image

        if item.image is None:
            return self._base
        if item.image.name:
            ensure_image(self._client, item.image.name, "never" if self._limits.pull == "never" else "missing")
            return item.image.name
        tag = self._tag(item, item.image)
        with _locks[tag]:
            if not self._there(tag):
                with self._building:
                    began = time.monotonic()
                    log.info("building the image of item %s", item.id)
                    self._build(item, tag)
                    log.info("built the image of item %s in %.0f s", item.id, time.monotonic() - began)
            # A name's time tells the cleanup when it was used last.
            self._client.tag(tag, REPOSITORY, tag.partition(":")[2], force=True)
        return tag

    def _tag(self, item: Item, image: ItemImage) -> str:
        if not self._base_id:
            self._base_id = str(self._client.inspect_image(self._base)["Id"])
        held = [file.sha256 for file in image.files]
        if not all(held):
            # Of an item that no run has stored.
            contents = self._contents(item)
            held = [hashlib.sha256(contents[file.name]).hexdigest() for file in image.files]
        setup = hashlib.sha256(SETUP.read_bytes()).hexdigest()
        return f"{REPOSITORY}:{sha256(canonical_json([[*held], [*image.import_roots], self._base_id, setup]))[:32]}"

    def _there(self, tag: str) -> bool:
        from docker.errors import ImageNotFound

        try:
            self._client.inspect_image(tag)
        except ImageNotFound:
            return False
        return True

    def _build(self, item: Item, tag: str) -> None:
        image, contents = item.image, self._contents(item)
        if image is None or image.tree is None:
            raise ImageMissing(f"item {item.id} has no tree to build an image from")
        # A busy engine takes its time to write a layer.
        self._client.timeout = max(self._client.timeout, BUILD_SECONDS)
        with tempfile.TemporaryDirectory(prefix="skillopt-item-") as name, self._builder() as container:
            top = Path(name)
            folder = top / "item-build"
            folder.mkdir()
            if image.requirements is not None and contents[image.requirements.name].strip():
                fetched(contents[image.requirements.name], self._python(container), folder, item.id)
            (folder / "packages").mkdir(exist_ok=True)
            (folder / "repo.tar.gz").write_bytes(contents[image.tree.name])
            (folder / "item.json").write_text(canonical_json({"import_roots": list(image.import_roots)}))
            (folder / "setup.py").write_bytes(SETUP.read_bytes())
            self._client.put_archive(container, "/", packed(top))
            status, said = self._run(container, ["python3", "-I", "/item-build/setup.py"])
            if status != 0:
                raise ImageMissing(f"the image of item {item.id} could not be built: {said[-500:].strip()}")
            self._client.stop(container, timeout=0)
            repository, _, version = tag.partition(":")
            labels = identity({}) | {ITEM_IMAGE_LABEL: item.id}
            self._client.commit(container, repository, version, conf=self._config(labels))

    def _config(self, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the configuration of the sandbox image, with labels of its own."""
        config: dict[str, Any] = dict(self._client.inspect_image(self._base)["Config"])
        return config | {"Labels": {**(config.get("Labels") or {}), **labels}}

    @contextmanager
    def _builder(self) -> Iterator[str]:
        made = self._client.create_container(
            self._base,
            entrypoint=["sleep", str(BUILD_SECONDS + FETCH_SECONDS)],
            user="0:0",
            labels=identity({}) | expiry(BUILD_SECONDS + FETCH_SECONDS),
            host_config=self._client.create_host_config(network_mode="none", mem_limit="2g", pids_limit=256),
            use_config_proxy=False,
        )
        try:
            self._client.start(made["Id"])
            yield str(made["Id"])
        finally:
            remove_container(self._client, made["Id"])

    def _python(self, container: str) -> str:
        """Return version and machine of the image's Python, such as 3.11 x86_64."""
        says = "import platform, sys; print(*sys.version_info[:2], sep='.', end=' '); print(platform.machine())"
        status, said = self._run(container, ["python3", "-I", "-c", says])
        if status != 0:
            raise ImageMissing(f"the sandbox image {self._base} has no python3: {said[-300:]}")
        return said.strip()

    def _run(self, container: str, command: list[str]) -> tuple[int | None, str]:
        return executed(self._client, container, command, user="0:0", most=MAX_SAID_BYTES)


def fetched(requirements: bytes, python: str, folder: Path, item_id: str) -> None:
    """Put the packages of a requirements file into `folder`/packages, as wheels for another Python.

    Raises:
        ImageMissing: pip says no; the text has its last words.
    """
    version, _, machine = python.partition(" ")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBCS]
    platforms += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    (folder / "requirements.txt").write_bytes(requirements)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--no-compile", "--target", str(folder / "packages")]
    command += ["--python-version", version, "--implementation", "cp"]
    command += [f"--platform={one}" for one in platforms]
    command += ["--requirement", str(folder / "requirements.txt")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {error}") from error
    if done.returncode != 0:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {done.stderr.strip()[-500:]}")


def remove_unused(client: Any, days: float) -> list[str]:
    """Remove the images of this installation's items that no task has used for so many days; return their names."""
    from docker.errors import APIError

    wanted = {"label": [ITEM_IMAGE_LABEL, *(f"{name}={value}" for name, value in identity({}).items())]}
    removed = []
    for image in client.images(filters=wanted):
        for tag in image.get("RepoTags") or ():
            if time.time() - _last_use(client.inspect_image(tag)) > days * DAY_SECONDS:
                try:
                    client.remove_image(tag)
                except APIError as error:
                    log.info("%s stays: %s", tag, error.explanation)
                    continue
                removed.append(tag)
    return removed


def _last_use(details: Mapping[str, Any]) -> float:
    """Return the Unix time at which an image got its name last."""
    said = str(details.get("Metadata", {}).get("LastTagTime") or details["Created"])
    return datetime.fromisoformat(said[:19] + "+00:00").timestamp()
