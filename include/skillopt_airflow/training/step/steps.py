"""The stages of a step before its gate: its batch, also ahead of it, and the candidate that is made of its rollouts."""

import logging
import math
from collections.abc import Sequence
from itertools import pairwise

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import TrainGroup
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.run.timeline import Moment, edit_budget, writes_guidance
from skillopt_airflow.core.values.edits import apply_edits, consolidated_edit, note_edits, notes_of
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, JsonObject, Note, Patch
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.optimizer.answers import join_fallbacks
from skillopt_airflow.optimizer.learning_rate import learning_rate, select
from skillopt_airflow.optimizer.rewrite import consolidate, rewrite
from skillopt_airflow.training.rollouts.rollout_plan import BATCH_AHEAD, Chunk, batch_chunks, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.stage_models import Assistants, optimizing
from skillopt_airflow.training.step.candidate import propose
from skillopt_airflow.training.step.reflection import StepInput, load_step, reflected

log = logging.getLogger(__name__)


def rollout(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch under the current skill; return the chunks, none if all of it was rolled out ahead."""
    return store_plan(run, moment, "rollout", batch_chunks(run, "rollout", moment, moment), if_missing=True)


def update(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Make a candidate of the step's rollouts; return the chunks to evaluate it on, none if it equals the skill.

    Each call's answer is stored: done again, none is paid for again.
    """
    keys, store, gradient = run.keys.moment(moment), run.store, run.config.gradient
    workers = gradient.analyst_workers
    step = load_step(run, moment)
    skill, memory = step.skill.text, step.state.meta_skill
    with optimizing(run, moment, "update", workers) as models:
        reflections = reflected(run, moment, step, models, workers)
        for minibatch, patch in reflections:
            store.put_model(keys.reflection(minibatch.source_type, minibatch.index), patch)
        patches, size = [patch for _, patch in reflections], gradient.merge_batch_size
        merged = aggregate(models.optimizer, skill, patches, size, workers, memory)
        store.put_model(keys.merged_patch, merged)
        log.info("%d patches, %d edits after merging", len(patches), len(merged.edits))
        merged, budget = _with_rate(run, moment, step, models, merged)
        ranked = select(models.optimizer, skill, merged, budget, memory)
        store.put_model(keys.ranked_edits, ranked)
        log.info("learning rate %s: %d of %d edits stay", budget, len(ranked.edits), len(merged.edits))
        return propose(run, moment, _with_notes(run, moment, step, models, ranked))


def _with_rate(
    run: TrainingRun, moment: Moment, step: StepInput, models: Assistants, merged: Patch
) -> tuple[Patch, int | None]:
    """Return the patch and the learning rate: the schedule's, or the one that the optimizer chooses up to it."""
    budget = edit_budget(moment.step, run.record.total_steps, run.config.optimizer)
    if budget is None or not run.config.optimizer.chooses_rate:
        return merged, budget
    buffer, memory = step.state.buffer, step.state.meta_skill
    chosen = learning_rate(models.optimizer, step.skill.text, merged, budget, step.scores, buffer, memory)
    run.store.put_model(run.keys.moment(moment).learning_rate, chosen)
    log.info("the optimizer chose learning rate %d: %s", chosen.rate, chosen.reason)
    return merged.model_copy(update={"fallback": join_fallbacks(merged.fallback, chosen.fallback)}), chosen.rate


def _with_notes(run: TrainingRun, moment: Moment, step: StepInput, models: Assistants, ranked: Patch) -> Patch:
    """Return the edits that make the candidate, or a body written from them. The gate's task adds the notes."""
    patch, rules, key = ranked, run.config.optimizer, run.keys.moment(moment).notes
    if rules.skill_update_mode == "rewrite_from_suggestions":
        patch = rewrite(models.optimizer, step.skill.text, ranked, step.state.buffer)
    notes = _notes(run, models, step.skill, patch)
    patch = patch.model_copy(update={"fallback": join_fallbacks(patch.fallback, notes.fallback)})
    if notes.edits:
        run.store.put_model(key, notes)
    elif rules.use_skill_aware_reflection:
        # The step may have had some before it was done again.
        run.store.delete(key)
    return patch


def _notes(run: TrainingRun, models: Assistants, skill: SkillDocument, patch: Patch) -> Patch:
    """Return the patch's notes as edits of the appendix, consolidated above the threshold."""
    edits: tuple[Edit, ...] = note_edits(skill, patch.notes)
    most, fallback = run.config.optimizer.skill_aware_consolidate_threshold, ""
    present = tuple(Note(text=text, minibatch="appendix") for text in notes_of(skill))
    if edits and 0 < most < len(notes_of(apply_edits(skill, edits)[0])):
        united = consolidate(models.optimizer, skill.text, (*present, *patch.notes), most)
        edits, fallback = (consolidated_edit(skill, united.notes),), united.fallback
    return Patch(edits=edits, fallback=fallback)


RECENT = 3
REJECTED = 2
"""Of the RECENT last steps so many must have rejected their candidates before `auto` expects the next rejection."""


def plan_ahead(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch of the step that follows; return its chunks, none if no rejection is expected.

    None of a moment that is over either, to which an update of this project may add the task.
    """
    chunks = [] if run.committed(moment) else speculation(run, moment)
    # What was rolled out ahead before stays in its plan.
    return store_plan(run, moment, BATCH_AHEAD, chunks) if chunks else []


def speculation(run: TrainingRun, moment: Moment) -> list[Chunk]:
    """Return the batch of the step that follows at once, under the skill that it starts from after a rejection."""
    following = dict(batches_ahead(run.timeline, run.config)).get(moment)
    if following is None or not _pays(run, moment):
        return []
    return batch_chunks(run, "speculate", moment, following)


def batches_ahead(timeline: Sequence[Moment], config: TrainConfig) -> list[tuple[Moment, Moment]]:
    """Return the moments before whose end the batch of the step behind them may be rolled out, each with that step.

    Whether it is depends on what the moments before decide.
    """
    first = first_speculation(config.train)
    return [
        (moment, following)
        for moment, following in pairwise(timeline)
        if following.kind == "step"
        and may_precede(moment, config)
        # Behind an epoch's last step one more has been judged.
        and moment.step + (moment.kind != "step") >= first
    ]


def first_speculation(train: TrainGroup) -> float:
    """Return the number of the first step that may roll out the next batch; infinity if none does."""
    wanted = train.speculative_rollout
    return REJECTED + 1 if wanted == "auto" else 1 if wanted else math.inf


def may_precede(moment: Moment, config: TrainConfig) -> bool:
    """Return whether the skill may stay as it was, so that the batch behind a moment can begin before its end."""
    rules = config.optimizer
    if not config.evaluation.use_gate:
        return False
    if moment.kind == "step":
        return not rules.use_skill_aware_reflection
    if moment.kind == "slow_update":
        # Without guidance it leaves a memory, and the skill as it is.
        return rules.slow_update_gate or not writes_guidance(moment, rules)
    return moment.kind == "meta_reflect"


def _pays(run: TrainingRun, moment: Moment) -> bool:
    wanted = run.config.train.speculative_rollout
    if run.config.budget.is_limited:
        # Tasks beside each other would each have a part of what is left.
        return False
    if wanted != "auto":
        return wanted
    steps = [one for one in run.timeline[: run.timeline.index(moment)] if one.kind == "step"]
    gates = [run.store.get_model(run.keys.moment(step).gate, GateDecision) for step in steps[-RECENT:]]
    return sum(not gate.action.accepted for gate in gates) >= REJECTED
