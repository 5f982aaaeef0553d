"""The gate policies: their evidence, their tests of paired differences, and their verdicts."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pkgutil import resolve_name
from typing import Any

from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup, PolicyName
from skillopt_airflow.core.gate.item_scores import Evaluation, group_values
from skillopt_airflow.core.gate.paired import PairedTable, differences, paired, signs
from skillopt_airflow.core.values.types import Value

FLIPS = 9_999
SEED = 20_260_523
BLOCK = 4_000_000
"""Limit of signs in memory at the same time."""
ROUNDING = 1e-9
"""Relative rounding error of sizes and sums."""


def sign_flip_test(differences: Collection[float]) -> float:
    """Return the one-sided p-value: the probability of a sum at least this large if each difference has a random sign.

    If all differences have the same size, it is the exact sign test (McNemar's in its binomial form). Otherwise it is
    Fisher's permutation test with FLIPS random patterns. If k of their sums reach the observed one, then
    p = (1 + k) / (1 + FLIPS), which keeps its level for any number of patterns (Phipson and Smyth 2010). The patterns
    depend only on the number of differences, so equal differences have equal p-values. 1 without differences.
    """
    import numpy as np

    values = np.array([difference for difference in differences if difference], dtype=np.float64)
    if not values.size:
        return 1.0
    sizes = np.sort(np.abs(values))
    if sizes[-1] - sizes[0] <= ROUNDING * sizes[-1]:
        return float(sign_test((values > 0).sum(), values.size))
    least = values.sum() - ROUNDING * sizes.sum()
    random, as_large = np.random.default_rng(SEED), 0
    rows = max(1, BLOCK // values.size)
    for begin in range(0, FLIPS, rows):
        negative = random.integers(0, 2, (min(rows, FLIPS - begin), values.size), dtype=np.int8)
        as_large += int((sizes.sum() - 2 * (negative @ sizes) >= least).sum())
    return (1 + as_large) / (1 + FLIPS)


def sign_test(wins: Any, outcomes: Any) -> Any:
    """Return the probability of at least `wins` wins if each outcome is a fair coin toss; for numbers or arrays."""
    from scipy.special import bdtrc

    return bdtrc(wins - 1.0, outcomes, 0.5)


class Action(StrEnum):
    """The gate's action on a candidate; `indecisive` and `underpowered` neither accept nor reject it."""

    ACCEPT_NEW_BEST = "accept_new_best"
    ACCEPT = "accept"
    REJECT = "reject"
    INDECISIVE = "indecisive"
    """Too many scores are missing; repeat the evaluation."""
    UNDERPOWERED = "underpowered"
    """The two skills differ on too few items for the policy's test to accept."""

    @property
    def accepted(self) -> bool:
        return self in (Action.ACCEPT_NEW_BEST, Action.ACCEPT)


class Verdict(Value):
    """A policy's action on a candidate."""

    action: Action
    reason: str = ""
    """The decisive finding beyond the means; may be empty."""
    statistic: float | None = None
    """The p-value of exact_paired."""


@dataclass(frozen=True)
class Evidence:
    """A comparison of a candidate with the current skill, by the gate metric of these rules."""

    candidate: Evaluation
    current: Evaluation
    rules: EvaluationGroup

    @cached_property
    def table(self) -> PairedTable:
        return paired(self.candidate, self.current, self.rules)

    @cached_property
    def differences(self) -> Mapping[str, float]:
        return differences(self.candidate, self.current, self.rules)

    @property
    def groups(self) -> Mapping[str, str]:
        return self.current.groups | self.candidate.groups


@dataclass(frozen=True)
class Policy:
    """A rule for accepting candidates; its parameters are knobs of EvaluationGroup."""

    judge: Callable[[Evidence, EvaluationGroup], Verdict]
    """Decides on a candidate whose mean is strictly better."""
    fewest_items: Callable[[EvaluationGroup], int] = lambda rules: 1
    """Minimum number of items, or groups of items, at which a candidate that wins all of them is accepted."""
    has_level: bool = False
    """True if the false positive rate is at most gate_alpha. Then an acceptance must also hold if items with only one
    score count against the candidate."""


def _exact_paired(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Require p <= gate_alpha in an exact one-sided paired test of the mean difference.

    For single hard scores it is McNemar's test (a sign test); see `sign_flip_test` for others. A group has one sign.
    """
    observed = [math.fsum(values) for values in group_values(evidence.differences, evidence.groups)]
    wins, losses = signs(observed)
    what = f"{wins} wins and {losses} losses{' of groups' if len(observed) < len(evidence.differences) else ''}"
    fewest = fewest_wins(rules)
    if wins + losses < fewest:
        reason = f"{what} are fewer than the {fewest} differences that gate_alpha = {rules.gate_alpha:g} requires"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    p = sign_flip_test(observed)
    action, relation = (Action.ACCEPT, "at most") if p <= rules.gate_alpha else (Action.REJECT, "above")
    return Verdict(action=action, reason=f"p = {p:.4g} of {what} is {relation} {rules.gate_alpha:g}", statistic=p)


def fewest_wins(rules: EvaluationGroup) -> int:
    """Return the fewest wins without a loss that pass: only one of 2^n sign patterns has n wins."""
    return math.ceil(-math.log2(rules.gate_alpha))


# The paper's policy. On small noisy splits, it accepts 30% to 45% of the candidates that change nothing.
STRICT = Policy(judge=lambda evidence, rules: Verdict(action=Action.ACCEPT))
EXACT_PAIRED = Policy(judge=_exact_paired, fewest_items=fewest_wins, has_level=True)


def policy_of(name: PolicyName) -> Policy:
    policy: Policy = resolve_name(GATE_POLICIES[name])
    return policy
