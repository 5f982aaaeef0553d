"""The stages of a step: each loads what it needs, calls one function of core or optimizer, and stores what came out."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from skillopt_airflow.core.appendix import consolidated_edit, note_edits, notes_of
from skillopt_airflow.core.buffer import ReflectedItems
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.errors import Conflict
from skillopt_airflow.core.pictures import Pictures, PictureSizes, sizes
from skillopt_airflow.core.schedule import edit_budget
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Edit, JsonObject, Note, Patch, Rollout, Score, Split
from skillopt_airflow.optimizer.aggregate import aggregate as merge_patches
from skillopt_airflow.optimizer.answers import joined
from skillopt_airflow.optimizer.consolidate import consolidate
from skillopt_airflow.optimizer.deep_reflect import FollowUps, follow_ups, probes, questions
from skillopt_airflow.optimizer.learning_rate import learning_rate
from skillopt_airflow.optimizer.minibatches import Minibatch, by_outcome, minibatch_seed, minibatches
from skillopt_airflow.optimizer.reflect import ReflectContext
from skillopt_airflow.optimizer.reflect import reflect as reflect_on
from skillopt_airflow.optimizer.rewrite import rewrite
from skillopt_airflow.optimizer.select import select as select_edits
from skillopt_airflow.optimizer.transcripts import Exhibits
from skillopt_airflow.store.objects import model_bytes
from skillopt_airflow.training.batch_screen import passes, screen_chunks
from skillopt_airflow.training.candidate import store_candidate
from skillopt_airflow.training.choice import Proposal, proposals, to_measure
from skillopt_airflow.training.evaluation import evaluation_chunks
from skillopt_airflow.training.item_files import contents, pictures, shown_items
from skillopt_airflow.training.lapse_notes import notes_enter, store_notes
from skillopt_airflow.training.rollout_plan import Chunk, chunks_of, ids, store_plan
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import Assistants, optimizing
from skillopt_airflow.training.timing import timed

log = logging.getLogger(__name__)


def rollout(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch under the current skill; return the chunks, none if all of it was rolled out ahead."""
    return store_plan(run, moment, "rollout", batch_chunks(run, moment), if_missing=True)


def batch_chunks(run: TrainingRun, moment: Moment) -> list[Chunk]:
    """Return the rollouts of a step's batch."""
    skill = run.keys.skill(run.state_before(moment).current.version)
    items = [item for part in run.slices(moment) for item in part]
    return chunks_of(run.config, "rollout", [skill], Split.TRAIN, ids(items), run.config.train.batch_draws)


def update(run: TrainingRun, moment: Moment, screened: bool = False, calls: int | None = None) -> list[JsonObject]:
    """Make candidates of the step's rollouts; return the chunks to evaluate them on, none of one that equals the skill.

    No more than `calls` model calls are in flight, where that is a number. With `screened` the chunks of its screen,
    none where the run has no screen; `screen` returns the others then.
    Each stage stores its result, and each call its answer: done again, none is paid for again.
    """
    made, workers = proposals(run, moment), run.config.gradient.analyst_workers
    workers = workers if calls is None else min(workers, calls)
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
    _reflect(run, moment, proposal, workers)
    _aggregate(run, moment, proposal, workers)
    _select(run, moment, proposal)
    _apply(run, moment, proposal)


def _reflect(run: TrainingRun, moment: Moment, proposal: Proposal, workers: int) -> None:
    """Turn the minibatches of the step's rollouts into patches."""
    gradient, state = run.config.gradient, run.state_before(moment)
    skill = run.skill(state.current.version)
    context = ReflectContext(
        skill=skill.text,
        budget=edit_budget(moment.step, run.record.total_steps, run.config.optimizer),
        buffer=state.buffer,
        meta_skill=state.meta_skill,
        rounds=gradient.analyst_rounds,
    )
    with optimizing(run, moment, "reflect", proposal.number - 1, workers) as models:
        probed = _probed(run, moment) if gradient.use_deep_reflect else frozenset()

        def work(minibatch: Minibatch) -> None:
            asked = _asked(run, models, context.skill, minibatch, probed)
            exhibits = Exhibits(asked.by_item, *_pictures(run, minibatch))
            patch = reflect_on(models.optimizer, context, minibatch, run.config.optimizer, exhibits)
            patch = patch.model_copy(update={"fallback": joined(asked.fallback, patch.fallback)})
            run.store.put_model(proposal.keys.reflection(minibatch.source_type, minibatch.index), patch)
            log.info("%s: %d edits, %d patterns", minibatch.name, len(patch.edits), len(patch.failure_patterns))

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, step_minibatches(run, moment, proposal.number)))


def _aggregate(run: TrainingRun, moment: Moment, proposal: Proposal, workers: int) -> None:
    """Merge the patches of all minibatches into one."""
    state, keys = run.state_before(moment), proposal.keys
    with optimizing(run, moment, "aggregate", proposal.number - 1, workers) as models:
        skill = run.skill(state.current.version)
        patches = [
            run.store.get_model(keys.reflection(part.source_type, part.index), Patch)
            for part in step_minibatches(run, moment, proposal.number)
        ]
        merged = merge_patches(
            models.optimizer,
            skill.text,
            patches,
            run.config.gradient.merge_batch_size,
            workers,
            state.meta_skill,
            bodies=run.config.optimizer.merge_rewrites
            and run.config.optimizer.skill_update_mode == "full_rewrite_minibatch",
        )
        run.store.put_model(keys.merged_patch, merged)
        log.info("%d patches, %d edits after merging", len(patches), len(merged.edits))


def _select(run: TrainingRun, moment: Moment, proposal: Proposal) -> None:
    """Keep the edits within the learning rate."""
    state, keys = run.state_before(moment), proposal.keys
    with optimizing(run, moment, "select", proposal.number - 1) as models:
        skill = run.skill(state.current.version).text
        merged = run.store.get_model(keys.merged_patch, Patch)
        budget = edit_budget(moment.step, run.record.total_steps, run.config.optimizer)
        if _chooses_rate(run) and budget is not None:
            chosen = learning_rate(
                models.optimizer, skill, merged, budget, _scores(run, moment), state.buffer, state.meta_skill
            )
            run.store.put_model(keys.learning_rate, chosen)
            log.info("the optimizer chose learning rate %d: %s", chosen.rate, chosen.reason)
            budget = chosen.rate
            merged = merged.model_copy(update={"fallback": joined(merged.fallback, chosen.fallback)})
        ranked = select_edits(models.optimizer, skill, merged, budget, state.meta_skill)
        run.store.put_model(keys.ranked_edits, ranked)
        log.info("learning rate %s: %d of %d edits stay", budget, len(ranked.edits), len(merged.edits))


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


def _chooses_rate(run: TrainingRun) -> bool:
    """Return whether the optimizer sets the learning rate; of whole rewrites there can be only one anyway."""
    rules = run.config.optimizer
    return rules.lr_control_mode == "autonomous" and rules.skill_update_mode != "full_rewrite_minibatch"


def step_minibatches(run: TrainingRun, moment: Moment, proposal: int) -> list[Minibatch]:
    """Return the minibatches of the step's rollouts, grouped for a proposal; the same for every task that asks."""
    gradient = run.config.gradient
    seed = minibatch_seed(run.config.train, moment.step, proposal)
    return minibatches(_rolled_out(run, moment), gradient.minibatch_size, seed, gradient.failure_only)


def _rolled_out(run: TrainingRun, moment: Moment) -> list[list[Rollout]]:
    """Return the scored rollouts of the step, by slice, an item's tries in a row, the same ones for every task."""
    skill = run.skill(run.state_before(moment).current.version)
    slices = run.slices(moment)
    items = [item for part in slices for item in part]
    stored = [run.stored(Split.TRAIN, skill, draw, items) for draw in run.config.train.batch_draws]
    scored: dict[str, dict[int, Rollout]] = {}
    for item_id in sorted(ids(items)):
        found = {draw: rollouts[item_id] for draw, rollouts in enumerate(stored) if item_id in rollouts}
        scored[item_id] = {draw: rollout for draw, rollout in found.items() if rollout.score is not None}
    fixed = _fixed(run, moment, _seen(scored))
    return [[scored[item.id][draw] for item in part for draw in fixed.draws_of(item.id)] for part in slices]


def _seen(scored: Mapping[str, Mapping[int, Rollout]]) -> ReflectedItems:
    """Return which items have a score in which draws, and how many of them failed."""
    draws = {item_id: tuple(rollouts) for item_id, rollouts in scored.items() if rollouts}
    rollouts = [rollout for of_item in scored.values() for rollout in of_item.values()]
    several = any(of_item != (0,) for of_item in draws.values())
    return ReflectedItems(
        item_ids=tuple(draws), failed=len(by_outcome(rollouts)["failure"]), draws=draws if several else {}
    )


def _scores(run: TrainingRun, moment: Moment) -> list[Score]:
    rollouts = [rollout for part in _rolled_out(run, moment) for rollout in part]
    return [rollout.score for rollout in rollouts if rollout.score is not None]


def _fixed(run: TrainingRun, moment: Moment, seen: ReflectedItems) -> ReflectedItems:
    """Return what the first task of the step saw."""
    key = run.keys.moment(moment).reflected_items
    with suppress(Conflict):
        run.store.create(key, model_bytes(seen))
    return run.store.get_model(key, ReflectedItems)


def _probed(run: TrainingRun, moment: Moment) -> frozenset[str]:
    """Return the items of the step that the target is asked about."""
    gradient = run.config.gradient
    rollouts = [rollout for part in _rolled_out(run, moment) for rollout in part]
    seed = f"{run.config.train.seed}-probes-{moment.step}"
    successes = 0 if gradient.failure_only else gradient.deep_reflect_successes
    return frozenset(probes(rollouts, gradient.deep_reflect_failures, successes, seed))


def _asked(run: TrainingRun, models: Assistants, skill: str, minibatch: Minibatch, probed: frozenset[str]) -> FollowUps:
    """Return what the target says about the minibatch's probed items, each about its try with the lowest score."""
    chosen = [tries[0] for tries in minibatch.items if tries[0].trajectory.item_id in probed]
    wanted = questions(models.optimizer, skill, chosen)
    seen = pictures(run, shown_items(run, Split.TRAIN, chosen))
    answered = follow_ups(models.target, chosen, wanted.by_item, max(1, len(chosen)), seen)
    return answered.model_copy(update={"fallback": joined(wanted.fallback, answered.fallback)})


def _pictures(run: TrainingRun, minibatch: Minibatch) -> tuple[PictureSizes, Mapping[str, Pictures]]:
    """Return the sizes of what the target was shown, and what of it the analyst is, from the first item on."""
    items = {item.id: item for item in shown_items(run, Split.TRAIN, minibatch.rollouts)}
    room, chosen = run.config.gradient.show_pictures, {}
    for item_id in dict.fromkeys(one.trajectory.item_id for one in minibatch.rollouts):
        if item_id in items and room > 0:
            files = [file for file in items[item_id].files if file.picture][:room]
            chosen[item_id] = contents(run, files)
            room -= len(files)
    return {item_id: sizes(item) for item_id, item in items.items()}, chosen


def _notes(run: TrainingRun, models: Assistants, skill: SkillDocument, patch: Patch) -> Patch:
    """Return the patch's notes as edits of the appendix, consolidated above the threshold."""
    edits: tuple[Edit, ...] = note_edits(skill, patch.notes)
    most, fallback = run.config.optimizer.skill_aware_consolidate_threshold, ""
    present = tuple(Note(text=text, minibatch="appendix") for text in notes_of(skill))
    if edits and 0 < most < len(notes_of(apply_edits(skill, edits)[0])):
        united = consolidate(models.optimizer, skill.text, (*present, *patch.notes), most)
        edits, fallback = (consolidated_edit(skill, united.notes),), united.fallback
    return Patch(edits=edits, fallback=fallback)
