"""The gate policies by name, the evidence that they judge, and their verdicts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from skillopt_airflow.core.groups import sums
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.paired import PairedTable, differences, paired, signs
from skillopt_airflow.core.permutation import sign_flip_test
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Value


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
        """True if the candidate becomes the current skill."""
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
    """A candidate against the current skill."""

    table: PairedTable
    differences: Mapping[str, float]
    """Candidate less current, by item id."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Groups of the items that have one, by id."""


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


def evidence_of(candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> Evidence:
    """Pair two evaluations."""
    return Evidence(
        table=paired(candidate, current, rules),
        differences=differences(candidate, current, rules),
        groups=current.groups | candidate.groups,
    )


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
    """Return the policy that the rules choose."""
    return POLICIES[rules.gate_policy]
