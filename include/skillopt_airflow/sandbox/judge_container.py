"""The second container of a repository's item, in which tests judge what a target left, without model or network.

The worker lays out the tree, starts the tests and takes their output and exit status from the engine, so that no file
in the container says how they ended. What judges lies in a volume that the tests' user cannot write to.
"""

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.sandbox.docker.container import executed, expiry, identity, temporary_volume, waiting
from skillopt_airflow.sandbox.docker.item_images import FOLDER
from skillopt_airflow.sandbox.docker.limits import (
    KILLED,
    LAYOUT_SECONDS,
    MEGABYTE,
    WORK_FOLDER,
    host_options,
    judging_seconds,
)
from skillopt_airflow.sandbox.judge_tree import NOT_APPLIED
from skillopt_airflow.sandbox.staging import container_user
from skillopt_airflow.sandbox.untrusted_output import packed_files
from skillopt_airflow.tasks.repository_tests import Canaries, RepositoryTestRun, RepositoryTests, RunEnd

PLACE = "/judge"
TOLD = ("order.json", "candidate.diff", "tests.diff")
SCRIPTS = ("judge_tree.py", "judge_tests.py")
MAX_OUTPUT_BYTES = 8 * MEGABYTE
"""Most of what tests print that is read; the rest is dropped, and with it the canaries' results."""


class JudgeContainer:
    """Runs the tests of one change after another, each in a container of its own."""

    def __init__(self, client: Any, limits: SandboxGroup, labels: Mapping[str, str]) -> None:
        self._client = client
        self._limits = limits
        self._labels = labels

    def run(self, item: Item, image: str, wanted: RepositoryTests) -> RepositoryTestRun:
        """Return how the tests ended.

        Raises:
            SandboxError: the container could not do its part, whatever the change is like.
        """
        from docker.errors import DockerException
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        # Tests may be silent for long.
        self._client.timeout = max(self._client.timeout, self._limits.test_timeout + LAYOUT_SECONDS)
        canaries = Canaries.draw(wanted.runner, wanted.files, random.SystemRandom())
        try:
            with self._container(image) as container:
                self._client.put_archive(container, PLACE, _packed(wanted, canaries))
                return self._judged(container, item, wanted, canaries)
        except (DockerException, RequestException, HTTPError) as error:
            raise SandboxError(f"item {item.id}: the container that judges it failed: {error}") from error

    def _judged(self, container: str, item: Item, wanted: RepositoryTests, canaries: Canaries) -> RepositoryTestRun:
        laid_out = ["python3", "-I", f"{PLACE}/judge_tree.py"]
        status, said, in_time = self._execute(container, laid_out, {}, LAYOUT_SECONDS)
        if status == NOT_APPLIED:
            return RepositoryTestRun(end=RunEnd.NOT_APPLIED, output=said, canaries=canaries)
        if status != 0 or not in_time:
            raise SandboxError(
                f"item {item.id}: its tests do not fit its tree, or that does not fit into sandbox.output_mb = "
                f"{self._limits.output_mb} (exit status {status}): {said[-500:].strip()}"
            )
        # Nothing that tells the canaries or the tests' change is left where the code under test can read it.
        self._client.put_archive(container, PLACE, packed_files((name, b"") for name in TOLD))
        command = [f"{FOLDER}/venv/bin/python", "-s", f"{PLACE}/judge_tests.py", wanted.runner]
        roots = item.image.import_roots if item.image else ()
        command += [":".join(roots), *wanted.args]
        command += [canaries.labels[0], *wanted.files, canaries.labels[1]]
        status, said, in_time = self._execute(container, command, _environment(wanted), self._limits.test_timeout)
        end = RunEnd.RAN
        if not in_time:
            end = RunEnd.TIMEOUT
        elif status == KILLED:
            end = RunEnd.KILLED
        return RepositoryTestRun(end=end, output=said, exit_status=status, canaries=canaries)

    def _execute(
        self, container: str, command: list[str], env: Mapping[str, str], seconds: float
    ) -> tuple[int, str, bool]:
        """Return exit status, output, and whether it ended in time; else the container is killed.

        Raises:
            SandboxError: the container ended by itself.
        """
        from docker.errors import APIError

        late = threading.Event()

        def stop() -> None:
            late.set()
            with suppress(APIError):
                self._client.kill(container)

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            status, said = executed(
                self._client,
                container,
                command,
                user=container_user(),
                most=MAX_OUTPUT_BYTES,
                environment=dict(env),
                workdir=WORK_FOLDER,
            )
        finally:
            timer.cancel()
        if late.is_set():
            return KILLED, said, False
        if status is None or not self._client.inspect_container(container)["State"]["Running"]:
            raise SandboxError("the container that judges ended before the tests did")
        return status, said, True

    @contextmanager
    def _container(self, image: str) -> Iterator[str]:
        from docker.types import Mount

        seconds = judging_seconds(self._limits)
        labels = identity(self._labels) | expiry(seconds)
        volume = temporary_volume(self._client, labels, f"size={16 * MEGABYTE},mode=0755")
        limits = host_options(self._limits, has_repository=True)
        with volume as name:
            mounts = [Mount(PLACE, name, "volume", no_copy=True)]
            with waiting(
                self._client, image, 2 * seconds, user="0:0", labels=labels, mounts=mounts, **limits
            ) as container:
                yield container


def _environment(wanted: RepositoryTests) -> dict[str, str]:
    return {
        **wanted.env,
        # The sandbox program's own packages are none of the tests'.
        "PYTHONPATH": "",
        "PATH": f"{FOLDER}/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _packed(wanted: RepositoryTests, canaries: Canaries) -> bytes:
    order = {
        "touched": wanted.touched,
        "restored": wanted.restored,
        "has_test_patch": bool(wanted.test_patch),
        "added": canaries.contents,
    }
    files = {name: Path(__file__).with_name(name).read_bytes() for name in SCRIPTS}
    files |= {
        "order.json": json.dumps(order).encode(),
        "candidate.diff": wanted.patch.encode(errors="surrogateescape"),
        "tests.diff": wanted.test_patch.encode(),
    }
    return packed_files(files.items())
