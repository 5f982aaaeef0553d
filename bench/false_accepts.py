"""The rate at which each gate policy accepts a candidate that changes nothing, by simulation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random

from bench import tables
from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.gate import judge
from skillopt_airflow.core.gate_policies import POLICIES
from skillopt_airflow.core.gate_policies.policy import Evidence, FreshDraws, evidence_of
from skillopt_airflow.core.item_scores import Evaluation, ItemScore

SPLITS: Mapping[str, Callable[[Random], float]] = {
    "every item a coin": lambda random: 0.5,
    "any rate from 0 to 1": lambda random: random.random(),
    "a third coins, the rest certain": lambda random: random.choice([0.0, 0.5, 1.0]),
}
"""Probability that the target answers an item right, under both skills."""
SIZES = (17, 40, 200)
TRIALS = 20_000
PROTECTED = 5
"""Items on which no_regression allows no loss."""
SEED = 42
HEADER = ("items", "how likely an item is right", *POLICIES)
NOTE = (
    f"Share of candidates that are accepted although they change nothing: candidate and current answer each item "
    f"right with the same chance, independently. {TRIALS:,} candidates a cell, single draws, default settings (alpha "
    f"0.05, 2 standard errors); no_regression protects {PROTECTED} items; confirm draws the items that differ again."
)
SCORES = (ItemScore(hard=0.0, soft=0.0), ItemScore(hard=1.0, soft=1.0))
WIN, LOSS, TIE = (True, False), (False, True), (True, True)
IDS = tuple(f"item-{index:04d}" for index in range(max(SIZES)))
RULES = {
    name: EvaluationGroup.model_validate({"gate_policy": name, "gate_protected_items": IDS[:PROTECTED]})
    for name in POLICIES
}


def rates(size: int, split: str, trials: int = TRIALS) -> dict[str, float]:
    """Return the share of do-nothing candidates that each policy accepts on `size` items of a kind in SPLITS."""
    random, chance = Random(f"{SEED}, {size} items, {split}"), SPLITS[split]  # noqa: S311
    # A decision hangs on few counts; judging each combination once makes thousands of trials cheap.
    judged = cache(_judged)
    accepted: Counter[str] = Counter()
    for _ in range(trials):
        chances = [chance(random) for _ in range(size)]
        outcomes = _outcomes(random, chances)
        protected_loss = LOSS in outcomes[:PROTECTED]
        evidence, accepting = judged(size, outcomes.count(WIN), outcomes.count(LOSS), protected_loss)
        accepted.update(accepting)
        fresh = _outcomes(random, [p for p, (mine, theirs) in zip(chances, outcomes, strict=True) if mine != theirs])
        accepted["confirm"] += _confirms(evidence, fresh)
    return {name: accepted[name] / trials for name in POLICIES}


def table(trials: int = TRIALS) -> list[Sequence[object]]:
    """Return a row for each size and kind of split."""
    return [
        (size, split, *(f"{rate:.3f}" for rate in rates(size, split, trials).values()))
        for size in SIZES
        for split in SPLITS
    ]


def measure() -> None:
    """Simulate and write the table; needs no platform."""
    tables.write("false_accepts", "Candidates that change nothing, and the gate", NOTE, HEADER, table())


def _outcomes(random: Random, chances: Sequence[float]) -> list[tuple[bool, bool]]:
    """Return whether the candidate and the current skill are right, for each item."""
    return [(random.random() < chance, random.random() < chance) for chance in chances]


def _judged(size: int, wins: int, losses: int, protected_loss: bool) -> tuple[Evidence, tuple[str, ...]]:
    """Return the evidence of wins and losses, and the policies that accept it; confirm wants fresh draws first."""
    outcomes = [LOSS] * losses + [WIN] * wins + [TIE] * (size - wins - losses)
    if not protected_loss:
        outcomes.reverse()
    candidate, current = (
        Evaluation(scores={item: SCORES[answer] for item, answer in zip(IDS, answers, strict=False)})
        for answers in zip(*outcomes, strict=True)
    )
    evidence = evidence_of(candidate, current, RULES["paper"])
    return evidence, tuple(name for name, rules in RULES.items() if judge(evidence, rules).action.accepted)


def _confirms(evidence: Evidence, outcomes: Sequence[tuple[bool, bool]]) -> bool:
    fresh = FreshDraws({IDS[index]: mine - theirs for index, (mine, theirs) in enumerate(outcomes)}, coverage=1.0)
    return judge(replace(evidence, fresh=fresh), RULES["confirm"]).action.accepted
