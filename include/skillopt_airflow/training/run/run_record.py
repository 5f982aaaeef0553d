"""The reference that the tasks of a run hand on, and the record of what its preparation settled."""

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import StatedScores, TrainConfig
from skillopt_airflow.core.gate.run_gates import SmallestGain
from skillopt_airflow.core.run.budget import ModelPrice, Role
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, Value


class RunRef(Value):
    """All that travels between tasks: where the run lives, and the epoch inside an epoch's DAG."""

    benchmark: str
    run: str
    storage: StorageGroup
    epoch: int = 0
    offset: int = 0
    """Steps of the epoch that lie before the part of it that a DAG run goes through."""
    part: int = 0
    """Steps that the DAG run goes through at most; 0 for as many as its graph has."""
    ends: bool = True
    """Whether the epoch's end follows in this DAG run, once all steps of the epoch are behind it."""
    overrides: JsonObject = Field(default_factory=dict)
    """Knobs by path that a finished run is published under: another target model, budget, sandbox."""
    prices: dict[Role, ModelPrice | None] | None = None
    """Prices of these models for a finished run; None for those of the run, which an epoch always has."""

    @field_validator("prices")
    @classmethod
    def _of_the_run(cls, prices: dict[Role, ModelPrice | None] | None, info: ValidationInfo) -> Any:
        return None if info.data.get("epoch") else prices


class RunRecord(Document):
    """The result of `prepare`, as config.json: the resolved configuration and what it rests on."""

    benchmark: str
    run: str
    created: str
    """UTC, ISO 8601."""
    config: TrainConfig
    """Complete: the model names are those of the connections where the configuration left them open."""
    image: str
    """Digest of the sandbox image."""
    program: str
    """Program that its rollouts are stored under."""
    steps_in_epoch: int
    prices: dict[Role, ModelPrice | None]
    """Prices at the time when the run began."""
    guidance: dict[str, str] = Field(default_factory=dict)
    """What the benchmark tells the optimizer about itself, by stage."""
    smallest_gains: tuple[SmallestGain, ...] = ()
    """What the gates of a training can be expected to find."""
    init_version: str = ""
    """Published version that a training begins with; empty if it begins with another skill."""
    stated: StatedScores | None = None
    """What the authors of the preset state, if the training has one."""
    corpus: str = ""
    """Hash of the corpus that its sandboxes can read; empty if the run has none."""

    @property
    def total_steps(self) -> int:
        """T of the schedules."""
        return self.steps_in_epoch * self.config.train.num_epochs
