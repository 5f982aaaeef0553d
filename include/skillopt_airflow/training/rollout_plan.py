"""The rollouts that a stage needs: planned once, stored, and carried out a chunk at a time, one container each."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeVar

from skillopt_airflow.core.config import SandboxGroup, TrainConfig
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Item, JsonObject, Split, Value
from skillopt_airflow.training.run import TrainingRun

T = TypeVar("T")

Stage = Literal[
    "preflight",
    "seed",
    "rollout",
    "speculate",
    "evaluate",
    "confirm",
    "longitudinal",
    "final",
    "test",
    "score",
    "publish",
    "regate",
]


class Chunk(Value):
    """The work of one container."""

    stage: Stage
    """The purpose of its model calls."""
    skill: str
    """Key of the skill's text."""
    split: Split
    draw: int
    item_ids: tuple[str, ...]
    """Items in the order in which they are begun."""
    contested: bool = False
    """True if it may end as soon as the candidate cannot win any more."""


class RolloutPlan(Document):
    """The chunks of a stage, for which mapped tasks are made."""

    moment: Moment
    chunks: tuple[Chunk, ...]


class ChunkRef(Value):
    """The reference that travels to a mapped task instead of its chunk."""

    plan: str
    """Key of the plan."""
    index: int


def chunks_of(
    config: TrainConfig,
    stage: Stage,
    skill: str,
    split: Split,
    item_ids: Sequence[str],
    draws: Iterable[int] = (0,),
) -> list[Chunk]:
    """Cut items evenly into the fewest chunks that a container may take, for every draw."""
    parts = cut(item_ids, config.sandbox.items_per_container)
    return [
        Chunk(stage=stage, skill=skill, split=split, draw=draw, item_ids=tuple(part))
        for draw in draws
        for part in parts
    ]


def store_plan(
    run: TrainingRun, moment: Moment, name: str, chunks: Sequence[Chunk], least: int = 0
) -> list[JsonObject]:
    """Store the plan; return its chunks' references, as mapped tasks take them.

    A plan never gets shorter, nor than `least`: chunks without items fill it up. Airflow takes a mapped task that
    there were fewer of once out of the DAG run for good, also when there are more again.
    """
    key = run.keys.moment(moment).plan(name)
    try:
        before = run.store.get_model(key, RolloutPlan).chunks
    except ObjectMissing:
        before = ()
    missing = max(least, len(before)) - len(chunks)
    filling = [chunk.model_copy(update={"item_ids": (), "contested": False}) for chunk in (*chunks, *before)[:1]]
    filled = (*chunks, *(filling * missing))
    run.store.put_model(key, RolloutPlan(moment=moment, chunks=filled))
    return [ChunkRef(plan=key, index=index).model_dump() for index in range(len(filled))]


def planned(run: TrainingRun, ref: JsonObject) -> tuple[RolloutPlan, Chunk]:
    """Return the chunk behind a reference, and the plan that it belongs to."""
    parsed = ChunkRef.model_validate(ref)
    plan = run.store.get_model(parsed.plan, RolloutPlan)
    return plan, plan.chunks[parsed.index]


def cut(values: Sequence[T], size: int) -> list[list[T]]:
    """Cut evenly into the fewest parts of at most `size`, in order."""
    parts = math.ceil(len(values) / size)
    edges = [round(part * len(values) / parts) for part in range(parts + 1)] if parts else []
    return [list(values[start:stop]) for start, stop in pairwise(edges)]


def cut_contested(order: Sequence[T], sandbox: SandboxGroup, draws: int) -> list[list[T]]:
    """Cut an evaluation that may end early into blocks, as much as all containers take at a time with all draws.

    Each block is dealt out like cards into the fewest parts, so that containers side by side advance in order together.
    """
    size, found = sandbox.items_per_container, []
    width = max(1, size * sandbox.max_containers // draws)
    for start in range(0, len(order), width):
        block = order[start : start + width]
        parts = math.ceil(len(block) / size)
        found += [list(block[part::parts]) for part in range(parts)]
    return found


def ids(items: Sequence[Item]) -> list[str]:
    """Return the items' ids, in their order."""
    return [item.id for item in items]
