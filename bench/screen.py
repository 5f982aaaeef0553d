"""Savings and losses of the screen on a step's own batch, by simulated trainings in the world of known rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev

from bench import tables
from bench.world_model import FEW_EDITS, MANY_EDITS, Economy, World
from local.standin.conversation import Conversation, Turn
from skillopt_airflow.core import schedule
from skillopt_airflow.core.buffer import StepBuffer
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.early_rejection import RunningEvaluation, evaluation_order
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.gate import Action, decide
from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.screening import screened
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.track_record import TrackRecord
from skillopt_airflow.core.types import Rollout, Score, Split, Status, Trajectory
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.optimizer.minibatches import minibatch_seed, minibatches
from skillopt_airflow.optimizer.reflect import ReflectContext, reflect
from skillopt_airflow.optimizer.select import select

ECONOMIES = (MANY_EDITS, FEW_EDITS)
BATCHES = (20, 40, 80)
NOISES = (0.0, 0.1, 0.3)
"""Shares of what the target would get right that it misses, each time on its own."""
SEEDS = range(40)
TRAIN, VAL, TEST = 400, 200, 1400
SEED_SKILL = SkillDocument("# Marks\n\n- Look at a case before its mark is told.\n")
RIGHT, WRONG = Score(hard=1.0, soft=1.0), Score(hard=0.0, soft=0.0)
DRAW = 0
TRAIN_ITEMS, VAL_ITEMS, TEST_ITEMS = (
    [f"{split}-{index}" for index in range(count)]
    for split, count in ((Split.TRAIN, TRAIN), (Split.VAL, VAL), (Split.TEST, TEST))
)
HEADER = (
    "world",
    "batch",
    "noise",
    "calls without",
    "calls with",
    "saved",
    "screened out",
    "lost, that the gate would accept",
    "of these truly better",
    "true score without",
    "true score with",
    "difference",
)
NOTE = (
    f"Simulated trainings, {len(SEEDS)} for each row with the screen and as many without, of the same seeds: {TRAIN} "
    f"training items, {VAL} on the selection split, 4 epochs, default settings but without slow "
    "update, with the project's own functions for all stages. Target and optimizer are those of the world of known "
    "rules: an item is right exactly if the skill has the sentence that it needs, some of the items are a matter "
    "of chance, and `noise` is how often the target misses what it would get right, each time on its own. "
    f"{' '.join(f'With {economy.name}: {economy.description}' for economy in ECONOMIES)} Calls are "
    "those of the target in a training's steps, a mean over the seeds, with early rejection in both. Of the candidates "
    "that were screened out, those are lost that the gate would have accepted by the selection split: so many of all "
    "that it accepted or would have accepted. Some of these are truly better than the skill that they were made from. "
    f"True score: how often the best skill is right on {TEST} other items, by the rules of the world; the difference "
    "with its standard error over the seeds."
)


@dataclass(frozen=True)
class WorldOptimizer:
    """The optimizer of a world, asked as a model is."""

    world: World

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the world's answer."""
        asked = Conversation("world", instructions, (Turn("user", prompt),), (f"{stage}_result",))
        [call] = self.world.reply(asked, 1).calls
        return output_type.model_validate_json(call.arguments)


@dataclass
class Training:
    """A training of a world; what it is counted by."""

    world: World
    config: TrainConfig
    calls: int = 0
    """Of the target, in the steps."""
    accepted: int = 0
    screened_out: int = 0
    lost: int = 0
    """Candidates that were screened out although the selection split would have accepted them."""
    lost_better: int = 0
    """Those of `lost` that are truly better than the skill that they were made from."""
    skill: SkillDocument = SEED_SKILL
    best: SkillDocument = SEED_SKILL
    _scores: dict[str, Evaluation] = field(default_factory=dict)
    """Skills on the selection split, by hash."""
    _record: TrackRecord = field(default_factory=TrackRecord)

    def __call__(self) -> "Training":
        """Train; return itself."""
        train = self.config.train
        for epoch in range(1, train.num_epochs + 1):
            for position in range(1, schedule.steps_in_epoch(TRAIN, train) + 1):
                self._step(epoch, position)
        return self

    @property
    def true_score(self) -> float:
        """Return how often the best skill is right on items that nobody trained on."""
        return self._truth(self.best)

    def _step(self, epoch: int, position: int) -> None:
        train = self.config.train
        step = (epoch - 1) * schedule.steps_in_epoch(TRAIN, train) + position
        [batch] = schedule.slices(TRAIN_ITEMS, epoch, position, train)
        self.calls += len(batch)
        candidate = self._proposed(batch, step)
        if candidate == self.skill:
            return
        passed = True
        if self.config.evaluation.screen == "batch":
            self.calls += len(batch)
            on_batch, before = (self._measured(skill, batch) for skill in (candidate, self.skill))
            passed = screened(candidate.sha256, on_batch, before, self.config.evaluation).passed
        self._gate(candidate, passed)

    def _gate(self, candidate: SkillDocument, passed: bool) -> None:
        """Decide on a candidate; of one that was screened out, only find out what was lost."""
        rules, current, best = self.config.evaluation, self._val(self.skill), self._val(self.best)
        measured = self._val(candidate)
        action = decide(measured, current, best, rules).action
        if not passed:
            self.screened_out += 1
            self.lost += action.accepted
            self.lost_better += action.accepted and self._truth(candidate) > self._truth(self.skill)
            return
        ran, calls = self._carried_out(measured, current)
        self.calls += calls
        self._record = self._record.with_scores(ran, rules)
        self.accepted += action.accepted
        if action.accepted:
            self.skill = candidate
        if action is Action.ACCEPT_NEW_BEST:
            self.best = candidate

    def _carried_out(self, measured: Evaluation, current: Evaluation) -> tuple[Evaluation, int]:
        """Return what counts of an evaluation, looked at whenever all that began has ended, and its calls."""
        rules = self.config.evaluation
        order = evaluation_order(VAL_ITEMS, current, rules, self._record)
        running = RunningEvaluation({}, {}, order, current, rules, self._record)
        while len(running.scores) < VAL:
            running = replace(running, scores={item: measured.scores[item] for item in running.worthwhile()})
            lost = running.lost()
            if lost is not None:
                return lost[0], len(running.scores)
        return measured, VAL

    def _proposed(self, batch: Sequence[str], step: int, proposal: int = 1) -> SkillDocument:
        """Return a candidate that the optimizer makes of a batch under the current skill, by its number."""
        gradient, rules, train = self.config.gradient, self.config.optimizer, self.config.train
        optimizer, text = WorldOptimizer(self.world), self.skill.text
        total = train.num_epochs * schedule.steps_in_epoch(TRAIN, train)
        budget = schedule.edit_budget(step, total, rules)
        context = ReflectContext(skill=text, budget=budget, buffer=StepBuffer(), meta_skill="", rounds=1)
        rollouts = [self._rollout(item) for item in batch]
        seed = minibatch_seed(train, step, proposal)
        cut = minibatches([rollouts], gradient.minibatch_size, seed, gradient.failure_only)
        patches = [reflect(optimizer, context, minibatch, rules) for minibatch in cut]
        merged = aggregate(optimizer, text, patches, gradient.merge_batch_size, 1, "")
        kept = select(optimizer, text, merged, budget, "")
        return apply_edits(self.skill, kept.edits)[0]

    def _rollout(self, item_id: str) -> Rollout:
        score = RIGHT if self.world.right(item_id, self.skill.text, DRAW) else WRONG
        return Rollout(trajectory=Trajectory(item_id=item_id, status=Status.OK), score=score)

    def _measured(self, skill: SkillDocument, items: Sequence[str]) -> Evaluation:
        right = {item: float(self.world.right(item, skill.text, DRAW)) for item in items}
        return Evaluation(scores={item: ItemScore(hard=value, soft=value) for item, value in right.items()})

    def _val(self, skill: SkillDocument) -> Evaluation:
        if skill.sha256 not in self._scores:
            self._scores[skill.sha256] = self._measured(skill, VAL_ITEMS)
        return self._scores[skill.sha256]

    def _truth(self, skill: SkillDocument) -> float:
        return mean(self.world.chance(item, skill.text) for item in TEST_ITEMS)


def trained(seed: int, batch: int, noise: float, screen: str, economy: Economy) -> Training:
    """Train in the world of a seed."""
    layers = {"train": {"batch_size": batch, "seed": seed}, "evaluation": {"screen": screen}}
    return Training(World(seed, noise, economy), TrainConfig.from_layers(layers))()


def row(economy: Economy, batch: int, noise: float, seeds: Sequence[int] = SEEDS) -> Sequence[object]:
    """Train without the screen and with it on each seed; return the table's row."""
    without, with_it = (
        [trained(seed, batch, noise, screen, economy) for seed in seeds] for screen in ("none", "batch")
    )
    calls = [sum(one.calls for one in each) / len(seeds) for each in (without, with_it)]
    lost, accepted = (sum(getattr(one, name) for one in with_it) for name in ("lost", "accepted"))
    changes = [one.true_score - other.true_score for one, other in zip(with_it, without, strict=True)]
    error = stdev(changes) / math.sqrt(len(seeds)) if len(seeds) > 1 else math.nan
    return (
        *(economy.name, batch, f"{noise:g}", *(f"{each:.0f}" for each in calls), f"{1 - calls[1] / calls[0]:.0%}"),
        sum(one.screened_out for one in with_it),
        f"{lost} of {lost + accepted}",
        sum(one.lost_better for one in with_it),
        *(f"{mean(one.true_score for one in each):.3f}" for each in (without, with_it)),
        f"{mean(changes):+.3f} ± {error:.3f}",
    )


def measure() -> None:
    """Simulate and write the table; needs no platform."""
    rows = [row(economy, batch, noise) for economy in ECONOMIES for batch in BATCHES for noise in NOISES]
    tables.write("screen", "A screen on the step's own batch", NOTE, HEADER, rows)
