"""A training in this process behind Airflow's connections: real gateway, real rollout program, a thread a sandbox."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from bench.training_loop import TrainingLoop
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.config.sampling import OutputForm
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.rollout import program
from skillopt_airflow.sandbox.container_loop import run_workload
from skillopt_airflow.sandbox.rollout_process import ProcessRuntime
from skillopt_airflow.sandbox.staging import ContainerFolder
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.connections import Begin, OnCall
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.in_process import InProcessConnections, Training

ROLES = ("target", "optimizer")


class ServedConnections(InProcessConnections):
    """The models are those of Airflow's connections, the stores in memory."""

    def optimizer(
        self, model: ModelGroup, on_call: OnCall, begin: Begin, output: OutputForm = "auto", attempts: int = 5
    ) -> Any:
        return AirflowConnections().optimizer(model, on_call, begin, output, attempts)

    def target(self, model: ModelGroup, on_call: OnCall, begin: Begin) -> Any:
        return AirflowConnections().target(model, on_call, begin)

    def upstream(self, model: ModelGroup) -> Upstream:
        return AirflowConnections().upstream(model)


@dataclass
class Sandbox:
    """The program in a thread."""

    folder: ContainerFolder
    socket: str

    def __post_init__(self) -> None:
        self._end: Callable[[], object] | None = None

    def run(self, on_start: Callable[[], None]) -> str:
        async def main() -> None:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self._end = lambda: loop.call_soon_threadsafe(task.cancel)
            on_start()
            await program.run(
                self.folder.inputs, self.folder.outputs, self.socket, self.folder.corpus or program.CORPUS
            )

        with suppress(asyncio.CancelledError):
            asyncio.run(main())
        return "the program ended before it finished the item"

    def kill(self) -> bool:
        if self._end is None:
            return False
        try:
            self._end()
        except RuntimeError:
            # It has ended by itself.
            return True
        return True


class ServedTraining(Training):
    """A run whose models are behind the connections `skillopt_target` and `skillopt_optimizer`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        run = TrainingRun(self.run.ref, ServedConnections(self.store))
        TrainingLoop.__init__(self, run, self.config, self.run_programs)

    def run_programs(self, refs: Sequence[JsonObject]) -> None:
        for ref in refs:
            self.run_program(ref)

    def run_program(self, ref: JsonObject) -> ChunkWorkload:
        work = ChunkWorkload(self.run, ref, "in-process")
        run_workload(work, lambda folder: nullcontext(ProcessRuntime(work, folder, Sandbox)), threading.Event())
        return work


def connect(monkeypatch: pytest.MonkeyPatch, role: str, host: str, key: str, model: str = "some-model") -> None:
    """Set the connection of a role, as a user does it in the environment."""
    connection = {"conn_type": "pydanticai", "host": host, "password": key}
    extra = {"extra": {"model": f"openai-chat:{model}"}}
    monkeypatch.setenv(f"AIRFLOW_CONN_SKILLOPT_{role.upper()}", json.dumps(connection | extra))


def training(benchmark: str = "searchqa", **overrides: Any) -> ServedTraining:
    """A run of one step, for the model that the foreign server has."""
    small = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "evaluation__val_limit": 8}
    models = {f"model__{role}": "openai-chat:some-model" for role in ROLES}
    given = small | {"evaluation__eval_test": False} | models | overrides
    return ServedTraining.of(benchmark, **given)  # type: ignore[return-value]
