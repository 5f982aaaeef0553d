"""The stages of a step: each loads what it needs, calls one function of core or optimizer, and stores what came out."""

import logging
from concurrent.futures import ThreadPoolExecutor

from skillopt_airflow.core.appendix import consolidated_edit, note_edits, notes_of
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Edit, JsonObject, Note, Patch
from skillopt_airflow.optimizer.answers import joined
from skillopt_airflow.optimizer.consolidate import consolidate
from skillopt_airflow.optimizer.learning_rate import learning_rate
from skillopt_airflow.optimizer.rewrite import rewrite
from skillopt_airflow.training.batch_screen import passes, screen_chunks
from skillopt_airflow.training.candidate import store_candidate
from skillopt_airflow.training.choice import Proposal, proposals, to_measure
from skillopt_airflow.training.evaluation import evaluation_chunks
from skillopt_airflow.training.lapse_notes import notes_enter, store_notes
from skillopt_airflow.training.reflection import StepReflection, step_reflection
from skillopt_airflow.training.rollout_plan import batch_chunks, store_plan
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import Assistants, optimizing
from skillopt_airflow.training.timing import timed

log = logging.getLogger(__name__)


def rollout(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch under the current skill; return the chunks, none if all of it was rolled out ahead."""
    return store_plan(run, moment, "rollout", batch_chunks(run, "rollout", moment, moment), if_missing=True)


def update(run: TrainingRun, moment: Moment, screened: bool = False) -> list[JsonObject]:
    """Make candidates of the step's rollouts; return the chunks to evaluate them on, none of one that equals the skill.

    With `screened` the chunks of its screen, none where the run has no screen; `screen` returns the others then.
    Each stage stores its result, and each call its answer: done again, none is paid for again.
    """
    made, workers = proposals(run, moment), run.config.gradient.analyst_workers
    beside = min(len(made), workers)
    with ThreadPoolExecutor(beside) as pool:
        list(pool.map(lambda proposal: _make(run, moment, proposal, workers // beside), made))
    skills = [proposal.keys.candidate_skill for proposal in to_measure(run, moment)]
    chunks = screen_chunks(run, moment, skills) if screened else evaluation_chunks(run, moment, skills)
    return store_plan(run, moment, "screen" if screened else "evaluate", chunks)


def screen(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Return the chunks to evaluate the candidate on, none if it equals the skill or is worse on the step's batch."""
    keys = run.keys.moment(moment)
    with timed(run.store, keys, "screening"):
        skills = [proposal.keys.candidate_skill for proposal in to_measure(run, moment)]
        passed = [skill for skill in skills if passes(run, moment, run.document(skill))]
        return store_plan(run, moment, "evaluate", evaluation_chunks(run, moment, passed))


def _make(run: TrainingRun, moment: Moment, proposal: Proposal, workers: int) -> None:
    """Make one candidate, with so many calls of the optimizer at the same time."""
    reflection = step_reflection(run, moment)
    _reflect(reflection, proposal, workers)
    _aggregate(reflection, proposal, workers)
    _select(reflection, proposal)
    _apply(run, moment, proposal)


def _reflect(reflection: StepReflection, proposal: Proposal, workers: int) -> None:
    """Turn the minibatches of the step's rollouts into patches."""
    run = reflection.run
    with optimizing(run, reflection.moment, "reflect", proposal.number - 1, workers) as models:
        for minibatch, patch in reflection.reflected(models, proposal.number, workers):
            run.store.put_model(proposal.keys.reflection(minibatch.source_type, minibatch.index), patch)


def _aggregate(reflection: StepReflection, proposal: Proposal, workers: int) -> None:
    """Merge the patches of all minibatches into one."""
    run, keys = reflection.run, proposal.keys
    with optimizing(run, reflection.moment, "aggregate", proposal.number - 1, workers) as models:
        patches = [
            run.store.get_model(keys.reflection(part.source_type, part.index), Patch)
            for part in reflection.minibatches(proposal.number)
        ]
        run.store.put_model(keys.merged_patch, reflection.merged(models, patches, workers))


def _select(reflection: StepReflection, proposal: Proposal) -> None:
    """Keep the edits within the learning rate."""
    run, moment, keys = reflection.run, reflection.moment, proposal.keys
    with optimizing(run, moment, "select", proposal.number - 1) as models:
        budget, merged = reflection.budget, run.store.get_model(keys.merged_patch, Patch)
        if run.config.optimizer.chooses_rate and budget is not None:
            state, skill, scores = run.state_before(moment), reflection.skill.text, reflection.scores
            chosen = learning_rate(models.optimizer, skill, merged, budget, scores, state.buffer, state.meta_skill)
            run.store.put_model(keys.learning_rate, chosen)
            log.info("the optimizer chose learning rate %d: %s", chosen.rate, chosen.reason)
            budget = chosen.rate
            merged = merged.model_copy(update={"fallback": joined(merged.fallback, chosen.fallback)})
        run.store.put_model(keys.ranked_edits, reflection.selected(models, merged, budget))


def _apply(run: TrainingRun, moment: Moment, proposal: Proposal) -> None:
    """Apply the edits."""
    with optimizing(run, moment, "update", proposal.number - 1) as models:
        state = run.state_before(moment)
        skill = run.skill(state.current.version)
        patch = run.store.get_model(proposal.keys.ranked_edits, Patch)
        if run.config.optimizer.skill_update_mode == "rewrite_from_suggestions":
            patch = rewrite(models.optimizer, skill.text, patch, state.buffer)
        notes = _notes(run, models, skill, patch)
        if notes_enter(run.config.optimizer):
            store_notes(run, proposal.keys, notes)
        else:
            patch = patch.model_copy(update={"edits": (*patch.edits, *notes.edits)})
        patch = patch.model_copy(update={"fallback": joined(patch.fallback, notes.fallback)})
        store_candidate(run, moment, proposal.keys, patch)


def _notes(run: TrainingRun, models: Assistants, skill: SkillDocument, patch: Patch) -> Patch:
    """Return the patch's notes as edits of the appendix, consolidated above the threshold."""
    edits: tuple[Edit, ...] = note_edits(skill, patch.notes)
    most, fallback = run.config.optimizer.skill_aware_consolidate_threshold, ""
    present = tuple(Note(text=text, minibatch="appendix") for text in notes_of(skill))
    if edits and 0 < most < len(notes_of(apply_edits(skill, edits)[0])):
        united = consolidate(models.optimizer, skill.text, (*present, *patch.notes), most)
        edits, fallback = (consolidated_edit(skill, united.notes),), united.fallback
    return Patch(edits=edits, fallback=fallback)
