"""The stage that a run is at, from what the moment under way has stored so far."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from skillopt_airflow.core.timeline import Moment, MomentKind, moment_label
from skillopt_airflow.core.types import sha256
from skillopt_airflow.store import keys as object_keys
from skillopt_airflow.store.keys import MomentKeys, RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.running_tables import RunningRollouts
from skillopt_airflow.training.progress import StageName, StageProgress
from skillopt_airflow.training.rollout_plan import Chunk, RolloutPlan
from skillopt_airflow.training.run_record import RunRecord

PLANS: Mapping[MomentKind, tuple[str, ...]] = {
    "seed": ("seed",),
    "step": ("rollout", "screen", "evaluate"),
    "slow_update": ("longitudinal", "evaluate"),
    "meta_reflect": ("evaluate",),
    "final": ("final", "test"),
}
"""The plans that a moment stores, in their order; the run's end also has that of the publication."""
STAGES: Mapping[str, StageName] = {
    "seed": "seed",
    "rollout": "rollout",
    "screen": "screen",
    "evaluate": "evaluation",
    "longitudinal": "longitudinal",
    "final": "final",
    "test": "test",
}
"""The stage that carries out a plan; others are those of publications."""
BEFORE_PLANS: Mapping[MomentKind, StageName] = {
    "seed": "preparation",
    "step": "rollout",
    "slow_update": "longitudinal",
    "meta_reflect": "meta_reflect",
    "final": "final",
}
"""The stage in which a moment has no plan yet."""
AFTER_PLANS: Mapping[str, StageName] = {"evaluate": "gate", "test": "report"}
"""The stage that follows when all rollouts of a plan have ended."""


class StageReader:
    """Reads the stage of one run again and again; of what was read before, only what is new.

    Args:
        store: where the run is.
        keys: its keys.
        record: what its preparation settled.
    """

    def __init__(self, store: ObjectStore, keys: RunKeys, record: RunRecord) -> None:
        self._store, self._keys, self._record = store, keys, record
        self._plan: _WatchedPlan | None = None

    def read(self, moment: Moment, begun: datetime | None) -> StageProgress:
        """Return the stage of a moment that is under way.

        Args:
            moment: the moment.
            begun: when the one before it was over; None where nothing can be left of an attempt before that.
        """
        keys, label = self._keys.moment(moment), ""
        if moment.kind not in ("seed", "final"):
            label = moment_label(moment.kind, moment.step, moment.epoch)
        stored = self._store.list_dated(keys.folder)
        if begun is not None:
            # A moment that is done again keeps the items that it reflected on, if it begins as it did.
            kept = keys.reflected_items
            stored = {key: written for key, written in stored.items() if written >= begun or key == kept}
        plans = [name for name in self._plans_of(moment) if keys.plan(name) in stored]
        if not plans:
            return StageProgress(name=BEFORE_PLANS[moment.kind], moment=label)
        thinking = _thinking(keys, plans[-1], stored)
        if thinking is not None:
            return StageProgress(name=thinking, moment=label)
        done, planned = self._rollouts(keys, plans[-1], stored)
        name = STAGES.get(plans[-1], "publication")
        if done >= planned and plans[-1] in AFTER_PLANS:
            return StageProgress(name=AFTER_PLANS[plans[-1]], moment=label)
        return StageProgress(name=name, moment=label, done=done, planned=planned)

    def _plans_of(self, moment: Moment) -> tuple[str, ...]:
        own = (f"publish-{self._keys.run}",) if moment.kind == "final" else ()
        return (*PLANS[moment.kind], *own)

    def _rollouts(self, keys: MomentKeys, name: str, stored: Mapping[str, datetime]) -> tuple[int, int]:
        """Return how many rollouts of a plan have ended, and how many it has."""
        key = keys.plan(name)
        if self._plan is None or (self._plan.key, self._plan.written) != (key, stored[key]):
            self._plan = self._watched(key, stored[key])
        plan = self._plan
        planned = sum(len(chunk.item_ids) for _, chunk in plan.chunks)
        ended = [(wanted, rollouts.ended()) for wanted, rollouts in plan.groups]
        if all(ids is not None for _, ids in ended):
            return sum(len(wanted & ids) for wanted, ids in ended if ids is not None), planned
        # Too much to look into: a container that has ended left its timing.
        over = [chunk for index, chunk in plan.chunks if keys.timing(chunk.stage, index) in stored]
        return sum(len(chunk.item_ids) for chunk in over), planned

    def _watched(self, key: str, written: datetime) -> "_WatchedPlan":
        plan = self._store.get_model(key, RolloutPlan)
        # The next step's batch, which may run beside an evaluation, is another step's.
        chunks = [(index, chunk) for index, chunk in enumerate(plan.chunks) if chunk.stage != "speculate"]
        items: defaultdict[str, set[str]] = defaultdict(set)
        skills = {name: sha256(self._store.get_text(name)) for name in {chunk.skill for _, chunk in chunks}}
        for _, chunk in chunks:
            items[self._partition(chunk, skills[chunk.skill])].update(chunk.item_ids)
        groups = [
            (frozenset(ids), RunningRollouts(self._store, partition, self._keys.run))
            for partition, ids in items.items()
        ]
        return _WatchedPlan(key, written, chunks, groups)

    def _partition(self, chunk: Chunk, skill_sha256: str) -> str:
        model = self._record.config.model
        return object_keys.trajectories(
            self._keys.prefix,
            benchmark=self._keys.benchmark,
            target=str(model.target),
            harness=model.harness,
            split=chunk.split,
            skill_sha256=skill_sha256,
            draw=chunk.draw,
        )


@dataclass(frozen=True)
class _WatchedPlan:
    """A plan, and where its rollouts are."""

    key: str
    written: datetime
    chunks: list[tuple[int, Chunk]]
    """With their numbers in the plan."""
    groups: list[tuple[frozenset[str], RunningRollouts]]
    """The items that are wanted of each partition."""


def _thinking(keys: MomentKeys, plan: str, stored: Collection[str]) -> StageName | None:
    """Return what the optimizer or the gate does after the rollouts of a plan; None if it does nothing yet."""
    if keys.gate in stored and plan == "evaluate":
        return "gate"
    if plan == "rollout" and keys.reflected_items in stored:
        return "selection" if keys.merged_patch in stored else "reflection"
    if plan == "longitudinal" and keys.comparison in stored:
        return "slow_update"
    return None
