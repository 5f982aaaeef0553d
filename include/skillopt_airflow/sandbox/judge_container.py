"""The container that runs a repository's tests on a target's change, without a model or a network.

The worker reads output and exit status from the engine, never from a file in the container. The judge's programs are in
a volume that the tests' user can't write to.
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
from skillopt_airflow.sandbox.docker.container import execute, expiry, identity, idle_container, temporary_volume
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
from skillopt_airflow.sandbox.untrusted_output import pack_files
from skillopt_airflow.tasks.repository_tests import Canaries, RepositoryTestRun, RepositoryTests, RunEnd

JUDGE_FOLDER = "/judge"
SECRET_FILES = ("order.json", "candidate.diff", "tests.diff")
"""Files that reveal the canaries or the tests, emptied before the tests run."""
SCRIPTS = ("judge_tree.py", "judge_tests.py")
MAX_OUTPUT_BYTES = 8 * MEGABYTE
"""Limit of the tests' output; the rest is dropped, and with it the canaries' results."""


class JudgeContainer:
    """Runs the tests of one change after another, each in a separate container."""

    def __init__(self, client: Any, limits: SandboxGroup, labels: Mapping[str, str]) -> None:
        self._client = client
        self._limits = limits
        self._labels = labels

    def run(self, item: Item, image: str, tests: RepositoryTests) -> RepositoryTestRun:
        """Run an item's tests on a change. Raises SandboxError if the container failed, regardless of the change."""
        from docker.errors import DockerException
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        # Tests may print nothing for a long time.
        self._client.timeout = max(self._client.timeout, self._limits.test_timeout + LAYOUT_SECONDS)
        canaries = Canaries.draw(tests.runner, tests.files, random.SystemRandom())
        try:
            with self._container(image) as container:
                self._client.put_archive(container, JUDGE_FOLDER, _pack(tests, canaries))
                return self._run_tests(container, item, tests, canaries)
        except (DockerException, RequestException, HTTPError) as error:
            raise SandboxError(f"item {item.id}: the container that judges it failed: {error}") from error

    def _run_tests(self, container: str, item: Item, tests: RepositoryTests, canaries: Canaries) -> RepositoryTestRun:
        layout = ["python3", "-I", f"{JUDGE_FOLDER}/judge_tree.py"]
        status, output, in_time = self._execute(container, layout, {}, LAYOUT_SECONDS)
        if status == NOT_APPLIED:
            return RepositoryTestRun(end=RunEnd.NOT_APPLIED, output=output, canaries=canaries)
        if status != 0 or not in_time:
            raise SandboxError(
                f"item {item.id}: its tests do not apply to its tree, or the tree exceeds sandbox.output_mb = "
                f"{self._limits.output_mb} (exit status {status}): {output[-500:].strip()}"
            )
        self._client.put_archive(container, JUDGE_FOLDER, pack_files((name, b"") for name in SECRET_FILES))
        command = [f"{FOLDER}/venv/bin/python", "-s", f"{JUDGE_FOLDER}/judge_tests.py", tests.runner]
        roots = item.image.import_roots if item.image else ()
        command += [":".join(roots), *tests.args]
        command += [canaries.labels[0], *tests.files, canaries.labels[1]]
        status, output, in_time = self._execute(container, command, _environment(tests), self._limits.test_timeout)
        end = RunEnd.RAN
        if not in_time:
            end = RunEnd.TIMEOUT
        elif status == KILLED:
            end = RunEnd.KILLED
        return RepositoryTestRun(end=end, output=output, exit_status=status, canaries=canaries)

    def _execute(
        self, container: str, command: list[str], env: Mapping[str, str], seconds: float
    ) -> tuple[int, str, bool]:
        """Return exit status, output, and whether it ended in time; if not, kill the container."""
        from docker.errors import APIError

        late = threading.Event()

        def stop() -> None:
            late.set()
            with suppress(APIError):
                self._client.kill(container)

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            status, output = execute(
                self._client,
                container,
                command,
                user=container_user(),
                limit=MAX_OUTPUT_BYTES,
                environment=dict(env),
                workdir=WORK_FOLDER,
            )
        finally:
            timer.cancel()
        if late.is_set():
            return KILLED, output, False
        if status is None or not self._client.inspect_container(container)["State"]["Running"]:
            raise SandboxError("the judge's container ended before the tests did")
        return status, output, True

    @contextmanager
    def _container(self, image: str) -> Iterator[str]:
        from docker.types import Mount

        seconds = judging_seconds(self._limits)
        labels = identity(self._labels) | expiry(seconds)
        volume = temporary_volume(self._client, labels, f"size={16 * MEGABYTE},mode=0755")
        limits = host_options(self._limits, has_repository=True)
        with volume as name:
            mounts = [Mount(JUDGE_FOLDER, name, "volume", no_copy=True)]
            with idle_container(
                self._client, image, 2 * seconds, user="0:0", labels=labels, mounts=mounts, **limits
            ) as container:
                yield container


def _environment(tests: RepositoryTests) -> dict[str, str]:
    return {
        **tests.env,
        # Hides the rollout program's packages.
        "PYTHONPATH": "",
        "PATH": f"{FOLDER}/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _pack(tests: RepositoryTests, canaries: Canaries) -> bytes:
    order = {
        "touched": tests.touched,
        "restored": tests.restored,
        "has_test_patch": bool(tests.test_patch),
        "added": canaries.contents,
    }
    files = {name: Path(__file__).with_name(name).read_bytes() for name in SCRIPTS}
    files |= {
        "order.json": json.dumps(order).encode(),
        "candidate.diff": tests.patch.encode(errors="surrogateescape"),
        "tests.diff": tests.test_patch.encode(),
    }
    return pack_files(files.items())
