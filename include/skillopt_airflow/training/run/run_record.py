"""References between a run's tasks, and the record that its preparation stores."""

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import StatedScores, TrainConfig
from skillopt_airflow.core.gate.run_gates import SmallestGain
from skillopt_airflow.core.run.budget import ModelPrice, Role
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, Value


class RunRef(Value):
    """Data that travels between tasks: the run's location, and an epoch's position in its DAG."""

    benchmark: str
    run: str
    storage: StorageGroup
    epoch: int = 0
    offset: int = 0
    """Steps of the epoch before this DAG run's part."""
    part: int = 0
    """Maximum steps of the DAG run; 0 for all in its graph."""
    ends: bool = True
    """True if the epoch's end follows in this DAG run after the last step."""
    overrides: JsonObject = Field(default_factory=dict)
    """Knobs by path that change when a finished run is published: target model, budget, sandbox."""
    prices: dict[Role, ModelPrice | None] | None = None
    """Prices for publishing a finished run; None for the run's own, always None in an epoch."""

    @field_validator("prices")
    @classmethod
    def _of_the_run(cls, prices: dict[Role, ModelPrice | None] | None, info: ValidationInfo) -> Any:
        return None if info.data.get("epoch") else prices


class RunRecord(Document):
    """The result of `prepare`, stored as config.json: the resolved configuration and its inputs."""

    benchmark: str
    run: str
    created: str
    """UTC, ISO 8601."""
    config: TrainConfig
    """Complete, with the connections' models where the configuration names none."""
    image: str
    """Digest of the sandbox image."""
    program: str
    """Program version in the rollouts' keys."""
    steps_in_epoch: int
    prices: dict[Role, ModelPrice | None]
    """Prices when the run began."""
    guidance: dict[str, str] = Field(default_factory=dict)
    """The benchmark's guidance for the optimizer, by stage."""
    smallest_gains: tuple[SmallestGain, ...] = ()
    """Minimum detectable gains of the training's gates."""
    init_version: str = ""
    """Published version that a training begins with; empty for any other skill."""
    stated: StatedScores | None = None
    """Scores that the preset's authors report, for a training with a preset."""
    corpus: str = ""
    """Hash of the corpus; empty if the run has none."""

    @property
    def total_steps(self) -> int:
        """T of the schedules."""
        return self.steps_in_epoch * self.config.train.num_epochs
