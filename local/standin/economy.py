"""The stand-in's world: an item is answered correctly exactly if the skill has the rule that the item needs.

The item's id determines its rule. Most items need one rule; the first rules have more items than the last. Some items
are right unless the skill has a harmful sentence, some are random, and some are never right. Answers are a pure
function of seed, item, skill, and sample.
"""

import hashlib
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

Option = TypeVar("Option")


def fraction(*parts: str) -> float:
    """Return a number in [0, 1) that is a function of the parts."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def pick(options: Sequence[Option], *parts: str) -> Option:
    return options[int(fraction(*parts) * len(options))]


RULES = (
    "Name what is asked for before you look for it.",
    "Check the result against every condition of the task.",
    "Give the result alone, in the form that the task asks for.",
    "Rely on what is given, not on what you remember.",
    "Look at everything that is given before you decide.",
    "Copy names and numbers exactly as they are written.",
    "Bring all quantities to one unit before you compare them.",
    "Work in small steps, and check each of them.",
    "Watch for words such as not, except and unless.",
    "Where sources differ, follow the most recent one.",
    "Count twice where the result is a number.",
    "Say what speaks against the second best result.",
    "Answer the last question that is asked, not the first.",
    "Keep the order in which things are listed.",
    "Read dates with the day before the month.",
    "Prefer a full name to a part of it.",
    "Treat an empty field as unknown, not as zero.",
    "Search again with other words if nothing fits.",
    "Read headings and notes before the text below them.",
    "Keep all digits until the last step.",
    "Test the result on the smallest case.",
    "Undo a change that makes something else worse.",
    "Stop as soon as the task is done.",
    "Tell what is shown from what is meant.",
)
"""Sentences that items need in the skill."""
HARMFUL = (
    "Go with the first result that comes to mind.",
    "Choose the longest result when in doubt.",
    "Round every number to a whole one.",
    "Trust your memory over what is given.",
    "Leave out what looks unimportant.",
    "Never change a result after a check.",
)
"""Sentences that break items that need no rule."""
USELESS = "Take as much care over case {number} as over any other."
"""A sentence without effect, in NUMBERS variants."""
NUMBERS = 10_000
RIGHT_BY_CHANCE = 0.5


@dataclass(frozen=True)
class Economy:
    """The rules to learn, and how well the optimizer finds them."""

    rules: int
    """Number of RULES in use."""
    needs_rule: float
    needs_nothing: float
    chance: float
    """Shares of items; the rest is never right."""
    insight: float
    """Probability that the optimizer finds the rule behind failures."""
    slip: float
    """Probability of an additional harmful or useless proposal; a reflection that finds no rule always makes one."""
    misled: float
    """Share of harmful ones among these."""


DEMO = Economy(rules=6, needs_rule=0.6, needs_nothing=0.25, chance=0.08, insight=0.6, slip=0.35, misled=0.5)
"""A short training learns something, with some harmful edits."""


@dataclass(frozen=True)
class Nature:
    """The conditions for a right answer to an item."""

    rule: str = ""
    """Sentence that the skill must have."""
    harmful: str = ""
    """Sentence that the skill must not have."""
    chance: float = 1.0
    """Probability of a right answer with such a skill."""


@dataclass(frozen=True)
class World:
    seed: int = 42
    noise: float = 0.0
    """Probability that the target misses an item that it would get right, independent per sample."""
    economy: Economy = DEMO

    def nature(self, item_id: str) -> Nature:
        place, shares = self.fraction(item_id, "nature"), self.economy
        if place < shares.needs_rule:
            return Nature(rule=_weighted(place / shares.needs_rule, RULES[: shares.rules]))
        if place < shares.needs_rule + shares.needs_nothing:
            return Nature(harmful=pick(HARMFUL, str(self.seed), item_id, "harm"))
        by_chance = place < shares.needs_rule + shares.needs_nothing + shares.chance
        return Nature(chance=RIGHT_BY_CHANCE if by_chance else 0.0)

    def right(self, item_id: str, skill: str, sample: int = 1) -> bool:
        return self.fraction(item_id, skill, str(sample), "answer") < self.chance(item_id, skill)

    def chance(self, item_id: str, skill: str) -> float:
        """Return the probability that the target is right."""
        nature = self.nature(item_id)
        if nature.rule not in skill or (nature.harmful and nature.harmful in skill):
            return 0.0
        return nature.chance * (1 - self.noise)

    def fraction(self, *parts: str) -> float:
        return fraction(str(self.seed), *parts)


def _weighted(share: float, rules: Sequence[str]) -> str:
    ends = list(accumulate(1 / (place + 2) for place in range(len(rules))))
    return rules[min(bisect(ends, share * ends[-1]), len(rules) - 1)]
