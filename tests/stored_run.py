"""A training of one step whose rollouts are made up, stored as its stages store them: what pages of a run show."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.run.state import Measured, RunState
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Item, Rollout, Split
from skillopt_airflow.store.data.item_tables import save_items
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRecord

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


def store_run(run: TrainingRun, config: TrainConfig, items: Mapping[Split, Sequence[Item]]) -> StoredRun:
    """Store the documents of a run whose first step is over, without its rollouts; see `store_rollouts`."""
    record = RunRecord(
        benchmark=run.ref.benchmark,
        run=run.ref.run,
        created="2026-11-21T04:00:00+00:00",
        config=config,
        image="sha256:none",
        program="protocol-3/adapter-0123456789ab",
        steps_in_epoch=1,
        prices={},
    )
    run.store.put_model(run.keys.config, record)
    for split, rows in items.items():
        save_items(run.store, run.keys.items(split), rows)
    beginning, step = run.timeline[:2]
    seed, candidate = run.keys.skill(0), run.keys.moment(step).candidate_skill
    run.store.put_text(seed, SEED)
    run.store.put_text(candidate, CANDIDATE)
    val, batch = ids(run.item_refs(Split.VAL)), ids(items[Split.TRAIN])[:BATCH]
    store_plan(run, beginning, "seed", chunks_of(config, "seed", [seed], Split.VAL, val))
    store_plan(run, step, "rollout", chunks_of(config, "rollout", [seed], Split.TRAIN, batch))
    store_plan(run, step, "evaluate", chunks_of(config, "evaluate", [candidate], Split.VAL, val))
    measured = Measured(version=0, sha256=run.skill(0).sha256, evaluation=Evaluation(scores={}))
    for moment in (beginning, step):
        state = RunState(moment=moment.name, step=moment.step, current=measured, best=measured)
        run.commit(moment, state)
    return StoredRun(run, run.document(seed), run.document(candidate))


def store_rollouts(run: TrainingRun, split: Split, skill: SkillDocument, items: Sequence[Item], play: Play) -> None:
    """Store the rollouts of items as containers do, a part a chunk."""
    key = run.rollout_key(split, skill, 0)
    for start in range(0, len(items), AT_ONCE):
        rollouts = [(item, play(item, skill.text)) for item in items[start : start + AT_ONCE]]
        run.rollouts.append(key, run.ref.run, rollouts)
