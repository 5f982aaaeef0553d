"""Worlds of two skills and their answers, of which everything is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random

from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.types import Status


@dataclass(frozen=True)
class World:
    """The way items are answered; without a gain both skills answer alike."""

    chance: Callable[[Random], float]
    """Draws the chance that the current skill answers an item right, before there is a gain."""
    mean: float = 0.5
    """Mean of these chances."""
    fixed: bool = False
    """The target is deterministic: a skill's answer to an item is the same in every draw."""
    graded: bool = False
    """A right answer has partial credit, as it comes."""
    credit: bool = False
    """An answer has exactly so much credit as its chance."""
    group: int = 1
    """Items that share a text: what the candidate changes about one, it changes about all of them."""
    losses_fail: bool = False
    """Of the candidate's losses as many time out as an evaluation may miss."""


WORLDS: Mapping[str, World] = {
    "coins": World(lambda random: 0.5),
    "mixed: any rate from 0 to 1": World(lambda random: random.random()),
    "a third coins, the rest certain": World(lambda random: random.choice([0.0, 0.5, 1.0])),
    "deterministic target": World(lambda random: random.random(), fixed=True),
    "partial credit": World(lambda random: random.random(), graded=True),
    "ten items a text": World(lambda random: 0.5, group=10),
    "timeouts among losses": World(lambda random: 0.5, losses_fail=True),
    "all wrong": World(lambda random: 0.0, mean=0.0),
    "nearly all right": World(lambda random: 0.95, mean=0.95),
}
CREDIT = 2 / 3
"""Mean partial credit of a right answer."""
MISSED = 0.05
"""Share of the items that may time out."""
SWAY = 0.3
"""Most that a candidate changes the chance of a text's items, either way."""


@dataclass(frozen=True)
class Contest:
    """A candidate and the current skill on drawn items: chances by item."""

    world: World
    candidate: Sequence[float]
    current: Sequence[float]

    @classmethod
    def often_a_little(cls, items: int, gain: float, random: Random) -> "Contest":
        """Return a candidate that loses half of the credit on one item of ten, and wins so much on the others."""
        won = (gain + 0.1 * 0.5) / 0.9
        candidate = [0.0 if random.random() < 0.1 else 0.5 + won for _ in range(items)]
        return cls(World(lambda random: 0.5, credit=True), candidate, [0.5] * items)

    @classmethod
    def of(cls, world: World, items: int, gain: float, random: Random) -> "Contest":
        """Draw the items; the candidate's mean is higher by `gain` in expectation."""
        base = [world.chance(random) * (1 - abs(gain)) for _ in range(items)]
        candidate = [chance + max(0.0, gain) for chance in base]
        current = [chance + max(0.0, -gain) for chance in base]
        if world.group > 1:
            sways = [random.uniform(-SWAY, SWAY) for _ in range(0, items, world.group)]
            candidate = [chance + sways[place // world.group] for place, chance in enumerate(candidate)]
        if world.fixed:
            candidate, current = ([float(random.random() < chance) for chance in each] for each in (candidate, current))
        return cls(world, candidate, current)

    @staticmethod
    def truth(world: World, gain: float) -> tuple[float, float]:
        """Return the candidate's gain and its score, over all items that there could be."""
        credit = CREDIT if world.graded else 1.0
        return gain * credit, (world.mean * (1 - abs(gain)) + max(0.0, gain)) * credit

    def measured(self, draws: int, random: Random) -> tuple[Evaluation, Evaluation]:
        """Return the evaluations of candidate and current skill, each on its own draws."""
        mine, theirs = (
            [self._score(chance, draws, random) for chance in each] for each in (self.candidate, self.current)
        )
        candidate, current = (evaluation_of(scores, self.world.group) for scores in (mine, theirs))
        if not self.world.losses_fail:
            return candidate, current
        lost = [item for item, score in candidate.scores.items() if score.hard < current.scores[item].hard]
        failed = lost[: int(MISSED * len(mine))]
        scores = {item: score for item, score in candidate.scores.items() if item not in failed}
        failures = {Status.TIMEOUT: len(failed)} if failed else {}
        return candidate.model_copy(update={"scores": scores, "failures": failures}), current

    def _score(self, chance: float, draws: int, random: Random) -> float:
        if self.world.credit:
            return chance
        if not self.world.graded:
            return sum(random.random() < chance for _ in range(draws)) / draws
        return sum(float(random.random() ** 0.5) * (random.random() < chance) for _ in range(draws)) / draws


def evaluation_of(scores: Sequence[float], group: int = 1) -> Evaluation:
    """Return the evaluation of items with these scores, so many in a group."""
    groups = {_name(place): f"{place // group}" for place in range(len(scores))} if group > 1 else {}
    found = {_name(place): _item_score(score) for place, score in enumerate(scores)}
    return Evaluation.model_construct(scores=found, failures={}, reason=None, cancelled=0, groups=groups)


@cache
def _name(place: int) -> str:
    return f"item-{place:04d}"


@lru_cache(maxsize=1000)
def _item_score(score: float) -> ItemScore:
    return ItemScore.model_construct(hard=score, soft=score)
