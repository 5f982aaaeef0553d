"""A training of one step whose rollouts are made up, stored as its stages store them: what pages of a run show."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import Measured, RunState
from skillopt_airflow.core.types import Item, Rollout, Split
from skillopt_airflow.store.items import save_items
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.rollout_plan import Chunk, chunks_of, ids, store_plan
from skillopt_airflow.training.run import RunRecord, RunRef, TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.training.connections import Connections

AT_ONCE = 400
"""Rollouts of a chunk, which become one part."""
SEED = "# Seed\n\n- Answer with a name.\n"
CANDIDATE = f"{SEED}- Prefer titles.\n"
BATCH = 8
"""Items of the training split in the step's batch."""

Play = Callable[[Item, str], Rollout]
"""A rollout of an item under the text of a skill."""


class StoredRun(NamedTuple):
    """The run and its two skills."""

    run: TrainingRun
    seed: SkillDocument
    candidate: SkillDocument


class _OneStore:
    """Opens the one store, and nothing else."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def object_store(self, storage: Any, bucket: str) -> ObjectStore:
        """Return it."""
        return self._store


def store_run(store: ObjectStore, ref: RunRef, config: TrainConfig, items: Mapping[Split, Sequence[Item]]) -> StoredRun:
    """Store the documents of a run whose first step is over, without its rollouts; see `store_rollouts`."""
    run = TrainingRun(ref, cast("Connections", _OneStore(store)))
    record = RunRecord(
        benchmark=ref.benchmark,
        run=ref.run,
        created="2026-11-21T04:00:00+00:00",
        config=config,
        image="sha256:none",
        program="protocol-3/adapter-0123456789ab",
        steps_in_epoch=1,
        prices={},
    )
    store.put_model(run.keys.config, record)
    for split, rows in items.items():
        save_items(store, run.keys.items(split), rows)
    seed, step = run.timeline[:2]
    store.put_text(run.keys.skill(0), SEED)
    store.put_text(run.keys.moment(step).candidate_skill, CANDIDATE)
    store_plan(run, seed, "seed", _chunks(run, "seed", run.keys.skill(0)))
    batch = chunks_of(config, "rollout", [run.keys.skill(0)], Split.TRAIN, ids(items[Split.TRAIN])[:BATCH])
    store_plan(run, step, "rollout", batch)
    store_plan(run, step, "evaluate", _chunks(run, "evaluate", run.keys.moment(step).candidate_skill))
    measured = Measured(version=0, sha256=run.skill(0).sha256, evaluation=Evaluation(scores={}))
    for moment in (seed, step):
        state = RunState(moment=moment.name, step=moment.step, current=measured, best=measured)
        run.commit(moment, state, newest=True)
    return StoredRun(run, run.skill(0), run.document(run.keys.moment(step).candidate_skill))


def store_rollouts(run: TrainingRun, split: Split, skill: SkillDocument, items: Sequence[Item], play: Play) -> None:
    """Store the rollouts of items as containers do, a part a chunk."""
    key = run.rollout_key(split, skill, 0)
    for start in range(0, len(items), AT_ONCE):
        rollouts = [(item, play(item, skill.text)) for item in items[start : start + AT_ONCE]]
        run.rollouts.append(key, run.ref.run, rollouts)


def _chunks(run: TrainingRun, stage: Any, skill: str) -> list[Chunk]:
    return chunks_of(run.config, stage, [skill], Split.VAL, ids(run.item_refs(Split.VAL)))
