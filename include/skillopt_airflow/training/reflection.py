"""A step's reflection: what its rollouts are, and the questions to the optimizer that make edits of them."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from skillopt_airflow.core.buffer import ReflectedItems
from skillopt_airflow.core.pictures import Pictures, PictureSizes, sizes
from skillopt_airflow.core.schedule import edit_budget
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch, Rollout, Score, Split
from skillopt_airflow.optimizer.aggregate import aggregate as merge_patches
from skillopt_airflow.optimizer.answers import joined
from skillopt_airflow.optimizer.deep_reflect import FollowUps, follow_ups, probes, questions
from skillopt_airflow.optimizer.minibatches import Minibatch, by_outcome, minibatch_seed, minibatches
from skillopt_airflow.optimizer.reflect import ReflectContext, reflect
from skillopt_airflow.optimizer.select import select as select_edits
from skillopt_airflow.optimizer.transcripts import Exhibits
from skillopt_airflow.training.choice import proposals
from skillopt_airflow.training.item_files import contents, pictures, shown_items
from skillopt_airflow.training.rollout_plan import ids
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import Assistants

log = logging.getLogger(__name__)


class StepBatch(NamedTuple):
    """The rollouts of a step that have a score."""

    slices: Sequence[Sequence[Rollout]]
    """An item's tries are in a row."""
    seen: ReflectedItems
    """The items and their tries."""


@dataclass(frozen=True)
class StepReflection:
    """The questions of one step, with all that they are about."""

    run: TrainingRun
    moment: Moment
    state: RunState
    """The state that the step starts from, with the buffer that the optimizer is shown."""

    @cached_property
    def batch(self) -> StepBatch:
        """Return what the step is about, the same for every task that asks."""
        return _scored_batch(self.run, self.moment, self.skill)

    @cached_property
    def skill(self) -> SkillDocument:
        """Return the skill that the step starts from."""
        return self.run.skill(self.state.current.version)

    @property
    def scores(self) -> list[Score]:
        """Return the scores of the rollouts."""
        return [rollout.score for part in self.batch.slices for rollout in part if rollout.score is not None]

    @property
    def budget(self) -> int | None:
        """Return the learning rate that the schedule gives the step; None is no limit."""
        return edit_budget(self.moment.step, self.run.record.total_steps, self.run.config.optimizer)

    def minibatches(self, proposal: int) -> list[Minibatch]:
        """Return the minibatches of the rollouts, grouped for a proposal; the same for every task that asks."""
        gradient = self.run.config.gradient
        seed = minibatch_seed(self.run.config.train, self.moment.step, proposal)
        return minibatches(self.batch.slices, gradient.minibatch_size, seed, gradient.failure_only)

    def reflected(self, models: Assistants, proposal: int, workers: int) -> list[tuple[Minibatch, Patch]]:
        """Return what the optimizer proposes after each minibatch, so many calls at the same time."""
        run, gradient = self.run, self.run.config.gradient
        context = ReflectContext(
            skill=self.skill.text,
            # The schedule limits what is selected, not what is proposed.
            budget=None if self.budget is None else run.config.optimizer.learning_rate,
            room=run.prompt_room,
            buffer=self.state.buffer,
            meta_skill=self.state.meta_skill,
            rounds=gradient.analyst_rounds,
            brief=gradient.brief,
        )
        probed = self._probed() if gradient.use_deep_reflect else frozenset()

        def work(minibatch: Minibatch) -> tuple[Minibatch, Patch]:
            asked = _asked(run, models, context.skill, minibatch, probed)
            exhibits = Exhibits(asked.by_item, *_pictures(run, minibatch))
            patch = reflect(models.optimizer, context, minibatch, run.config.optimizer, exhibits)
            patch = patch.model_copy(update={"fallback": joined(asked.fallback, patch.fallback)})
            log.info("%s: %d edits, %d patterns", minibatch.name, len(patch.edits), len(patch.failure_patterns))
            return minibatch, patch

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, self.minibatches(proposal)))

    def merged(self, models: Assistants, patches: Sequence[Patch], workers: int) -> Patch:
        """Return the patches of all minibatches as one."""
        merged = merge_patches(
            models.optimizer,
            self.skill.text,
            patches,
            self.run.config.gradient.merge_batch_size,
            workers,
            self.state.meta_skill,
        )
        log.info("%d patches, %d edits after merging", len(patches), len(merged.edits))
        return merged

    def selected(self, models: Assistants, merged: Patch, budget: int | None) -> Patch:
        """Return the edits within the learning rate."""
        ranked = select_edits(models.optimizer, self.skill.text, merged, budget, self.state.meta_skill)
        log.info("learning rate %s: %d of %d edits stay", budget, len(ranked.edits), len(merged.edits))
        return ranked

    def _probed(self) -> frozenset[str]:
        """Return the items of the step that the target is asked about."""
        gradient = self.run.config.gradient
        rollouts = [rollout for part in self.batch.slices for rollout in part]
        seed = f"{self.run.config.train.seed}-probes-{self.moment.step}"
        successes = 0 if gradient.failure_only else gradient.deep_reflect_successes
        return frozenset(probes(rollouts, gradient.deep_reflect_failures, successes, seed))


def step_reflection(run: TrainingRun, moment: Moment) -> StepReflection:
    """Return the questions of a step."""
    return StepReflection(run, moment, run.state_before(moment))


def why_unanswered(run: TrainingRun, moment: Moment) -> str:
    """Return why the run stops after this step: no reflection on it or on the step before was usable; or empty."""
    lost = _lost(run, moment)
    if not lost:
        return ""
    log.warning("%s: no reflection had a usable answer, so nothing was proposed: %s", moment.name, lost)
    before = [one for one in run.timeline if one.kind == "step" and one.step == moment.step - 1]
    if not before or not _lost(run, before[0]):
        return ""
    return f"no reflection on the last two steps had a usable answer from the optimizer model: {lost}"


def _lost(run: TrainingRun, moment: Moment) -> str:
    """Return what was wrong with the answers to a step's reflections if none was usable; else an empty string."""
    made = proposals(run, moment) if moment.kind == "step" else []
    if any(run.store.get_model(proposal.keys.merged_patch, Patch).edits for proposal in made):
        return ""
    stored = [key for proposal in made for key in run.store.list_keys(proposal.keys.reflections)]
    patches = [run.store.get_model(key, Patch) for key in stored]
    usable = any(patch.notes or not patch.fallback for patch in patches)
    return "" if usable or not patches else patches[0].fallback


def _scored_batch(run: TrainingRun, moment: Moment, skill: SkillDocument) -> StepBatch:
    """Return the batch under a skill, as the first task of the step saw it."""
    slices = run.slices(moment)
    items = [item for part in slices for item in part]
    stored = {draw: run.stored(Split.TRAIN, skill, draw, items) for draw in run.batch_draws(moment)}
    scored: dict[str, dict[int, Rollout]] = {}
    for item_id in sorted(ids(items)):
        found = {draw: rollouts[item_id] for draw, rollouts in stored.items() if item_id in rollouts}
        scored[item_id] = {draw: rollout for draw, rollout in found.items() if rollout.score is not None}
    seen = run.store.first_model(run.keys.moment(moment).reflected_items, _seen(scored))
    return StepBatch(
        [[scored[item.id][draw] for item in part for draw in seen.draws_of(item.id)] for part in slices], seen
    )


def _seen(scored: Mapping[str, Mapping[int, Rollout]]) -> ReflectedItems:
    """Return which items have a score in which draws, and how many of them failed."""
    draws = {item_id: tuple(rollouts) for item_id, rollouts in scored.items() if rollouts}
    rollouts = [rollout for of_item in scored.values() for rollout in of_item.values()]
    several = any(of_item != (0,) for of_item in draws.values())
    return ReflectedItems(
        item_ids=tuple(draws), failed=len(by_outcome(rollouts)["failure"]), draws=draws if several else {}
    )


def _asked(run: TrainingRun, models: Assistants, skill: str, minibatch: Minibatch, probed: frozenset[str]) -> FollowUps:
    """Return what the target says about the minibatch's probed items, each about its try with the lowest score."""
    chosen = [tries[0] for tries in minibatch.items if tries[0].trajectory.item_id in probed]
    wanted = questions(models.optimizer, skill, chosen, run.prompt_room)
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
