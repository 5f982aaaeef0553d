"""Worlds of two skills and their answers, of which everything is known."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from random import Random

from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.values.types import Status


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
    texts: Callable[[int], Sequence[int]] | None = None
    """Returns each item's text: what the candidate changes about one item, it changes about all items of the text."""
    losses_fail: bool = False
    """The candidate times out on its losses, up to what an evaluation may miss."""
    rival_fails: bool = False
    """The current skill times out on its wins, up to what an evaluation may miss."""


def ten_each(items: int) -> Sequence[int]:
    """Return texts with ten items each."""
    return [place // 10 for place in range(items)]


def zipf(items: int) -> Sequence[int]:
    """Return one text per ten items, whose sizes fall as 1/rank."""
    ranks = range(1, items // 10 + 1)
    ends = list(accumulate(1 / rank for rank in ranks))
    return [bisect(ends, (place + 0.5) / items * ends[-1]) for place in range(items)]


WORLDS: Mapping[str, World] = {
    "coins": World(lambda random: 0.5),
    "coins, an item's draws all alike": World(lambda random: 0.5, fixed=True),
    "mixed: any rate from 0 to 1": World(lambda random: random.random()),
    "a third coins, the rest certain": World(lambda random: random.choice([0.0, 0.5, 1.0])),
    "deterministic target": World(lambda random: random.random(), fixed=True),
    "partial credit": World(lambda random: random.random(), graded=True),
    "ten items a text": World(lambda random: 0.5, texts=ten_each),
    "texts of unequal size (Zipf)": World(lambda random: 0.5, texts=zipf),
    "timeouts among losses": World(lambda random: 0.5, losses_fail=True),
    "timeouts among the current skill's wins": World(lambda random: 0.5, rival_fails=True),
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
        if world.texts is not None:
            sways: defaultdict[int, float] = defaultdict(lambda: random.uniform(-SWAY, SWAY))
            candidate = [chance + sways[text] for chance, text in zip(candidate, world.texts(items), strict=True)]
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
        texts = self.world.texts and self.world.texts(len(mine))
        candidate, current = (evaluation_of(scores, texts) for scores in (mine, theirs))
        lost = [item for item, score in candidate.scores.items() if score.hard < current.scores[item].hard]
        failed = lost[: int(MISSED * len(mine))]
        if self.world.losses_fail:
            candidate = _without(candidate, failed)
        if self.world.rival_fails:
            current = _without(current, failed)
        return candidate, current

    def _score(self, chance: float, draws: int, random: Random) -> float:
        if self.world.credit:
            return chance
        if not self.world.graded:
            return sum(random.random() < chance for _ in range(draws)) / draws
        return sum(float(random.random() ** 0.5) * (random.random() < chance) for _ in range(draws)) / draws


def evaluation_of(scores: Sequence[float], texts: Sequence[int] | None = None) -> Evaluation:
    """Return the evaluation of items with these scores, grouped by their texts."""
    groups = {} if texts is None else {_name(place): str(text) for place, text in enumerate(texts)}
    found = {_name(place): _item_score(score) for place, score in enumerate(scores)}
    return Evaluation.model_construct(scores=found, failures={}, reason=None, cancelled=0, groups=groups)


def _without(evaluation: Evaluation, failed: Sequence[str]) -> Evaluation:
    """Return the evaluation where these items timed out."""
    scores = {item: score for item, score in evaluation.scores.items() if item not in failed}
    failures = {Status.TIMEOUT: len(failed)} if failed else {}
    return evaluation.model_copy(update={"scores": scores, "failures": failures})


@cache
def _name(place: int) -> str:
    return f"item-{place:04d}"


@lru_cache(maxsize=1000)
def _item_score(score: float) -> ItemScore:
    return ItemScore.model_construct(hard=score, soft=score)
