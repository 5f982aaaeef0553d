"""The rollouts of a run when it is over: how many of each kind, and what became of them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

from skillopt_airflow.core.rollout_tally import RolloutTally
from skillopt_airflow.core.run_history import MomentHistory, RolloutCounts, StageRollouts
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import RolloutResult
from skillopt_airflow.store.rollout_table import RolloutKey
from skillopt_airflow.training.publication import as_published
from skillopt_airflow.training.rollout_plan import Chunk, RolloutPlan
from skillopt_airflow.training.run import TrainingRun

AHEAD = ("preflight", "speculate")
"""Stages that roll out what a step plans once more, and finds."""


@dataclass(frozen=True)
class DoneRollouts:
    """A run's plans, and what it stored itself."""

    planned: Sequence[tuple[Moment, Chunk, RolloutKey]]
    """Each chunk that has items, with its moment and where its rollouts are, in order; without items of no use."""
    ran: Mapping[RolloutKey, Mapping[str, Sequence[RolloutResult]]]
    """Tries by place and item, in order."""

    @classmethod
    def of(cls, run: TrainingRun, pool: Executor) -> Self:
        """Read them from the store, as many objects at the same time as the pool has room for."""
        # A batch job has a folder beside its plan.
        listed = [key for key in run.store.list_keys(run.keys.folder) if PurePosixPath(key).match("plans/*.json")]
        keys = [key for key in listed if _is_of_its_model(run, PurePosixPath(key).stem)]
        plans = list(pool.map(lambda key: run.store.get_model(key, RolloutPlan), keys))
        made = [(plan.moment, chunk) for plan in plans for chunk in plan.chunks if chunk.item_ids]
        useless = {
            split: {item.id for item in run.item_refs(split) if item.unusable}
            for split in {chunk.split for _, chunk in made}
        }
        # In their order, since what one step has rolled out the next one finds.
        work = sorted(
            ((moment, _without(chunk, useless[chunk.split])) for moment, chunk in made),
            key=lambda one: (one[0].step, one[1].stage == "speculate", one[1].stage == "publish"),
        )
        names = list(dict.fromkeys(chunk.skill for _, chunk in work))
        skills = dict(zip(names, pool.map(run.document, names), strict=True))
        planned = [
            (moment, chunk, run.rollout_key(chunk.split, skills[chunk.skill], chunk.draw)) for moment, chunk in work
        ]
        places = list(dict.fromkeys(place for _, _, place in planned))
        ran: dict[RolloutKey, dict[str, list[RolloutResult]]] = {}
        carried_out = pool.map(lambda place: run.rollouts.carried_out(place, run.ref.run), places)
        for place, rollouts in zip(places, carried_out, strict=True):
            tries = ran[place] = {}
            for rollout in rollouts:
                tries.setdefault(rollout.item_id, []).append(rollout)
        return cls(planned, ran)

    def counts(self, moments: Sequence[MomentHistory]) -> RolloutCounts:
        """Count the planned rollouts by what became of them; `moments` are those that the run reached."""
        steps = {moment.step for moment in moments if moment.kind == "step"}
        accepted = {moment.name for moment in moments if moment.action.accepted}
        cancelled = sum(moment.cancelled for moment in moments)
        # No plan has the evaluation of a candidate that was screened out.
        planned = sum(moment.cancelled for moment in moments if moment.decision.screened_out is not None)
        own = speculated = wasted = 0
        met: set[tuple[RolloutKey, str]] = set()
        for moment, chunk, place in self.planned:
            # What was rolled out ahead serves no step if the skill changed, or if the run stopped before that step.
            gone = moment.name in accepted or moment.step + 1 not in steps
            new = {item for item in chunk.item_ids if (place, item) not in met}
            met |= {(place, item) for item in new}
            tries = sum(len(self.ran[place].get(item, ())) for item in new)
            if chunk.stage == "speculate":
                speculated += tries
                wasted += tries if gone else 0
            planned += len(chunk.item_ids) if chunk.stage not in AHEAD else 0
            own += sum(item in self.ran[place] for item in new if chunk.stage != "speculate" or not gone)
        return RolloutCounts(
            planned=planned,
            ran=sum(len(tries) for items in self.ran.values() for tries in items.values()),
            cancelled=cancelled,
            speculated=speculated,
            wasted=wasted,
            reused=max(0, planned - own - cancelled),
        )

    def outcomes(self) -> tuple[StageRollouts, ...]:
        """Return what became of the run's own rollouts, by the stage that made them."""
        ended: defaultdict[str, list[RolloutResult]] = defaultdict(list)
        met: set[tuple[RolloutKey, str]] = set()
        for _, chunk, place in self.planned:
            for item in chunk.item_ids:
                tries = self.ran[place].get(item)
                if tries and (place, item) not in met:
                    met.add((place, item))
                    ended[chunk.stage].append(next((one for one in tries if one.status.scored), tries[-1]))
        return tuple(
            StageRollouts(stage=stage, **dict(RolloutTally.of(found, len(found)))) for stage, found in ended.items()
        )


def _is_of_its_model(run: TrainingRun, plan: str) -> bool:
    """Return whether a plan is of the target model that the run trained for, or of a publication for another."""
    publication = plan.removeprefix("publish-")
    return publication == plan or as_published(run, publication).account == run.account


def _without(chunk: Chunk, useless: Collection[str]) -> Chunk:
    """Return the chunk without the items of no use, which no container runs."""
    return chunk.model_copy(update={"item_ids": tuple(item for item in chunk.item_ids if item not in useless)})
