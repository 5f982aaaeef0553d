"""The stages of a step before its gate: the batch, the batch ahead, reflection, and the candidate."""

import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import TrainGroup
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.run.state import ReflectedItems, RunState
from skillopt_airflow.core.run.timeline import Moment, edit_budget, writes_guidance
from skillopt_airflow.core.values.pictures import Pictures, PictureSizes, sizes
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import JsonObject, Patch, Rollout, Score, Split
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.optimizer.answers import join_fallbacks
from skillopt_airflow.optimizer.deep_reflect import follow_ups, probes, questions
from skillopt_airflow.optimizer.learning_rate import learning_rate, select
from skillopt_airflow.optimizer.reflect import Minibatch, ReflectContext, by_outcome, minibatches, reflect
from skillopt_airflow.optimizer.rewrite import appendix_patch, rewrite
from skillopt_airflow.optimizer.transcripts import Exhibits, FollowUp
from skillopt_airflow.training.rollouts.rollout_plan import BATCH_AHEAD, Chunk, PlanKind, chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun, contents, pictures, shown_items
from skillopt_airflow.training.run.stage_models import Assistants, open_assistants
from skillopt_airflow.training.step.candidate import propose

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepInput:
    """The input of a step's reflection, without pictures."""

    state: RunState
    """The state before the step."""
    skill: SkillDocument
    slices: Sequence[Sequence[Rollout]]
    """Scored rollouts by slice; all rollouts of an item are adjacent."""

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for part in self.slices for rollout in part]

    @property
    def scores(self) -> list[Score]:
        return [rollout.score for rollout in self.rollouts if rollout.score is not None]


def load_step(run: TrainingRun, moment: Moment) -> StepInput:
    """Read a step's input; a retry sees the same rollouts as the first attempt."""
    state = run.state_before(moment)
    skill, slices = run.skill(state.current.version), run.slices(moment)
    items = [item for part in slices for item in part]
    stored = {sample: run.stored(Split.TRAIN, skill, sample, items) for sample in run.batch_samples(moment)}
    scored: dict[str, dict[int, Rollout]] = {}
    for item_id in sorted(ids(items)):
        found = {sample: rollouts[item_id] for sample, rollouts in stored.items() if item_id in rollouts}
        scored[item_id] = {sample: rollout for sample, rollout in found.items() if rollout.score is not None}
    seen = run.store.first_model(run.keys.moment(moment).reflected_items, _scored_samples(scored))
    kept = [[scored[item.id][sample] for item in part for sample in seen.samples_of(item.id)] for part in slices]
    return StepInput(state, skill, kept)


def reflect_on_step(
    run: TrainingRun, moment: Moment, step: StepInput, models: Assistants, workers: int
) -> list[tuple[Minibatch, Patch]]:
    """Return the optimizer's patch per minibatch, with `workers` concurrent calls."""
    gradient, optimizer = run.config.gradient, run.config.optimizer
    limited = edit_budget(moment.step, run.record.total_steps, optimizer) is not None
    context = ReflectContext(
        skill=step.skill.text,
        # The schedule limits the selected edits, not the proposed ones.
        budget=optimizer.learning_rate if limited else None,
        room=run.prompt_room,
        buffer=step.state.buffer,
        meta_skill=step.state.meta_skill,
        rounds=gradient.analyst_rounds,
    )
    seed = run.config.train.seed
    probed: frozenset[str] = frozenset()
    if gradient.use_deep_reflect:
        successes = 0 if gradient.failure_only else gradient.deep_reflect_successes
        chosen = probes(step.rollouts, gradient.deep_reflect_failures, successes, f"{seed}-probes-{moment.step}")
        probed = frozenset(chosen)

    def work(minibatch: Minibatch) -> tuple[Minibatch, Patch]:
        answers, unanswered = _follow_ups(run, models, context.skill, minibatch, probed)
        exhibits = Exhibits(answers, *_pictures(run, minibatch))
        patch = reflect(models.optimizer, context, minibatch, optimizer, exhibits)
        patch = patch.model_copy(update={"fallback": join_fallbacks(unanswered, patch.fallback)})
        log.info("%s: %d edits, %d patterns", minibatch.name, len(patch.edits), len(patch.failure_patterns))
        return minibatch, patch

    cut = minibatches(step.slices, gradient.minibatch_size, f"{seed}-step-{moment.step}", gradient.failure_only)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, cut))


def _scored_samples(scored: Mapping[str, Mapping[int, Rollout]]) -> ReflectedItems:
    """Return the samples with a score by item, and the number of failures."""
    samples = {item_id: tuple(rollouts) for item_id, rollouts in scored.items() if rollouts}
    rollouts = [rollout for of_item in scored.values() for rollout in of_item.values()]
    several = any(of_item != (0,) for of_item in samples.values())
    return ReflectedItems(
        item_ids=tuple(samples), failed=len(by_outcome(rollouts)["failure"]), samples=samples if several else {}
    )


def _follow_ups(
    run: TrainingRun, models: Assistants, skill: str, minibatch: Minibatch, probed: frozenset[str]
) -> tuple[dict[str, FollowUp], str]:
    """Return the target's answers about each probed item's rollout with the lowest score, and a fallback."""
    chosen = [samples[0] for samples in minibatch.items if samples[0].trajectory.item_id in probed]
    asked, flaws = questions(models.optimizer, skill, chosen, run.prompt_room)
    seen = pictures(run, shown_items(run, Split.TRAIN, chosen))
    answers, unanswered = follow_ups(models.target, chosen, asked, seen)
    return answers, join_fallbacks(flaws, unanswered)


def _pictures(run: TrainingRun, minibatch: Minibatch) -> tuple[PictureSizes, Mapping[str, Pictures]]:
    """Return the sizes of the pictures that the target saw, and the first pictures for the analyst."""
    items = {item.id: item for item in shown_items(run, Split.TRAIN, minibatch.rollouts)}
    room, chosen = run.config.gradient.show_pictures, {}
    for item_id in dict.fromkeys(one.trajectory.item_id for one in minibatch.rollouts):
        if item_id in items and room > 0:
            files = [file for file in items[item_id].files if file.picture][:room]
            chosen[item_id] = contents(run, files)
            room -= len(files)
    return {item_id: sizes(item) for item_id, item in items.items()}, chosen


def rollout(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch under the current skill; return its chunks, none if all items ran ahead."""
    return store_plan(run, moment, "rollout", _batch_chunks(run, "rollout", moment, moment), if_missing=True)


def _batch_chunks(run: TrainingRun, stage: PlanKind, moment: Moment, step: Moment) -> list[Chunk]:
    skill = run.keys.skill(run.state_before(moment).current.version)
    return chunks_of(run.config, stage, [skill], Split.TRAIN, ids(run.batch(step)), run.batch_samples(step))


def update(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Make a candidate from the step's rollouts; return its evaluation's chunks, none if it equals the skill.

    Answers are cached, so a retry pays for none again.
    """
    keys, store, gradient, rules = run.keys.moment(moment), run.store, run.config.gradient, run.config.optimizer
    workers, step = gradient.analyst_workers, load_step(run, moment)
    skill, memory, buffer = step.skill.text, step.state.meta_skill, step.state.buffer
    with open_assistants(run, moment, "update") as models:
        reflections = reflect_on_step(run, moment, step, models, workers)
        for minibatch, patch in reflections:
            store.put_model(keys.reflection(minibatch.source_type, minibatch.index), patch)
        patches, size = [patch for _, patch in reflections], gradient.merge_batch_size
        merged = aggregate(models.optimizer, skill, patches, size, workers, memory)
        store.put_model(keys.merged_patch, merged)
        log.info("%d patches, %d edits after merging", len(patches), len(merged.edits))
        rate = edit_budget(moment.step, run.record.total_steps, rules)
        if rate is not None and rules.chooses_rate:
            chosen = learning_rate(models.optimizer, skill, merged, rate, step.scores, buffer, memory)
            store.put_model(keys.learning_rate, chosen)
            log.info("the optimizer chose learning rate %d: %s", chosen.rate, chosen.reason)
            rate, merged = chosen.rate, merged.also(chosen.fallback)
        ranked = select(models.optimizer, skill, merged, rate, memory)
        store.put_model(keys.ranked_edits, ranked)
        log.info("learning rate %s: %d of %d edits stay", rate, len(ranked.edits), len(merged.edits))
        is_rewritten = rules.skill_update_mode == "rewrite_from_suggestions"
        candidate = rewrite(models.optimizer, skill, ranked, buffer) if is_rewritten else ranked
        notes = appendix_patch(models.optimizer, step.skill, candidate.notes, rules.skill_aware_consolidate_threshold)
        if notes.edits:
            # The skill gets them after the gate, for any verdict.
            store.put_model(keys.notes, notes)
        elif rules.use_skill_aware_reflection:
            # An earlier attempt of the step may have had notes.
            store.delete(keys.notes)
        return propose(run, moment, candidate.also(notes.fallback))


RECENT = 3
REJECTED = 2
"""Rejections among the RECENT last steps after which `auto` expects another one."""


def plan_ahead(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the next step's batch under the skill that remains after a rejection; return its chunks.

    There are none if no rejection is expected, or for a finished moment, which an upgrade of this project may give the
    task.
    """
    following = dict(batches_ahead(run.timeline, run.config)).get(moment)
    if following is None or run.committed(moment) or not _pays_off(run, moment):
        # Earlier rollouts ahead stay in their plan.
        return []
    return store_plan(run, moment, BATCH_AHEAD, _batch_chunks(run, "speculate", moment, following))


def batches_ahead(timeline: Sequence[Moment], config: TrainConfig) -> list[tuple[Moment, Moment]]:
    """Return the moments during which the next step's batch may run ahead, each with that step."""
    first = first_speculation(config.train)
    return [
        (moment, following)
        for moment, following in pairwise(timeline)
        if following.kind == "step"
        and may_precede(moment, config)
        # At an epoch's end, one more step has been decided.
        and moment.step + (moment.kind != "step") >= first
    ]


def first_speculation(train: TrainGroup) -> float:
    """Return the first step that may roll out the next batch; infinity if none."""
    wanted = train.speculative_rollout
    return REJECTED + 1 if wanted == "auto" else 1 if wanted else math.inf


def may_precede(moment: Moment, config: TrainConfig) -> bool:
    """Return whether a moment may leave the skill unchanged, so that the next batch can run ahead."""
    rules = config.optimizer
    if not config.evaluation.use_gate:
        return False
    if moment.kind == "step":
        return not rules.use_skill_aware_reflection
    if moment.kind == "slow_update":
        # Without guidance, it only writes memory.
        return rules.slow_update_gate or not writes_guidance(moment, rules)
    return moment.kind == "meta_reflect"


def _pays_off(run: TrainingRun, moment: Moment) -> bool:
    wanted = run.config.train.speculative_rollout
    if run.config.budget.is_limited:
        # Parallel tasks would divide the remaining budget.
        return False
    if wanted != "auto":
        return wanted
    steps = [one for one in run.timeline[: run.timeline.index(moment)] if one.kind == "step"]
    gates = [run.store.get_model(run.keys.moment(step).gate, GateDecision) for step in steps[-RECENT:]]
    return sum(not gate.action.accepted for gate in gates) >= REJECTED
