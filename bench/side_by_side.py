"""Steps, calls and time to a score with several candidates of a step, by trainings in the world of known rules."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median_low, stdev
from typing import NamedTuple

from bench import tables
from bench.screen import TEST, TRAIN, TRAIN_ITEMS, VAL, Training
from bench.world_model import World
from skillopt_airflow.core import schedule
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.contenders import Contender, choose
from skillopt_airflow.core.gate import Action, decide
from skillopt_airflow.core.paired import paired
from skillopt_airflow.core.skill import SkillDocument

PROPOSALS = (1, 2, 4)
NOISES = (0.0, 0.1)
SEEDS = range(10)
GOALS = {0.0: 0.65, 0.1: 0.6}
"""The true score that is to be reached, by the noise."""
IN_FLIGHT = (32, 128)
TARGET_SECONDS, OPTIMIZER_SECONDS = 1.0, 5.0
"""Of one call."""
CHAIN = 4
"""Optimizer calls of a step that wait for each other after the analysts': two merges of one kind, the last merge, the
selection."""
HEADER = (
    "noise",
    "goal",
    "proposals",
    "reached by",
    "steps",
    "target's calls",
    *(f"minutes, {calls} in flight" for calls in IN_FLIGHT),
    "true score at the end",
    "difference to 1",
    "calls at the end",
)
NOTE = (
    f"Simulated trainings, {len(SEEDS)} for each row, of the same seeds: {TRAIN} training items in batches of 40, "
    f"{VAL} on the selection split, 4 epochs of 10 steps, default settings but without slow update, with the project's "
    "own functions for all stages, in the world of known rules that the table of the screen describes; `noise` is how "
    "often the target misses what it would get right. The goal is a true score of the best skill, by the rules of the "
    f"world on {TEST} other items. Steps, calls and minutes are those until it is reached, medians of the seeds: a "
    "seed that does not reach it counts as longer than any other, a dash says that half of them do not. Minutes are "
    f"simulated: {TARGET_SECONDS:g} s a call of the target, {OPTIMIZER_SECONDS:g} s a call of the optimizer, as many "
    "calls of the target in flight as the column says and 16 of the optimizer, nothing for containers and tasks. The "
    "difference of the true score at the end is to the row with 1, with its standard error over the seeds."
)


class Reached(NamedTuple):
    """The cost of a training until it reached its goal."""

    steps: int
    calls: int
    seconds: tuple[float, ...]
    """By the calls in flight."""


@dataclass
class SideBySide(Training):
    """A training whose steps make several candidates."""

    goal: float = 1.0
    steps: int = 0
    seconds: tuple[float, ...] = (0.0,) * len(IN_FLIGHT)
    reached: Reached | None = None

    def _step(self, epoch: int, position: int) -> None:
        train = self.config.train
        self.steps += 1
        [batch] = schedule.slices(TRAIN_ITEMS, epoch, position, train)
        made = (self._proposed(batch, self.steps, number) for number in range(1, train.proposals + 1))
        candidates = list({candidate.sha256: candidate for candidate in made if candidate != self.skill}.values())
        evaluated = self._gate_best(candidates) if candidates else 0
        self.calls += len(batch) + evaluated
        self._take_time(len(batch), evaluated)
        if self.reached is None and self.true_score >= self.goal:
            self.reached = Reached(self.steps, self.calls, self.seconds)

    def _gate_best(self, candidates: Sequence[SkillDocument]) -> int:
        """Decide on the best of the candidates; return the calls of their evaluations."""
        rules, current, best = self.config.evaluation, self._val(self.skill), self._val(self.best)
        contenders, ran = [], []
        for number, candidate in enumerate(candidates, start=1):
            table = paired(self._val(candidate), current, rules)
            of_text = {"proposal": number, "sha256": candidate.sha256, "characters": len(candidate.text)}
            scores = {"standing": "measured", "score": table.score, "current": table.other_score}
            contenders.append(Contender.model_validate(of_text | scores))
            ran.append(self._carried_out(self._val(candidate), current))
        for evaluation, _ in ran:
            self._record = self._record.with_scores(evaluation, rules)
        [chosen] = [one.proposal for one in choose(contenders) if one.chosen]
        candidate = candidates[chosen - 1]
        action = decide(self._val(candidate), current, best, rules).action
        self.accepted += action.accepted
        if action.accepted:
            self.skill = candidate
        if action is Action.ACCEPT_NEW_BEST:
            self.best = candidate
        return sum(calls for _, calls in ran)

    def _take_time(self, batch: int, evaluated: int) -> None:
        train, gradient = self.config.train, self.config.gradient
        analysts = max(1, gradient.analyst_workers // train.proposals)
        rounds = math.ceil((math.ceil(batch / gradient.minibatch_size) + 1) / analysts)
        optimizer = OPTIMIZER_SECONDS * (rounds + CHAIN)
        self.seconds = tuple(
            before + optimizer + TARGET_SECONDS * (math.ceil(batch / calls) + math.ceil(evaluated / calls))
            for before, calls in zip(self.seconds, IN_FLIGHT, strict=True)
        )


def trained(seed: int, noise: float, proposals: int) -> SideBySide:
    """Train in the world of a seed."""
    config = TrainConfig.from_layers({"train": {"seed": seed, "proposals": proposals}})
    training = SideBySide(World(seed, noise), config, goal=GOALS[noise])
    training()
    return training


def row(noise: float, proposals: int, found: Sequence[SideBySide], alone: Sequence[SideBySide]) -> Sequence[object]:
    """Return the table's row of trainings with so many proposals, beside those with one."""
    reached = [one.reached for one in found if one.reached is not None]
    never = Reached(sys.maxsize, sys.maxsize, (math.inf,) * len(IN_FLIGHT))
    ends = [*reached, *([never] * (len(found) - len(reached)))]
    half = 2 * len(reached) > len(found)
    took = ["–"] * (2 + len(IN_FLIGHT))
    if half:
        seconds = [median_low(end.seconds[place] for end in ends) for place in range(len(IN_FLIGHT))]
        steps, calls = median_low(end.steps for end in ends), median_low(end.calls for end in ends)
        took = [str(steps), f"{calls:,}", *(f"{one / 60:.1f}" for one in seconds)]
    changes = [one.true_score - other.true_score for one, other in zip(found, alone, strict=True)]
    error = stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
    return (
        *(f"{noise:g}", f"{GOALS[noise]:g}", proposals, f"{len(reached)} of {len(found)}", *took),
        f"{mean(one.true_score for one in found):.3f}",
        "" if found is alone else f"{mean(changes):+.3f} ± {error:.3f}",
        f"{mean(one.calls for one in found):,.0f}",
    )


def rows(noise: float, seeds: Sequence[int] = SEEDS) -> list[Sequence[object]]:
    """Train with each number of proposals on each seed; return the table's rows."""
    found = {number: [trained(seed, noise, number) for seed in seeds] for number in PROPOSALS}
    return [row(noise, number, trainings, found[1]) for number, trainings in found.items()]


def measure() -> None:
    """Simulate and write the table; needs no platform."""
    table = [line for noise in NOISES for line in rows(noise)]
    tables.write("proposals", "Several candidates of a step, side by side", NOTE, HEADER, table)
