"""Images of items with a repository, built once on the sandbox image and tagged with the hash of their contents.

The worker's pip fetches packages by name and only as wheels, so it runs none of their code, and the build needs no
network. If an item names an image, repository and packages are copied from it. A second image is then based on the
named one, so that the tests run with their original libraries.
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
from skillopt_airflow.sandbox.docker.connection import ensure_image, find_engine, is_present
from skillopt_airflow.sandbox.docker.container import (
    EXPIRES_LABEL,
    NEVER,
    created_container,
    execute,
    expiry,
    identity,
    idle_container,
)
from skillopt_airflow.sandbox.docker.limits import BUILD_SECONDS, PACKAGES_SECONDS, build_options
from skillopt_airflow.sandbox.staging import host_lock, temporary_folder
from skillopt_airflow.sandbox.untrusted_output import pack_into

REPOSITORY = "skillopt-item"
"""Name of the images; the tag is the hash."""
ITEM_IMAGE_LABEL = "skillopt.item-image"
UNTAGGED = "<none>:<none>"
"""Tag that Docker before version 24 lists for an image without one."""
FOLDER = "/opt/item"
"""Folder of tree, git, venv and item.json in an image."""
SETUP = Path(__file__).with_name("item_setup.py")
DAY_SECONDS = 86400
MAX_OUTPUT_BYTES = 64 * 1024
GLIBCS = (28, 27, 24, 17, 12, 5)
"""Minor versions of glibc 2 whose wheels run on the sandbox image."""
HASH = re.compile(r"sha(256|384|512):[0-9a-f]+")
PIP_VARIABLE = re.compile(
    r"PATH|HOME|TMPDIR|XDG_(CONFIG|CACHE)_HOME|NETRC|PIP_\w+|\w+_proxy|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE",
    re.IGNORECASE,
)
"""Environment variables that pip gets; the others may be credentials."""

Contents = Callable[[Item], Mapping[str, bytes]]

log = logging.getLogger(__name__)
_builds = threading.BoundedSemaphore(2)
"""Limit of the process's concurrent builds."""


class ItemImages:
    def __init__(self, client: Any, base: str, limits: SandboxGroup, contents: Contents) -> None:
        self._client = client
        self._base = base
        self._limits = limits
        self._contents = contents

    def target_image(self, item: Item) -> str:
        """Return the image that the target works in, after building it if necessary. Raises ImageMissing."""
        return self._build_once(item, self._base)

    def judge_image(self, item: Item) -> str:
        """Return the image for the item's tests. If the item names none, it's the target's. Raises ImageMissing."""
        named = item.image.name if item.image is not None else ""
        return self._build_once(item, pull_item_image(self._client, named, self._limits) if named else self._base)

    def _build_once(self, item: Item, base: str) -> str:
        if item.image is None:
            return base
        tag = self._tag(item, item.image, base)
        name = tag.partition(":")[2]
        if not is_present(self._client, tag):
            # Tasks and threads of a host start with the same items. Lock files are never removed, so images share them.
            with host_lock(Path(tempfile.gettempdir()), f"{REPOSITORY}-{name[:4]}"), _builds:
                if not is_present(self._client, tag):
                    began = time.monotonic()
                    log.info("building the image of item %s", item.id)
                    self._build(item, item.image, base, tag)
                    log.info("built the image of item %s in %.0f s", item.id, time.monotonic() - began)
        # The tag's time is the image's last use, for the cleanup.
        self._client.tag(tag, REPOSITORY, name, force=True)
        return tag

    def _tag(self, item: Item, image: ItemImage, base: str) -> str:
        inputs = [file.sha256 for file in image.files]
        if image.name:
            named = pull_item_image(self._client, image.name, self._limits)
            inputs = [self._id(named), image.folder, image.environment]
        elif not all(inputs):
            # Only a run that stores its items fills in the hashes.
            contents = self._contents(item)
            inputs = [hashlib.sha256(contents[file.name]).hexdigest() for file in image.files]
        setup = hashlib.sha256(SETUP.read_bytes()).hexdigest()
        return f"{REPOSITORY}:{sha256(canonical_json([[*inputs], [*image.import_roots], self._id(base), setup]))[:32]}"

    def _id(self, name: str) -> str:
        return str(self._client.inspect_image(name)["Id"])

    def _build(self, item: Item, image: ItemImage, base: str, tag: str) -> None:
        # A busy engine may write a layer slowly.
        self._client.timeout = max(self._client.timeout, BUILD_SECONDS)
        with temporary_folder() as scratch, self._container(base) as container:
            top = scratch / "top"
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
            # On disk, because packages can have gigabytes.
            with tempfile.TemporaryFile(dir=scratch) as archive:
                pack_into(archive, top)
                archive.seek(0)
                self._client.put_archive(container, "/", archive)
            status, output = self._run(container, ["python3", "-I", "/item-build/setup.py"])
            if status != 0:
                raise ImageMissing(f"the image of item {item.id} could not be built: {output[-500:].strip()}")
            self._client.stop(container, timeout=0)
            repository, _, version = tag.partition(":")
            # The engine copies the container's labels; without an expiry, manually started containers aren't removed.
            labels = identity({}) | {ITEM_IMAGE_LABEL: item.id, EXPIRES_LABEL: NEVER}
            self._client.commit(container, repository, version, conf=self._config(base, labels))

    def _put_archive_and_packages(self, item: Item, image: ItemImage, container: str, folder: Path) -> None:
        contents = self._contents(item)
        if image.requirements is not None and contents[image.requirements.name].strip():
            fetch_packages(contents[image.requirements.name], self._python(container), folder, item.id)
        (folder / "packages").mkdir(exist_ok=True)
        if image.tree is not None:
            (folder / "repo.tar.gz").write_bytes(contents[image.tree.name])

    def _copy_from_named(self, image: ItemImage, container: str) -> None:
        """Copy repository and packages of a named image to the same paths."""
        from docker.errors import NotFound

        name = pull_item_image(self._client, image.name, self._limits)
        with self._container(name, created_container) as source:
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
        self, image: str, create: Callable[..., AbstractContextManager[str]] = idle_container
    ) -> AbstractContextManager[str]:
        seconds = BUILD_SECONDS + PACKAGES_SECONDS
        labels = identity({}) | expiry(seconds)
        return create(self._client, image, seconds, user="0:0", labels=labels, **build_options(self._limits))

    def _python(self, container: str) -> str:
        """Return version and machine of the image's Python, such as 3.11 x86_64."""
        code = "import platform, sys; print(*sys.version_info[:2], sep='.', end=' '); print(platform.machine())"
        status, output = self._run(container, ["python3", "-I", "-c", code])
        if status != 0:
            raise ImageMissing(f"the sandbox image {self._base} has no python3: {output[-300:]}")
        return output.strip()

    def _run(self, container: str, command: list[str]) -> tuple[int | None, str]:
        return execute(self._client, container, command, user="0:0", limit=MAX_OUTPUT_BYTES)


def ensure_named(names: Sequence[str], sandbox: SandboxGroup) -> None:
    """Pull missing images that items name. Raises EngineUnavailable, or ImageMissing with all names."""
    missing = []
    with find_engine(sandbox.conn_id).open_client() as client:
        for name in names:
            try:
                pull_item_image(client, name, sandbox)
            except ImageMissing:
                missing.append(full_name(name, sandbox))
    if missing:
        raise ImageMissing(
            f"{len(missing)} of the items' {len(names)} images are neither on the engine nor in a registry: "
            f"{', '.join(missing)}"
        )


def pull_item_image(client: Any, name: str, limits: SandboxGroup) -> str:
    """Return the full name of an image that an item names, after pulling it if it's missing."""
    full = full_name(name, limits)
    ensure_image(client, full)
    return full


def full_name(name: str, limits: SandboxGroup) -> str:
    return f"{limits.item_registry}/{name}" if limits.item_registry else name


def fetch_packages(requirements: bytes, python: str, folder: Path, item_id: str) -> None:
    """Download the wheels of a requirements file for the image's Python to `folder`/packages. Raises ImageMissing."""
    version, _, machine = python.partition(" ")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBCS]
    platforms += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    (folder / "requirements.txt").write_text("\n".join(_packages(requirements, item_id)), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--no-compile", "--target", str(folder / "packages")]
    command += ["--python-version", version, "--implementation", "cp"]
    command += [f"--platform={one}" for one in platforms]
    command += ["--requirement", str(folder / "requirements.txt")]
    env = {name: value for name, value in os.environ.items() if PIP_VARIABLE.fullmatch(name)}
    try:
        result = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PACKAGES_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {error}") from error
    if result.returncode != 0:
        raise ImageMissing(f"the packages of item {item_id} could not be fetched: {result.stderr.strip()[-500:]}")


def _packages(requirements: bytes, item_id: str) -> Iterator[str]:
    """Yield the packages of a requirements file, with their hashes.

    Any other line could make pip run code on the worker: pip builds a package from a URL despite its options.
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
                f"item {item_id}: the line {line.strip()[:200]!r} of requirements.txt is not a package name with an "
                "optional version, markers and hashes. If it sets a package index, use PIP_EXTRA_INDEX_URL in the "
                "worker's environment."
            )
        yield " ".join([str(package), *(f"--hash={one}" for one in hashes)])


def remove_unused(client: Any, days: float) -> list[str]:
    """Remove this installation's item images that no task has used for `days`; return their names.

    An image that lost its name, because two hosts built it on the same engine, is removed by its ID.
    """
    from docker.errors import APIError

    filters = {"label": [ITEM_IMAGE_LABEL, *(f"{name}={value}" for name, value in identity({}).items())]}
    oldest = time.time() - days * DAY_SECONDS
    removed = []
    for image in client.images(filters=filters):
        tags = [tag for tag in image.get("RepoTags") or () if tag != UNTAGGED]
        for name in tags or [image["Id"]]:
            try:
                if _last_use(client.inspect_image(name)) < oldest:
                    client.remove_image(name)
                    removed.append(name)
            except APIError as error:
                log.info("%s was not removed: %s", name, error.explanation)
    return removed


def _last_use(details: Mapping[str, Any]) -> float:
    last = max(str(details.get("Metadata", {}).get("LastTagTime") or ""), str(details["Created"]))
    return datetime.fromisoformat(last[:19] + "+00:00").timestamp()
