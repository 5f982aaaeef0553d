"""Rolling out a skill on chunks of items, in sandboxes; every row is scored and stored as it arrives."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowException

from include.core.config import SandboxGroup
from include.core.skill import SkillDocument
from include.core.types import Item, JsonObject, ModelCall, Rollout, Split, Status, Trajectory, Value
from include.pipeline import timing
from include.pipeline.run import TrainingRun
from include.sandbox.operator import RolloutOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.models.upstream import Upstream
    from include.rollout.settings import RolloutSettings
    from include.sandbox.workload import SandboxSeconds, Workload

Stage = Literal["seed", "rollout", "evaluate", "test"]

SPLITS: dict[Stage, Split] = {
    "seed": Split.VAL,
    "rollout": Split.TRAIN,
    "evaluate": Split.VAL,
    "test": Split.TEST,
}


class Chunk(Value):
    """Items `start` up to, not including, `stop` of a stage's items: the work of one container."""

    index: int
    start: int
    stop: int
    version: int = 0
    """Version of the skill, where the stage does not say it by itself (test)."""


def chunks(count: int, size: int, version: int = 0, first_index: int = 0) -> list[JsonObject]:
    """`count` items cut evenly into the fewest chunks of at most `size`, as mapped tasks take them."""
    parts = math.ceil(count / size)
    edges = [round(part * count / parts) for part in range(parts + 1)] if parts else []
    return [
        Chunk(index=first_index + i, start=start, stop=stop, version=version).model_dump()
        for i, (start, stop) in enumerate(pairwise(edges))
    ]


class ChunkWorkload:
    """One chunk's work: which items are still to do under which skill, and where the rows go."""

    def __init__(self, run: TrainingRun, stage: Stage, position: int, chunk: Chunk, dag_run_id: str) -> None:
        self.run = run
        self.stage = stage
        self.position = position
        self.chunk = chunk
        self.started = time.time()
        self.labels: Mapping[str, str] = {
            "dag_run": dag_run_id,
            "run": run.ref.run,
            "stage": stage,
            "step": str(self.step),
            "chunk": str(chunk.index),
        }

    @property
    def step(self) -> int:
        """The step's number; 0 outside of the steps."""
        return self.run.step_number(self.position) if self.position else 0

    @cached_property
    def document(self) -> SkillDocument:
        """The skill that is rolled out."""
        if self.stage == "rollout":
            return self.run.skill(self.run.state_before(self.position).current.version)
        if self.stage == "evaluate":
            return self.run.candidate(self.position)
        return self.run.skill(self.chunk.version)

    @property
    def skill(self) -> str:
        """The skill's text."""
        return self.document.text

    @cached_property
    def assigned(self) -> list[Item]:
        """All items of the chunk."""
        in_batch = self.stage == "rollout"
        items = self.run.batch(self.position) if in_batch else self.run.items(SPLITS[self.stage])
        return items[self.chunk.start : self.chunk.stop]

    @cached_property
    def items(self) -> Sequence[Item]:
        """The items that have no stored score yet."""
        done = self.run.rollouts.read(self._key, self.assigned)
        return [item for item in self.assigned if item.id not in done]

    @cached_property
    def upstream(self) -> "Upstream":
        """The target's address and credentials."""
        from include.models.connection import target_upstream

        return target_upstream(self.run.config.model.target_conn_id, self.run.config.model.target)

    @property
    def settings(self) -> "RolloutSettings":
        """What the container is told."""
        return self.run.settings(self.upstream)

    @property
    def limits(self) -> SandboxGroup:
        """What the container may use."""
        return self.run.config.sandbox

    def record(self, trajectories: Sequence[Trajectory], calls: Sequence[ModelCall]) -> None:
        """Score and store what has arrived."""
        by_id = {item.id: item for item in self.assigned}
        rows = [(by_id[trajectory.item_id], self._scored(by_id, trajectory)) for trajectory in trajectories]
        self.run.rollouts.append(self._key, self.run.ref.run, rows)
        self.run.usage.append(self.run.ref.benchmark, self.run.ref.run, calls, self.step)

    def coverage(self) -> float:
        """Share of the chunk's items that have a score by now."""
        return len(self.run.rollouts.read(self._key, self.assigned)) / len(self.assigned)

    @cached_property
    def _key(self) -> Any:
        return self.run.rollout_key(SPLITS[self.stage], self.document)

    def _scored(self, items: Mapping[str, Item], trajectory: Trajectory) -> Rollout:
        if trajectory.status is not Status.OK:
            return Rollout(trajectory=trajectory, score=None)
        score = self.run.benchmark.score(items[trajectory.item_id], trajectory)
        return Rollout(trajectory=trajectory, score=score)


class RolloutChunk(RolloutOperator):
    """Runs one chunk of a stage in one sandbox; errors are typed rows, and tried again by Airflow's retries.

    :param run: reference of the run, as `prepare` or `plan` returned it. (templated)
    :param chunk: a `Chunk` as JSON. (templated)
    :param stage: which skill and which items: seed, rollout, evaluate or test.
    :param position: the epoch's step, 1-based; 0 outside of the steps.
    """

    template_fields = (*RolloutOperator.template_fields, "run", "chunk")

    def __init__(self, *, run: Any, chunk: Any, stage: Stage, position: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run
        self.chunk = chunk
        self.stage = stage
        self.position = position

    def workload(self, context: "Context") -> ChunkWorkload:
        """The chunk's work."""
        ti = context["ti"]
        self._may_retry = ti.try_number <= ti.max_tries
        run, chunk = TrainingRun.open(self.run), Chunk.model_validate(self.chunk)
        self._work = ChunkWorkload(run, self.stage, self.position, chunk, str(context["run_id"]))
        return self._work

    def result(self, workload: "Workload", seconds: "SandboxSeconds") -> JsonObject:
        """Store the timing; below the wanted coverage ask for a retry, while there is one.

        Raises:
            AirflowException: too many items failed and Airflow may try again; what was scored is kept.
        """
        if self.position:
            self._save_timing(seconds)
        coverage, wanted = self._work.coverage(), self._work.run.config.evaluation.min_coverage
        if coverage < wanted and self._may_retry:
            raise AirflowException(f"only {coverage:.0%} of the items have a score ({wanted:.0%} are wanted)")
        return {"items": len(self._work.assigned), "coverage": coverage}

    def _save_timing(self, seconds: "SandboxSeconds") -> None:
        row = timing.StageTiming(
            stage=self.stage,
            started=self._work.started,
            ended=time.time(),
            model=seconds.model,
            container=seconds.container,
        )
        run = self._work.run
        timing.save(run.store, run.step_keys(self.position), row, self._work.chunk.index)
