"""Images of items that bring a repository: built once on the sandbox image, and kept under the hash of what they hold.

Packages are fetched by the worker's pip, by name and as wheels alone, so that nothing of theirs runs there and the
container in which an image is put together needs no network. Of an item that names an image, repository and packages
come from there, and a second image is made from that one itself: its tests run with the libraries that it was made
with.
"""

import hashlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.core.values.types import Item, ItemImage, JsonObject, canonical_json, sha256
from skillopt_airflow.sandbox.docker.container import EXPIRES_LABEL, NEVER, created, executed, expiry, identity, waiting
from skillopt_airflow.sandbox.docker.limits import BUILD_SECONDS, PACKAGES_SECONDS, build_options
from skillopt_airflow.sandbox.staging import held_folder, of_one_task
from skillopt_airflow.sandbox.untrusted_output import pack_into

REPOSITORY = "skillopt-item"
"""Name of the images; the tag is the hash."""
ITEM_IMAGE_LABEL = "skillopt.item-image"
UNTAGGED = "<none>:<none>"
"""What Docker before version 24 lists as the name of an image that has none."""
FOLDER = "/opt/item"
"""Has tree, git, venv and item.json in an image."""
SETUP = Path(__file__).with_name("item_setup.py")
DAY_SECONDS = 86400
MAX_SAID_BYTES = 64 * 1024
GLIBCS = (28, 27, 24, 17, 12, 5)
"""Minor versions of glibc 2 whose wheels run on the sandbox base."""
HASH = re.compile(r"sha(256|384|512):[0-9a-f]+")
PIPS_VARIABLE = re.compile(
    r"PATH|HOME|TMPDIR|XDG_(CONFIG|CACHE)_HOME|NETRC|PIP_\w+|\w+_proxy|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE",
    re.IGNORECASE,
)
"""What pip may know of the worker's environment, which holds credentials of others, too."""

Contents = Callable[[Item], Mapping[str, bytes]]

log = logging.getLogger(__name__)
_builds = threading.BoundedSemaphore(2)
"""The process's turns to build: each judged item opens images of its own."""


class ItemImages:
    def __init__(self, client: Any, base: str, limits: SandboxGroup, contents: Contents) -> None:
        """Take the engine's low-level client, the run's sandbox image, and what reads the files of an item's image."""
        self._client = client
        self._base = base
        self._limits = limits
        self._contents = contents

    def of(self, item: Item) -> str:
        """Return the name of the image that a target works in, which is built if it is missing.

        Raises:
            ImageMissing: the packages, the tree or git are not to be had; or the image's name leads to none.
        """
        return self._made(item, self._base)

    def judging(self, item: Item) -> str:
        """Return the name of the image in which the item's tests run; that of the target where the item names none.

        Raises:
            ImageMissing: as `of`.
        """
        named = item.image.name if item.image is not None else ""
        return self._made(item, pulled(self._client, named, self._limits) if named else self._base)

    def _made(self, item: Item, base: str) -> str:
        if item.image is None:
            return base
        tag = self._tag(item, item.image, base)
        name = tag.partition(":")[2]
        if not self._there(tag):
            # Tasks of a host begin with the same items, and threads of a task, too. Locks stay, so they are not as many
            # as images.
            with of_one_task(Path(tempfile.gettempdir()), f"{REPOSITORY}-{name[:4]}"), _builds:
                if not self._there(tag):
                    began = time.monotonic()
                    log.info("building the image of item %s", item.id)
                    self._build(item, item.image, base, tag)
                    log.info("built the image of item %s in %.0f s", item.id, time.monotonic() - began)
        # A name's time tells the cleanup when it was used last.
        self._client.tag(tag, REPOSITORY, name, force=True)
        return tag

    def _tag(self, item: Item, image: ItemImage, base: str) -> str:
        held = [file.sha256 for file in image.files]
        if image.name:
            held = [self._id(pulled(self._client, image.name, self._limits)), image.folder, image.environment]
        elif not all(held):
            # Of an item that no run has stored.
            contents = self._contents(item)
            held = [hashlib.sha256(contents[file.name]).hexdigest() for file in image.files]
        setup = hashlib.sha256(SETUP.read_bytes()).hexdigest()
        return f"{REPOSITORY}:{sha256(canonical_json([[*held], [*image.import_roots], self._id(base), setup]))[:32]}"

    def _id(self, name: str) -> str:
        return str(self._client.inspect_image(name)["Id"])

    def _there(self, tag: str) -> bool:
        from docker.errors import ImageNotFound

        try:
            self._client.inspect_image(tag)
        except ImageNotFound:
            return False
        return True

    def _build(self, item: Item, image: ItemImage, base: str, tag: str) -> None:
        # A busy engine takes its time to write a layer.
        self._client.timeout = max(self._client.timeout, BUILD_SECONDS)
        with held_folder() as held, self._container(base) as container:
            top = held / "top"
            folder = top / "item-build"
            folder.mkdir(parents=True)
            if not image.name:
                self._put_archive_and_packages(item, image, container, folder)
            elif base == self._base:
                self._copy_from_named(image, container)
            order: JsonObject = {
                "import_roots": [*image.import_roots],
                "folder": image.folder,
                "environment": image.environment,
            }
            (folder / "item.json").write_text(canonical_json(order))
            (folder / "setup.py").write_bytes(SETUP.read_bytes())
            # The packages may have gigabytes.
            with tempfile.TemporaryFile(dir=held) as archive:
                pack_into(archive, top)
                archive.seek(0)
                self._client.put_archive(container, "/", archive)
            status, said = self._run(container, ["python3", "-I", "/item-build/setup.py"])
            if status != 0:
                raise ImageMissing(f"the image of item {item.id} could not be built: {said[-500:].strip()}")
            self._client.stop(container, timeout=0)
            repository, _, version = tag.partition(":")
            # The engine adds the container's own labels; whoever runs the image by hand keeps that container.
            labels = identity({}) | {ITEM_IMAGE_LABEL: item.id, EXPIRES_LABEL: NEVER}
            self._client.commit(container, repository, version, conf=self._config(base, labels))

    def _put_archive_and_packages(self, item: Item, image: ItemImage, container: str, folder: Path) -> None:
        contents = self._contents(item)
        if image.requirements is not None and contents[image.requirements.name].strip():
            fetched(contents[image.requirements.name], self._python(container), folder, item.id)
        (folder / "packages").mkdir(exist_ok=True)
        if image.tree is not None:
            (folder / "repo.tar.gz").write_bytes(contents[image.tree.name])

    def _copy_from_named(self, image: ItemImage, container: str) -> None:
        """Copy repository and packages of a named image to where they lay in it.

        Raises:
            ImageMissing: it has no such folder.
        """
        from docker.errors import NotFound

        name = pulled(self._client, image.name, self._limits)
        with self._container(name, created) as source:
            for folder in (image.folder, image.environment):
                parent = folder.rpartition("/")[0] or "/"
                self._run(container, ["mkdir", "-p", parent])
                try:
                    archive, _ = self._client.get_archive(source, folder)
                except NotFound as error:
                    raise ImageMissing(f"the image {name} has no folder {folder}: {error.explanation}") from error
                self._client.put_archive(container, parent, archive)

    def _config(self, base: str, labels: Mapping[str, str]) -> dict[str, Any]:
        config: dict[str, Any] = dict(self._client.inspect_image(base)["Config"])
        return config | {"Labels": {**(config.get("Labels") or {}), **labels}}

    def _container(
        self, image: str, kept: Callable[..., AbstractContextManager[str]] = waiting
    ) -> AbstractContextManager[str]:
        seconds = BUILD_SECONDS + PACKAGES_SECONDS
        labels = identity({}) | expiry(seconds)
        return kept(self._client, image, seconds, user="0:0", labels=labels, **build_options(self._limits))

    def _python(self, container: str) -> str:
        """Return version and machine of the image's Python, such as 3.11 x86_64."""
        says = "import platform, sys; print(*sys.version_info[:2], sep='.', end=' '); print(platform.machine())"
        status, said = self._run(container, ["python3", "-I", "-c", says])
        if status != 0:
            raise ImageMissing(f"the sandbox image {self._base} has no python3: {said[-300:]}")
        return said.strip()

    def _run(self, container: str, command: list[str]) -> tuple[int | None, str]:
        return executed(self._client, container, command, user="0:0", most=MAX_SAID_BYTES)


def ensure_named(names: Sequence[str], sandbox: SandboxGroup) -> None:
    """Have the images that items name on the engine, pulled if they are missing.

    Raises:
        EngineUnavailable: no engine answers.
        ImageMissing: naming all that are missing.
    """
    from skillopt_airflow.sandbox.docker import connection as docker_connection

    missing = []
    with docker_connection.found(sandbox.conn_id).opened() as client:
        for name in names:
            try:
                pulled(client, name, sandbox)
            except ImageMissing:
                missing.append(full_name(name, sandbox))
    if missing:
        raise ImageMissing(
            f"the engine has {len(missing)} of the items' {len(names)} images neither by itself nor from a registry: "
            f"{', '.join(missing)}"
        )


def pulled(client: Any, name: str, limits: SandboxGroup) -> str:
    """Return the full name of an image that an item names, which is pulled if the engine has none.

    Raises:
        ImageMissing: the engine has it neither by itself nor from a registry.
    """
    from skillopt_airflow.sandbox.docker.connection import ensure_image

    full = full_name(name, limits)
    ensure_image(client, full)
    return full


def full_name(name: str, limits: SandboxGroup) -> str:
    """Return an item's image as the engine knows it, which may be that of a registry of one's own."""
    return f"{limits.item_registry}/{name}" if limits.item_registry else name


def fetched(requirements: bytes, python: str, folder: Path, item_id: str) -> None:
    """Put the packages of a requirements file into `folder`/packages, as wheels for another Python.

    Raises:
        ImageMissing: a line does not name a package, or pip says no; the text has the line, or pip's last words.
    """
    version, _, machine = python.partition(" ")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBCS]
    platforms += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    (folder / "requirements.txt").write_text("\n".join(_named(requirements, item_id)), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--no-compile", "--target", str(folder / "packages")]
    command += ["--python-version", version, "--implementation", "cp"]
    command += [f"--platform={one}" for one in platforms]
    command += ["--requirement", str(folder / "requirements.txt")]
    env = {name: value for name, value in os.environ.items() if PIPS_VARIABLE.fullmatch(name)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PACKAGES_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {error}") from error
    if done.returncode != 0:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {done.stderr.strip()[-500:]}")


def _named(requirements: bytes, item_id: str) -> Iterator[str]:
    """Yield the packages of a requirements file, each with the hashes that it may have.

    Any other line could have pip run code on the worker: it builds what an address leads to, whatever its options say.

    Raises:
        ImageMissing: there is such a line.
    """
    for line in re.sub(r"\\\r?\n", " ", requirements.decode("utf-8-sig", errors="replace")).splitlines():
        name, *hashes = re.split(r"\s+--hash=", re.sub(r"(^|\s+)#.*", "", line).strip())
        if not name:
            continue
        try:
            package = Requirement(name)
        except InvalidRequirement:
            package = None
        if package is None or package.url is not None or not all(HASH.fullmatch(one) for one in hashes):
            raise ImageMissing(
                f"the packages of item {item_id} are not fetched: {line.strip()[:200]!r} in its requirements.txt is "
                "not the name of a package, with or without a version, markers and hashes; an index of packages goes "
                "into the worker's environment, as PIP_EXTRA_INDEX_URL"
            )
        yield " ".join([str(package), *(f"--hash={one}" for one in hashes)])


def remove_unused(client: Any, days: float) -> list[str]:
    """Remove the images of this installation's items that no task has used for so many days; return their names.

    An image whose name went to another, as where two hosts build one on the same engine, goes by its id.
    """
    from docker.errors import APIError

    wanted = {"label": [ITEM_IMAGE_LABEL, *(f"{name}={value}" for name, value in identity({}).items())]}
    oldest = time.time() - days * DAY_SECONDS
    removed = []
    for image in client.images(filters=wanted):
        tags = [tag for tag in image.get("RepoTags") or () if tag != UNTAGGED]
        for name in tags or [image["Id"]]:
            try:
                if _last_use(client.inspect_image(name)) < oldest:
                    client.remove_image(name)
                    removed.append(name)
            except APIError as error:
                log.info("%s stays: %s", name, error.explanation)
    return removed


def _last_use(details: Mapping[str, Any]) -> float:
    said = max(str(details.get("Metadata", {}).get("LastTagTime") or ""), str(details["Created"]))
    return datetime.fromisoformat(said[:19] + "+00:00").timestamp()
