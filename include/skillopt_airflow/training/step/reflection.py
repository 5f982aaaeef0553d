"""A step's reflection: its rollouts, and the questions to the optimizer that make edits of them."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from skillopt_airflow.core.run.state import ReflectedItems, RunState
from skillopt_airflow.core.run.timeline import Moment, edit_budget
from skillopt_airflow.core.values.pictures import Pictures, PictureSizes, sizes
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Patch, Rollout, Score, Split
from skillopt_airflow.optimizer.answers import join_fallbacks
from skillopt_airflow.optimizer.deep_reflect import FollowUps, follow_ups, probes, questions
from skillopt_airflow.optimizer.reflect import Minibatch, ReflectContext, by_outcome, minibatches, reflect
from skillopt_airflow.optimizer.transcripts import Exhibits
from skillopt_airflow.training.rollouts.rollout_plan import ids
from skillopt_airflow.training.run.run import TrainingRun, contents, pictures, shown_items
from skillopt_airflow.training.run.stage_models import Assistants

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepInput:
    """Everything that a step reflects on, but for pictures."""

    state: RunState
    """The state that the step starts from, with the buffer that the optimizer is shown."""
    skill: SkillDocument
    slices: Sequence[Sequence[Rollout]]
    """The rollouts that have a score, by slice; all tries of an item are adjacent."""

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for part in self.slices for rollout in part]

    @property
    def scores(self) -> list[Score]:
        return [rollout.score for rollout in self.rollouts if rollout.score is not None]


def load_step(run: TrainingRun, moment: Moment) -> StepInput:
    """Read what a step reflects on; a task that is tried again sees the rollouts that the first one saw."""
    state = run.state_before(moment)
    skill, slices = run.skill(state.current.version), run.slices(moment)
    items = [item for part in slices for item in part]
    stored = {draw: run.stored(Split.TRAIN, skill, draw, items) for draw in run.batch_draws(moment)}
    scored: dict[str, dict[int, Rollout]] = {}
    for item_id in sorted(ids(items)):
        found = {draw: rollouts[item_id] for draw, rollouts in stored.items() if item_id in rollouts}
        scored[item_id] = {draw: rollout for draw, rollout in found.items() if rollout.score is not None}
    seen = run.store.first_model(run.keys.moment(moment).reflected_items, _seen(scored))
    kept = [[scored[item.id][draw] for item in part for draw in seen.draws_of(item.id)] for part in slices]
    return StepInput(state, skill, kept)


def reflected(
    run: TrainingRun, moment: Moment, step: StepInput, models: Assistants, workers: int
) -> list[tuple[Minibatch, Patch]]:
    """Return what the optimizer proposes after each minibatch, with `workers` calls at the same time."""
    gradient, optimizer = run.config.gradient, run.config.optimizer
    limited = edit_budget(moment.step, run.record.total_steps, optimizer) is not None
    context = ReflectContext(
        skill=step.skill.text,
        # The schedule limits what is selected, not what is proposed.
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
        asked = _asked(run, models, context.skill, minibatch, probed)
        exhibits = Exhibits(asked.by_item, *_pictures(run, minibatch))
        patch = reflect(models.optimizer, context, minibatch, optimizer, exhibits)
        patch = patch.model_copy(update={"fallback": join_fallbacks(asked.fallback, patch.fallback)})
        log.info("%s: %d edits, %d patterns", minibatch.name, len(patch.edits), len(patch.failure_patterns))
        return minibatch, patch

    cut = minibatches(step.slices, gradient.minibatch_size, f"{seed}-step-{moment.step}", gradient.failure_only)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, cut))


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
    return answered.model_copy(update={"fallback": join_fallbacks(wanted.fallback, answered.fallback)})


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
