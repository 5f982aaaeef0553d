"""The gate policies by name: the evidence that they judge, their tests of paired differences, and their verdicts."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, sums
from skillopt_airflow.core.gate.paired import PairedTable, differences, paired, signs
from skillopt_airflow.core.values.types import Value

FLIPS = 9_999
"""Random patterns of signs."""
SEED = 20_260_523
BLOCK = 4_000_000
"""Signs that are held in memory at the same time."""
ROUNDING = 1e-9
"""Relative difference of sizes, and of sums, that floats may round apart."""


def sign_flip_test(differences: Collection[float]) -> float:
    """Return the one-sided p-value: the chance of so large a sum if each difference has a random sign.

    Where all differences have one size it is the exact sign test (McNemar's in its binomial form). Else it is Fisher's
    permutation test with FLIPS random patterns, p = (1 + k) / (1 + FLIPS) for k sums as large as the observed one,
    which keeps its level for any number of patterns (Phipson and Smyth 2010). The patterns depend on nothing but the
    number of differences, so equal differences have equal p-values. 1 without a difference.
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
    """Return the chance of at least so many wins among the outcomes if each is a fair coin; of numbers or arrays."""
    from scipy.special import bdtrc

    return bdtrc(wins - 1.0, outcomes, 0.5)


class Action(StrEnum):
    """The gate's action on a candidate; indecisive and underpowered neither accept nor reject it."""

    ACCEPT_NEW_BEST = "accept_new_best"
    ACCEPT = "accept"
    REJECT = "reject"
    INDECISIVE = "indecisive"
    """Too much is missing: the same evaluation is worth another try."""
    UNDERPOWERED = "underpowered"
    """Nothing is missing, but the two skills differ on too few items for the policy's test to say yes."""

    @property
    def accepted(self) -> bool:
        return self in (Action.ACCEPT_NEW_BEST, Action.ACCEPT)


class Verdict(Value):
    """A policy's answer: accept, reject, indecisive or underpowered."""

    action: Action
    reason: str = ""
    """The finding that decided beyond the means, or empty."""
    statistic: float | None = None
    """The p-value of exact_paired."""


@dataclass(frozen=True)
class Evidence:
    """A candidate against the current skill, by the gate metric of these rules."""

    candidate: Evaluation
    current: Evaluation
    rules: EvaluationGroup

    @cached_property
    def table(self) -> PairedTable:
        return paired(self.candidate, self.current, self.rules)

    @cached_property
    def differences(self) -> Mapping[str, float]:
        """Candidate less current, by item id."""
        return differences(self.candidate, self.current, self.rules)

    @property
    def groups(self) -> Mapping[str, str]:
        """Groups of the items that have one, by id."""
        return self.current.groups | self.candidate.groups


@dataclass(frozen=True)
class Policy:
    """A rule for accepting candidates; its parameters are knobs of EvaluationGroup."""

    judge: Callable[[Evidence, EvaluationGroup], Verdict]
    """Judges a candidate whose mean is strictly better; the reason says what was found beyond the means."""
    fewest_items: Callable[[EvaluationGroup], int] = lambda rules: 1
    """Number of items, or of groups of items, below which not even a candidate that wins all of them is accepted."""
    has_level: bool = False
    """True if it accepts at most a share gate_alpha of the candidates that change nothing. Then an acceptance must
    also hold with the items that only one skill has a score for counted against the candidate."""


# The paper's. On small noisy splits, 30 to 45 % of the candidates that change nothing pass.
STRICT = Policy(judge=lambda evidence, rules: Verdict(action=Action.ACCEPT))


def _exact_paired(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Require an exact one-sided paired test of the mean difference to reach gate_alpha.

    With single hard scores it is McNemar's test, a sign test; see `sign_flip_test` for all other scores. Differences of
    a group have one sign together.
    """
    observed = sums(evidence.differences, evidence.groups)
    wins, losses = signs(observed)
    what = f"{wins} wins and {losses} losses{' of groups' if len(observed) < len(evidence.differences) else ''}"
    fewest = fewest_wins(rules)
    if wins + losses < fewest:
        reason = f"{what} are fewer than the {fewest} differences that gate_alpha = {rules.gate_alpha:g} takes"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    p = sign_flip_test(observed)
    accepted = p <= rules.gate_alpha
    relation = "at most" if accepted else "above"
    action = Action.ACCEPT if accepted else Action.REJECT
    return Verdict(action=action, reason=f"p = {p:.4g} of {what} is {relation} {rules.gate_alpha:g}", statistic=p)


def fewest_wins(rules: EvaluationGroup) -> int:
    """Return the fewest wins without a loss that pass: of n there are 2^n patterns of signs, and one is all wins."""
    return math.ceil(-math.log2(rules.gate_alpha))


EXACT_PAIRED = Policy(judge=_exact_paired, fewest_items=fewest_wins, has_level=True)


POLICIES: Mapping[str, Policy] = {"strict": STRICT, "exact_paired": EXACT_PAIRED}


def policy_of(rules: EvaluationGroup) -> Policy:
    return POLICIES[rules.gate_policy]
