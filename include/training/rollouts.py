"""Which rollouts a stage needs: planned once, stored, and carried out a chunk at a time, one container each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

from include.core.config import TrainConfig
from include.core.errors import ConfigError, ObjectMissing
from include.core.timeline import Moment
from include.core.types import Item, JsonObject, Split, Value
from include.training.run import TrainingRun

T = TypeVar("T")

Stage = Literal[
    "seed", "rollout", "speculate", "evaluate", "confirm", "longitudinal", "final", "test", "score", "publish", "regate"
]


class Chunk(Value):
    """The work of one container."""

    stage: Stage
    """What its model calls are for."""
    skill: str
    """Key of the skill's text."""
    split: Split
    draw: int
    item_ids: tuple[str, ...]
    """In the order in which they are begun."""
    contested: bool = False
    """Whether it may end as soon as the candidate cannot win any more."""


class RolloutPlan(Value):
    """The chunks of a stage, for which mapped tasks are made."""

    moment: Moment
    chunks: tuple[Chunk, ...]


class ChunkRef(Value):
    """What travels to a mapped task instead of its chunk."""

    plan: str
    """Key of the plan."""
    index: int


def chunks_of(
    run: TrainingRun, stage: Stage, skill: str, split: Split, item_ids: Sequence[str], draw: int = 0
) -> list[Chunk]:
    """Items cut evenly into the fewest chunks that a container may take."""
    return [
        Chunk(stage=stage, skill=skill, split=split, draw=draw, item_ids=tuple(part))
        for part in cut(item_ids, run.config.sandbox.items_per_container)
    ]


def store_plan(
    run: TrainingRun, moment: Moment, name: str, chunks: Sequence[Chunk], least: int = 0
) -> list[JsonObject]:
    """Store the plan; returns its chunks' references, as mapped tasks take them.

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


class Demand(NamedTuple):
    """The chunks of the largest plan of a kind."""

    kind: str
    chunks: int
    knobs: tuple[str, ...]
    """That it grows with, by path."""


def training_demands(config: TrainConfig, sizes: Mapping[Split, int]) -> list[Demand]:
    """What a training makes mapped tasks of, at most; `sizes` are those of the splits before the limits.

    A confirmation is no larger than publishing is.
    """
    train, rules = config.train, config.evaluation
    val, test = (
        size if limit is None else min(size, limit)
        for size, limit in ((sizes[Split.VAL], rules.val_limit), (sizes[Split.TEST], rules.test_limit))
    )
    batch = _parts(config, min(sizes[Split.TRAIN], train.batch_size * train.accumulation))
    samples = min(sizes[Split.TRAIN], config.optimizer.slow_update_samples)
    demands = [
        Demand("a step's batch", batch, ("train.batch_size", "train.accumulation")),
        Demand("the comparison of two epochs", 2 * _parts(config, samples), ("optimizer.slow_update_samples",)),
        publishing_demand(config, val),
    ]
    # Those go as one batch job each, whatever the number of their chunks.
    if not config.model.batch:
        evaluated = _contested(config, val) + (batch if train.speculative_rollout else 0)
        tested = 2 * rules.draws * _parts(config, test) if rules.eval_test else 0
        demands += [
            Demand("the evaluation of a candidate", evaluated, ("evaluation.draws", "evaluation.val_limit")),
            Demand("the test of two skills", tested, ("evaluation.draws", "evaluation.test_limit")),
        ]
    return demands


def publishing_demand(config: TrainConfig, val: int) -> Demand:
    """Candidate and champion on the selection split."""
    return Demand("publishing", 2 * config.publishing.draws * _parts(config, val), ("publishing.draws",))


def scoring_demand(config: TrainConfig, skills: int, items: int) -> Demand:
    """Skills on items, every draw of an evaluation."""
    knobs = ("evaluation.draws",)
    return Demand(f"the rollouts of {skills} skills", skills * config.evaluation.draws * _parts(config, items), knobs)


def check_mappable(config: TrainConfig, demands: Iterable[Demand], most: int) -> None:
    """Refuse plans of which Airflow would not make mapped tasks.

    Raises:
        ConfigError: naming the largest number and the knobs to change.
    """
    largest = max(demands, key=lambda demand: demand.chunks)
    if largest.chunks > most:
        values, size = config.model_dump(), config.sandbox.items_per_container
        knobs = [(path, values[group][key]) for path in largest.knobs for group, key in [path.split(".")]]
        raise ConfigError(
            f"{largest.kind}: {largest.chunks} chunks, and Airflow makes at most {most} tasks of a list ([core] "
            f"max_map_length); raise sandbox.items_per_container = {size}, or lower "
            + " or ".join(f"{path} = {'all' if value is None else value}" for path, value in knobs)
        )


def _contested(config: TrainConfig, items: int) -> int:
    """The chunks of an evaluation, which are more where it goes block by block, so that it may end early."""
    rules, sandbox = config.evaluation, config.sandbox
    block = items
    if rules.early_reject and rules.use_gate:
        block = max(1, sandbox.items_per_container * sandbox.max_containers // rules.draws)
    blocks, rest = divmod(items, max(1, block))
    return rules.draws * (blocks * _parts(config, block) + _parts(config, rest))


def _parts(config: TrainConfig, items: int) -> int:
    return math.ceil(items / config.sandbox.items_per_container)


def planned(run: TrainingRun, ref: JsonObject) -> tuple[RolloutPlan, Chunk]:
    """The chunk behind a reference, and the plan that it belongs to."""
    parsed = ChunkRef.model_validate(ref)
    plan = run.store.get_model(parsed.plan, RolloutPlan)
    return plan, plan.chunks[parsed.index]


def cut(values: Sequence[T], size: int) -> list[list[T]]:
    """Cut evenly into the fewest parts of at most `size`, in order."""
    parts = math.ceil(len(values) / size)
    edges = [round(part * len(values) / parts) for part in range(parts + 1)] if parts else []
    return [list(values[start:stop]) for start, stop in pairwise(edges)]


def striped(values: Sequence[T], size: int) -> list[list[T]]:
    """Dealt out like cards into the fewest parts of at most `size`, so that all parts advance in order together."""
    parts = math.ceil(len(values) / size)
    return [list(values[part::parts]) for part in range(parts)]


def ids(items: Sequence[Item]) -> list[str]:
    """The items' ids, in their order."""
    return [item.id for item in items]
