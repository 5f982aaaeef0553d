"""A run's history: the rows of its gates, scores, and counts of rollouts."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

from skillopt_airflow.core.gate.item_scores import count_groups
from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.run.budget import by_stage
from skillopt_airflow.core.run.history import History, MomentHistory, Publication, RolloutCounts, StageRollouts
from skillopt_airflow.core.run.state import Measured, RunState
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.failure_reasons import RolloutTally
from skillopt_airflow.core.values.types import RolloutResult, Split
from skillopt_airflow.store.tables.rollout_table import RolloutKey
from skillopt_airflow.training.champion.publication import as_published
from skillopt_airflow.training.rollouts.evaluation import by_type, measured
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, RolloutPlan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.step.seed_and_final import tested_versions

AHEAD = ("preflight", "speculate")
"""Stages whose rollouts a later step plans again and reuses."""


@dataclass(frozen=True)
class RunRollouts:
    """A run's planned and stored rollouts."""

    planned: Sequence[tuple[Moment, Chunk, RolloutKey]]
    """Chunks with items, with their moment and rollout key, in order; without unusable items."""
    ran: Mapping[RolloutKey, Mapping[str, Sequence[RolloutResult]]]
    """Attempts by rollout key and item, in order."""

    @classmethod
    def of(cls, run: TrainingRun, pool: Executor) -> Self:
        """Read the plans and rollouts; the pool limits concurrent reads."""
        # A batch job has a folder next to its plan.
        listed = [key for key in run.store.list_keys(run.keys.folder) if PurePosixPath(key).match("plans/*.json")]
        keys = [key for key in listed if _is_of_its_model(run, PurePosixPath(key).stem)]
        plans = list(pool.map(lambda key: run.store.get_model(key, RolloutPlan), keys))
        made = [(plan.moment, chunk) for plan in plans for chunk in plan.chunks if chunk.item_ids]
        useless = {
            split: {item.id for item in run.item_refs(split) if item.unusable}
            for split in {chunk.split for _, chunk in made}
        }
        # In order, because later steps reuse earlier rollouts.
        work = sorted(
            ((moment, _without(chunk, useless[chunk.split])) for moment, chunk in made),
            key=lambda one: (one[0].step, one[1].stage == "speculate", one[1].stage == "publish"),
        )
        names = list(dict.fromkeys(chunk.skill for _, chunk in work))
        skills = dict(zip(names, pool.map(run.document, names), strict=True))
        planned = [
            (moment, chunk, run.rollout_key(chunk.split, skills[chunk.skill], chunk.sample)) for moment, chunk in work
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
        """Count the planned rollouts by outcome; `moments` are the reached ones."""
        steps = {moment.step for moment in moments if moment.kind == "step"}
        accepted = {moment.name for moment in moments if moment.action.accepted}
        cancelled = sum(moment.cancelled for moment in moments)
        planned = own = speculated = wasted = 0
        met: set[tuple[RolloutKey, str]] = set()
        for moment, chunk, place in self.planned:
            # Rollouts ahead are wasted if the skill changed, or if the run stopped before that step.
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
        """Return the outcomes of the run's own rollouts, by stage."""
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
    """Return whether a plan is for the run's target model, not for a publication under another."""
    publication = plan.removeprefix("publish-")
    return publication == plan or as_published(run, publication).account == run.account


def _without(chunk: Chunk, useless: Collection[str]) -> Chunk:
    return chunk.model_copy(update={"item_ids": tuple(item for item in chunk.item_ids if item not in useless)})


READERS = 4
"""Concurrent reads of moments, plans or skills; each may read its parts in parallel."""


def history_so_far(run: TrainingRun, newest: RunState) -> History:
    """Return the history up to the run's newest state, without counts of its end."""
    record, rules = run.record, run.config.evaluation
    val, test = run.item_refs(Split.VAL), run.item_refs(Split.TEST)

    rows = [run.keys.moment(moment).history_row for moment in _gated_moments(run, newest)]
    with ThreadPoolExecutor(READERS) as pool:
        moments = tuple(pool.map(lambda row: run.store.get_model(row, MomentHistory), rows))
    return History(
        benchmark=record.benchmark,
        run=record.run,
        created=record.created,
        target=str(record.config.model.target),
        optimizer=str(record.config.model.optimizer),
        metric=rules.gate_metric,
        gate_policy=rules.gate_policy,
        total_steps=record.total_steps,
        init_skill=_init_skill(run),
        stated=record.stated,
        smallest_gains=record.smallest_gains,
        val_items=len(val),
        test_items=len(test),
        val_groups=count_groups([item.group for item in val]),
        test_groups=count_groups([item.group for item in test]),
        budget=record.config.budget,
        seed=_on_val(run, run.state(run.timeline[0]).best),
        best=_on_val(run, newest.best),
        stopped=newest.stopped,
        moments=moments,
        costs=by_stage((row.call for row in run.usage.rows(run.ref.benchmark, run.ref.run)), record.prices),
    )


def history_of(
    run: TrainingRun, published: Publication | None = None, withheld: str = "", test_looks: int | None = None
) -> History:
    """Return the history of a finished run with the outcome of its publication."""
    final = run.state(run.timeline[-1])
    history = history_so_far(run, final)
    with ThreadPoolExecutor(READERS) as pool:
        done = RunRollouts.of(run, pool)
    more = {
        "test": _test(run, final),
        "test_looks": test_looks,
        "rollouts": done.counts(history.moments),
        "outcomes": done.outcomes(),
        "published": published,
        "withheld": withheld,
    }
    return history.model_copy(update=more)


def _gated_moments(run: TrainingRun, newest: RunState) -> tuple[Moment, ...]:
    """Return the moments between the seed and the final one that the state includes."""
    if newest.moment != run.timeline[-1].name:
        last = next(moment for moment in run.timeline if moment.name == newest.moment)
    elif newest.stopped:
        last = run.last_committed()
    else:
        last = run.timeline[-2]
    return run.timeline[1 : run.timeline.index(last) + 1]


def _init_skill(run: TrainingRun) -> str:
    asked, version = run.config.train.init_skill, run.record.init_version
    if asked == "seed" or asked.startswith("s3://"):
        return asked
    return version if version else "a text"


def _on_val(run: TrainingRun, skill: Measured) -> SplitScore:
    found, rules = skill.evaluation, run.config.evaluation
    return SplitScore.of(found, rules, version=skill.version, by_type=by_type(run, Split.VAL, found))


def _test(run: TrainingRun, final: RunState) -> dict[str, SplitScore]:
    if not run.config.evaluation.eval_test or final.stopped:
        return {}
    scores: dict[str, SplitScore] = {}
    for name, version in tested_versions(run, final).items():
        evaluation = measured(run, Split.TEST, run.skill(version))
        if evaluation.scores:
            scores[name] = SplitScore.of(
                evaluation, run.config.evaluation, version=version, by_type=by_type(run, Split.TEST, evaluation)
            )
    return scores
