"""Simulated answers of two skills with known truth."""

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
    """Distribution of answers; without a gain, both skills are equal."""

    chance: Callable[[Random], float]
    """Draws the current skill's probability of a right answer, before a gain."""
    mean: float = 0.5
    """Mean probability."""
    fixed: bool = False
    """Deterministic target: the same answer in every sample."""
    graded: bool = False
    """Right answers have random partial credit."""
    credit: bool = False
    """The credit equals the probability."""
    texts: Callable[[int], Sequence[int]] | None = None
    """Returns the text of each item; the candidate's effect is the same for all items of a text."""
    losses_fail: bool = False
    """The candidate times out on its losses, up to MISSED."""
    rival_fails: bool = False
    """The current skill times out on its wins, up to MISSED."""


def ten_each(items: int) -> Sequence[int]:
    return [place // 10 for place in range(items)]


def zipf(items: int) -> Sequence[int]:
    """Return one text per ten items, with sizes proportional to 1/rank."""
    ranks = range(1, items // 10 + 1)
    ends = list(accumulate(1 / rank for rank in ranks))
    return [bisect(ends, (place + 0.5) / items * ends[-1]) for place in range(items)]


WORLDS: Mapping[str, World] = {
    "coins": World(lambda random: 0.5),
    "coins, an item's samples all alike": World(lambda random: 0.5, fixed=True),
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
"""Maximum share of items that time out."""
SWAY = 0.3
"""Maximum effect of a candidate on a text's items, in both directions."""


@dataclass(frozen=True)
class Contest:
    """Probabilities of right answers by item, for candidate and current skill."""

    world: World
    candidate: Sequence[float]
    current: Sequence[float]

    @classmethod
    def often_a_little(cls, items: int, gain: float, random: Random) -> "Contest":
        """Return a candidate that loses much on one item of ten, and wins a little on the others."""
        won = (gain + 0.1 * 0.5) / 0.9
        candidate = [0.0 if random.random() < 0.1 else 0.5 + won for _ in range(items)]
        return cls(World(lambda random: 0.5, credit=True), candidate, [0.5] * items)

    @classmethod
    def of(cls, world: World, items: int, gain: float, random: Random) -> "Contest":
        """Draw items; the candidate's expected mean is higher by `gain`."""
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
        """Return the candidate's true gain and score."""
        credit = CREDIT if world.graded else 1.0
        return gain * credit, (world.mean * (1 - abs(gain)) + max(0.0, gain)) * credit

    def measured(self, samples: int, random: Random) -> tuple[Evaluation, Evaluation]:
        """Evaluate candidate and current skill on independent samples."""
        mine, theirs = (
            [self._score(chance, samples, random) for chance in each] for each in (self.candidate, self.current)
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

    def _score(self, chance: float, samples: int, random: Random) -> float:
        if self.world.credit:
            return chance
        if not self.world.graded:
            return sum(random.random() < chance for _ in range(samples)) / samples
        return sum(float(random.random() ** 0.5) * (random.random() < chance) for _ in range(samples)) / samples


def evaluation_of(scores: Sequence[float], texts: Sequence[int] | None = None) -> Evaluation:
    groups = {} if texts is None else {_name(place): str(text) for place, text in enumerate(texts)}
    found = {_name(place): _item_score(score) for place, score in enumerate(scores)}
    return Evaluation.model_construct(scores=found, failures={}, reason=None, cancelled=0, groups=groups)


def _without(evaluation: Evaluation, failed: Sequence[str]) -> Evaluation:
    """Return the evaluation with timeouts of these items."""
    scores = {item: score for item, score in evaluation.scores.items() if item not in failed}
    failures = {Status.TIMEOUT: len(failed)} if failed else {}
    return evaluation.model_copy(update={"scores": scores, "failures": failures})


@cache
def _name(place: int) -> str:
    return f"item-{place:04d}"


@lru_cache(maxsize=1000)
def _item_score(score: float) -> ItemScore:
    return ItemScore.model_construct(hard=score, soft=score)
