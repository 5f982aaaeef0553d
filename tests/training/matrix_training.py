"""A matrix in this process: the stages of the evaluation DAG, with the stand-in as every target."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from local.standin.economy import DEMO, RULES
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.skill_matrix import MatrixRequest, PolicyName, SkillMatrix
from skillopt_airflow.core.values.types import Item, JsonObject, Split, Status, Trajectory
from skillopt_airflow.training.report.matrix import MatrixPlan, conclude_matrix, prepare_matrix
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.training.in_process import Training

BETTER = "\n".join(["# Better", "", *(f"- {rule}" for rule in RULES[: DEMO.rules]), ""])
"""Has all rules that the stand-in's items need."""
TARGET = "openai-chat:stand-in-target"
OTHER = "openai-chat:other-target"


def of_cell(config: TrainConfig, target: str, harness: str) -> TrainConfig:
    """A cell's configuration, with the model's name as it stands."""
    return TrainConfig.from_layers(config.model_dump(), {"model": {"target": target, "harness": harness}})


def asked(**changes: Any) -> MatrixRequest:
    """The seed and a better skill under two targets."""
    named = {"skills": ("seed", BETTER), "targets": (TARGET, OTHER), "harnesses": ("chat",), "splits": (Split.TEST,)}
    return MatrixRequest.model_validate(named | changes)


def one_cell(**changes: Any) -> MatrixRequest:
    """The same under the benchmark's own target."""
    return asked(**{"targets": (TARGET,), **changes})


@dataclass(eq=False)
class MatrixTraining(Training):
    """A run of the evaluation DAG; `breaks` returns the status of a target's item, if it isn't ok."""

    breaks: Callable[[str, str], Status | None] = lambda target, item_id: None
    asked_of: list[tuple[str, str]] = field(default_factory=list)
    """Target and harness of each rollout."""

    def plan(self, request: MatrixRequest) -> MatrixPlan:
        """The first task."""
        return prepare_matrix(self.run, self.config, request, partial(of_cell, self.config))

    def matrix(self, request: MatrixRequest, policy: PolicyName | None = None) -> SkillMatrix:
        """All tasks."""
        plan = self.plan(request)
        self.run_containers(plan.alternating)
        return conclude_matrix(plan.runs, plan.skills, request.splits, policy)

    def workload(self, ref: JsonObject) -> ChunkWorkload:
        """A mapped task's work."""
        run = TrainingRun(RunRef.model_validate(ref["run"]), self.models)
        return ChunkWorkload(run, ref, "in-process")

    def _container(self, ref: JsonObject) -> Iterator[None]:
        work = self.workload(ref)
        try:
            yield from self._ran(work)
        finally:
            work.release_budget()

    def _trajectory(self, work: ChunkWorkload, item: Item) -> Trajectory:
        model = work.run.config.model
        self.asked_of.append((str(model.target), model.harness))
        self.fail = lambda stage, item_id: self.breaks(str(model.target), item_id)
        made = super()._trajectory(work, item)
        tokens = {"prompt_tokens": 100, "completion_tokens": 10} if made.status.scored else {}
        return made.model_copy(update=tokens)
