"""The rollout program as a plain process on the worker, for benchmarks whose rollouts execute nothing."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from skillopt_airflow.core.values.types import Item, ModelCall
from skillopt_airflow.sandbox.container_loop import Sandbox
from skillopt_airflow.sandbox.docker.container import lines
from skillopt_airflow.sandbox.kubernetes.remote_folder import task_gateway
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, container_folder, stage_corpus
from skillopt_airflow.sandbox.task_workload import Workload

LAST_LINES = 5


@dataclass
class RolloutProcess:
    """A `Sandbox` without isolation: the program has its user's rights, but gets no credentials."""

    folder: ContainerFolder
    gateway: str
    _process: subprocess.Popen[bytes] | None = None

    def run(self, on_start: Callable[[], None]) -> str:
        command = (sys.executable, "-P", "-m", "skillopt_airflow.rollout", self.folder.inputs, self.folder.outputs)
        log_file = self.folder.path / "log"
        with log_file.open("wb") as output:
            corpus = () if self.folder.corpus is None else ("--corpus", self.folder.corpus)
            self._process = subprocess.Popen(
                [*command, "--gateway", self.gateway, *corpus],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            on_start()
            code = self._process.wait()
        ending = " ".join(list(lines([log_file.read_bytes()]))[-LAST_LINES:])
        return f"the rollout program ended with exit status {code}: {ending}" if code else "it wrote no trajectory"

    def kill(self) -> bool:
        if self._process is None:
            return False
        self._process.kill()
        return True


@dataclass
class ProcessRuntime:
    """The `Runtime` of sandboxes that need no engine, one at a time."""

    workload: Workload
    folder: Path
    make: Callable[[ContainerFolder, str], Sandbox] = RolloutProcess
    """Makes a sandbox from its folder and the gateway's socket."""
    _made: list[Sandbox] = field(default_factory=list)

    def at_once(self) -> int:
        return 1

    @contextmanager
    def serving(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        with task_gateway(self.workload, on_call) as self._gateway:
            yield

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Sandbox]:
        concurrency = self.workload.settings.concurrency
        with (
            container_folder(self.folder / str(number), self.workload, items, files) as staged,
            self._gateway.listening(staged.socket, concurrency),
        ):
            if self.workload.corpus is not None:
                staged.corpus = stage_corpus(self.workload.corpus, self.folder.parent)
            made = self.make(staged, str(staged.socket))
            self._made.append(made)
            yield made

    def remove_all(self) -> None:
        for made in self._made:
            made.kill()


def _environment() -> dict[str, str]:
    """Return the environment without variables that may be secrets or redirect calls, such as proxies."""
    own = {name: value for name, value in os.environ.items() if name.startswith("SKILLOPT_")}
    paths = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return own | paths | {"LANG": "C.UTF-8"}
