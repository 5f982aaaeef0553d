"""A matrix in this process: the stages of the transfer DAG, with the stand-in as every target."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.transfer_matrix import TransferMatrix
from skillopt_airflow.core.types import Item, JsonObject, Split, Status, Trajectory
from skillopt_airflow.training.transfer_conclusion import conclude_transfer
from skillopt_airflow.training.transfer_plan import TransferRequest, prepare_transfer
from skillopt_airflow.training.workload import ChunkWorkload
from tests.training.in_process import Training

BETTER = "# Better\n\nPrefer a phrase that stands close to the words of the clue.\n"
TARGET = "openai-chat:stand-in-target"
OTHER = "openai-chat:other-target"


def of_cell(config: TrainConfig, target: str, harness: str) -> TrainConfig:
    """A cell's configuration, with the model's name as it stands."""
    return TrainConfig.from_layers(config.model_dump(), {"model": {"target": target, "harness": harness}})


def asked(**changes: Any) -> TransferRequest:
    """The seed and a better skill under two targets."""
    named = {"skills": ("seed", BETTER), "targets": (TARGET, OTHER), "harnesses": ("chat",), "split": Split.TEST}
    return TransferRequest.model_validate(named | changes)


@dataclass(eq=False)
class TransferTraining(Training):
    """A run of the transfer DAG; `breaks` says which status items of a target have, if they are not ok."""

    breaks: Callable[[str, str], Status | None] = lambda target, item_id: None
    asked_of: list[tuple[str, str]] = field(default_factory=list)
    """Target and harness of each rollout."""

    def plan(self, request: TransferRequest, most: int = 1024) -> list[JsonObject]:
        """The first task."""
        return prepare_transfer(self.run, self.config, request, partial(of_cell, self.config), most)

    def matrix(self, request: TransferRequest) -> TransferMatrix:
        """All tasks."""
        self.run_containers(self.plan(request))
        return conclude_transfer(self.run, request)

    def _trajectory(self, work: ChunkWorkload, item: Item) -> Trajectory:
        model = work.run.config.model
        self.asked_of.append((str(model.target), model.harness))
        self.fail = lambda stage, item_id: self.breaks(str(model.target), item_id)
        made = super()._trajectory(work, item)
        tokens = {"prompt_tokens": 100, "completion_tokens": 10} if made.status.scored else {}
        return made.model_copy(update=tokens)
