"""The stages of a step before its gate: the plan of its batch, and the candidate that is made of its rollouts."""

import logging

from skillopt_airflow.core.edits import apply_edits, consolidated_edit, note_edits, notes_enter, notes_of
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.timeline import Moment, edit_budget
from skillopt_airflow.core.types import Edit, JsonObject, Note, Patch
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.optimizer.answers import joined
from skillopt_airflow.optimizer.learning_rate import learning_rate, select
from skillopt_airflow.optimizer.rewrite import consolidate, rewrite
from skillopt_airflow.training.candidate import propose
from skillopt_airflow.training.reflection import StepInput, load_step, reflected
from skillopt_airflow.training.rollout_plan import batch_chunks, store_plan
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import Assistants, optimizing

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
    return merged.model_copy(update={"fallback": joined(merged.fallback, chosen.fallback)}), chosen.rate


def _with_notes(run: TrainingRun, moment: Moment, step: StepInput, models: Assistants, ranked: Patch) -> Patch:
    """Return what makes the candidate: the edits, or a body written from them, and the notes that pass the gate.

    Other notes are stored apart: the gate's task adds them.
    """
    patch, rules, key = ranked, run.config.optimizer, run.keys.moment(moment).notes
    if rules.skill_update_mode == "rewrite_from_suggestions":
        patch = rewrite(models.optimizer, step.skill.text, ranked, step.state.buffer)
    notes = _notes(run, models, step.skill, patch)
    patch = patch.model_copy(update={"fallback": joined(patch.fallback, notes.fallback)})
    if not notes_enter(rules):
        return patch.model_copy(update={"edits": (*patch.edits, *notes.edits)})
    if notes.edits:
        run.store.put_model(key, notes)
    else:
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
