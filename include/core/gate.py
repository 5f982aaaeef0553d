"""The validation gate (paper section 3.5): a pure function of paired per-item scores."""

import math
from enum import StrEnum

from include.core.config import EvaluationGroup
from include.core.scoring import Evaluation, covers, metric_value
from include.core.types import Value

SAME_MEAN = 1e-12
"""Means that are this close are a tie: far below one token of one item, far above the rounding of fractions."""


class Action(StrEnum):
    """What the gate does with a candidate; an indecisive evaluation neither accepts nor rejects."""

    ACCEPT_NEW_BEST = "accept_new_best"
    ACCEPT = "accept"
    REJECT = "reject"
    INDECISIVE = "indecisive"

    @property
    def accepted(self) -> bool:
        """Whether the candidate becomes the current skill."""
        return self in (Action.ACCEPT_NEW_BEST, Action.ACCEPT)


class PairedTable(Value):
    """Two skills on the items that both have a score for; scores are means of the gate metric over these."""

    wins: int
    losses: int
    ties: int
    score: float
    other_score: float

    @property
    def pairs(self) -> int:
        """Items that both skills have a score for."""
        return self.wins + self.losses + self.ties

    @property
    def better(self) -> bool:
        """Whether the first skill is strictly better; equal fractions that floats round apart are a tie."""
        return self.score - self.other_score > SAME_MEAN


class GateDecision(Value):
    """The verdict and the numbers behind it."""

    action: Action
    reason: str
    metric: str
    coverage: float
    against_current: PairedTable
    against_best: PairedTable


def decide(candidate: Evaluation, current: Evaluation, best: Evaluation, rules: EvaluationGroup) -> GateDecision:
    """Accept only what is strictly better than current, and call best only what is strictly better than best."""
    against_current = paired(candidate, current, rules)
    against_best = paired(candidate, best, rules)
    action, reason = _verdict(candidate, against_current, against_best, rules)
    return GateDecision(
        action=action,
        reason=reason,
        metric=rules.gate_metric,
        coverage=candidate.coverage,
        against_current=against_current,
        against_best=against_best,
    )


def paired(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> PairedTable:
    """Compare on the items that both were scored on, so that a missing item favours neither."""
    pairs = [
        tuple(metric_value(score, rules.gate_metric, rules.gate_mixed_weight) for score in (mine, other.scores[item]))
        for item, mine in sorted(candidate.scores.items())
        if item in other.scores
    ]
    count = len(pairs)
    return PairedTable(
        wins=sum(mine > theirs for mine, theirs in pairs),
        losses=sum(mine < theirs for mine, theirs in pairs),
        ties=sum(mine == theirs for mine, theirs in pairs),
        # fsum: a plain sum depends on the order, and would let a tie win by a rounding error.
        score=math.fsum(mine for mine, _ in pairs) / count if count else 0.0,
        other_score=math.fsum(theirs for _, theirs in pairs) / count if count else 0.0,
    )


def _verdict(
    candidate: Evaluation, against_current: PairedTable, against_best: PairedTable, rules: EvaluationGroup
) -> tuple[Action, str]:
    if not covers(candidate, rules):
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(candidate.failures.items()))
        return Action.INDECISIVE, f"coverage {candidate.coverage:.3f} is below {rules.min_coverage} ({statuses})"
    if not against_current.pairs:
        return Action.INDECISIVE, "no item has a score under both skills"
    score, current = against_current.score, against_current.other_score
    if not against_current.better:
        return Action.REJECT, f"{score:.4f} is not better than current {current:.4f}"
    if against_best.better:
        return Action.ACCEPT_NEW_BEST, f"{score:.4f} is better than best {against_best.other_score:.4f}"
    return Action.ACCEPT, f"{score:.4f} is better than current {current:.4f}, not than best"
