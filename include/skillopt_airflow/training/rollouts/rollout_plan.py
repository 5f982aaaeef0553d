"""Plans of rollouts, stored as chunks that each run in one container."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeVar

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Item, ItemRef, JsonObject, Split, Value
from skillopt_airflow.training.run.run import TrainingRun

T = TypeVar("T")

PlanKind = Literal[
    "preflight",
    "seed",
    "rollout",
    "speculate",
    "evaluate",
    "compare_epochs",
    "final",
    "test",
    "score",
    "publish",
    "regate",
]


BATCH_AHEAD = "ahead"
"""Name of the plan with the next step's batch."""
MAX_CHUNKS = 1024
"""Airflow's default for [core] max_map_length, the maximum of mapped tasks."""
CALLS_PER_CONTAINER = 64
"""Concurrent model calls that one container and its gateway can handle."""


class Chunk(Value):
    """The work of one container."""

    stage: PlanKind
    """The purpose of its model calls."""
    skill: str
    """Key of the skill's text."""
    split: Split
    sample: int
    item_ids: tuple[str, ...]
    """Items in start order."""
    contested: bool = False
    """True if it may end once the candidate can no longer win."""

    @property
    def measures(self) -> tuple[str, Split]:
        return self.skill, self.split


class RolloutPlan(Document):
    """The chunks of a stage, one per mapped task."""

    moment: Moment
    chunks: tuple[Chunk, ...]


class ChunkRef(Value):
    """A mapped task's reference to its chunk."""

    plan: str
    """Key of the plan."""
    index: int
    run: JsonObject | None = None
    """The chunk's run, if the task maps over several runs."""


def chunks_of(
    config: TrainConfig,
    stage: PlanKind,
    skills: Sequence[str],
    split: Split,
    item_ids: Sequence[str],
    samples: Sequence[int] = (0,),
) -> list[Chunk]:
    """Return the chunks of items for each skill (by key) and sample; see `parts_of`."""
    times = len(skills) * len(samples)
    parts = cut(item_ids, parts_of(len(item_ids), config, times)) if times else []
    return [
        Chunk(stage=stage, skill=skill, split=split, sample=sample, item_ids=tuple(part))
        for skill in skills
        for sample in samples
        for part in parts
    ]


def parts_of(items: int, config: TrainConfig, times: int) -> int:
    """Return the number of parts for items that run `times` times, under several skills or samples.

    Each container costs its start and a task. So the number is the minimum that carries the run's concurrent model
    calls, with at most `items_per_container` items per part. If there are more chunks than containers, all together are
    the fewest that leave no container idle in the last round. A part has at least one item. It exceeds
    `items_per_container` only to stay within MAX_CHUNKS.
    """
    lanes, most = config.sandbox.max_containers, config.sandbox.items_per_container
    carriers = math.ceil(min(items * times, config.model.concurrency) / CALLS_PER_CONTAINER)
    parts = max(math.ceil(items / most), carriers // times)
    if parts * times > lanes:
        step = lanes // times if times < lanes else lanes // math.gcd(lanes, times)
        parts = step * math.ceil(items / (step * most))
    return min(items, parts, max(1, MAX_CHUNKS // times))


def largest_plan(items: int, config: TrainConfig, skills: int, samples: int) -> int:
    """Return the maximum number of chunks for this many skills, of which equal ones run once."""
    return max(count * samples * parts_of(items, config, count * samples) for count in range(1, skills + 1))


def store_versions(run: TrainingRun, texts: Iterable[str]) -> list[str]:
    """Store skills as the run's versions from 0; return the keys of distinct ones."""
    keys: dict[str, str] = {}
    for version, text in enumerate(texts):
        key = run.keys.skill(version)
        run.store.put_text(key, text)
        keys.setdefault(text, key)
    return [*keys.values()]


def store_plan(
    run: TrainingRun, moment: Moment, name: str, chunks: Sequence[Chunk], least: int = 0, *, if_missing: bool = False
) -> list[JsonObject]:
    """Store the plan; return the references to its chunks for mapped tasks.

    A plan never gets shorter, and has at least `least` chunks: chunks without items fill it up. Otherwise Airflow would
    remove surplus mapped tasks from the DAG run for good. With `if_missing`, a first plan returns nothing if all usable
    items have scores.
    """
    key, before = run.keys.moment(moment).plan(name), stored_chunks(run, moment, name)
    missing = max(least, len(before)) - len(chunks)
    filling = [chunk.model_copy(update={"item_ids": (), "contested": False}) for chunk in (*chunks, *before)[:1]]
    filled = (*chunks, *(filling * missing))
    run.store.put_model(key, RolloutPlan(moment=moment, chunks=filled))
    if if_missing and not before and all(_is_done(run, chunk) for chunk in chunks):
        return []
    return [ChunkRef(plan=key, index=index).model_dump(exclude_none=True) for index in range(len(filled))]


def stored_chunks(run: TrainingRun, moment: Moment, name: str) -> tuple[Chunk, ...]:
    plan = run.store.find_model(run.keys.moment(moment).plan(name), RolloutPlan)
    return () if plan is None else plan.chunks


def _is_done(run: TrainingRun, chunk: Chunk) -> bool:
    wanted = set(chunk.item_ids)
    items = [ref for ref in run.item_refs(chunk.split) if ref.id in wanted and not ref.unusable]
    results = run.results(chunk.split, run.document(chunk.skill), chunk.sample, items)
    return sum(one.status.scored for one in results.values()) == len(items)


def find_chunk(run: TrainingRun, ref: JsonObject) -> tuple[RolloutPlan, Chunk]:
    """Return the plan and the chunk of a reference."""
    parsed = ChunkRef.model_validate(ref)
    plan = run.store.get_model(parsed.plan, RolloutPlan)
    return plan, plan.chunks[parsed.index]


def cut(values: Sequence[T], parts: int) -> list[list[T]]:
    """Split evenly into this number of parts, in order."""
    edges = [round(part * len(values) / parts) for part in range(parts + 1)] if parts else []
    return [list(values[start:stop]) for start, stop in pairwise(edges)]


def ids(items: Sequence[Item | ItemRef]) -> list[str]:
    return [item.id for item in items]
