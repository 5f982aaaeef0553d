"""Two skills compared on the same items, and how sure the comparison is."""

import math
from collections.abc import Collection, Sequence
from operator import itemgetter
from statistics import NormalDist

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.item_scores import Evaluation, metric_value
from skillopt_airflow.core.t_quantile import two_sided_quantile
from skillopt_airflow.core.types import Value

SAME_MEAN = 1e-12
"""Scores that are this close are equal: far below one token of one item, far above the rounding of fractions."""
CONFIDENCE = 0.95
"""Confidence of every interval."""


class PairedTable(Value):
    """Two skills on the items that both have a score for; scores are means of the gate metric over these."""

    wins: int
    losses: int
    ties: int
    score: float
    other_score: float
    delta: float
    """Mean over the items of the first skill's score less the other's."""
    low: float
    """Lower end of delta's 95 % interval; see `paired`."""
    high: float
    """Upper end of delta's 95 % interval."""

    @property
    def pairs(self) -> int:
        """Items that both skills have a score for."""
        return self.wins + self.losses + self.ties

    @property
    def better(self) -> bool:
        """True if the first skill is strictly better; equal fractions that floats round apart are a tie."""
        return self.delta > SAME_MEAN


def paired(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> PairedTable:
    """Compare on the items that both were scored on, so that a missing item favours neither.

    delta's interval is Student's t over the items, cut to [-1, 1]: an item's draws were averaged before, so that
    draws of one item, which are not independent, count as one. It is [-1, 1] with fewer than 2 pairs, and the exact
    one for items that are not like the others where all pairs differ by the same.
    """
    return paired_values([(mine, theirs) for _, mine, theirs in _values(candidate, other, rules)])


def paired_values(values: Sequence[tuple[float, float]]) -> PairedTable:
    """Compare by the gate metric of items, (first, other) of each; see `paired`."""
    changes = [mine - theirs for mine, theirs in values]
    score, other_score = _mean([mine for mine, _ in values]), _mean([theirs for _, theirs in values])
    delta = score - other_score
    low, high = _interval(changes, delta)
    wins, losses = signs(changes)
    return PairedTable(
        wins=wins,
        losses=losses,
        ties=len(changes) - wins - losses,
        score=score,
        other_score=other_score,
        delta=delta,
        low=low,
        high=high,
    )


def _interval(changes: Sequence[float], delta: float) -> tuple[float, float]:
    error = standard_error([[change] for change in changes])
    if error is None:
        return -1.0, 1.0
    if error <= SAME_MEAN:
        # None of n items differs from the rest, so 95 % sure at most this share of all items does (rule of three).
        others = 1.0 - (1.0 - CONFIDENCE) ** (1.0 / len(changes))
        return delta - others * (delta + 1.0), delta + others * (1.0 - delta)
    reach = error * two_sided_quantile(CONFIDENCE, len(changes) - 1)
    return max(-1.0, delta - reach), min(1.0, delta + reach)


def differences(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> dict[str, float]:
    """Return the gate metric of the candidate less the other's by item id, for items that both have a score for."""
    return {item: mine - theirs for item, mine, theirs in _values(candidate, other, rules)}


def signs(changes: Collection[float]) -> tuple[int, int]:
    """Count the wins and the losses among differences; graded scores count by the sign alone."""
    return sum(change > SAME_MEAN for change in changes), sum(change < -SAME_MEAN for change in changes)


def standard_error(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the standard error of the mean of all differences; None for fewer than 2 groups.

    Differences of one group may hang together in any way: it counts as what it adds to the sum (the cluster-robust
    error of Liang and Zeger 1986). In groups of one it is the plain standard error.
    """
    count = len(groups)
    if count < 2:
        return None
    items = sum(map(len, groups))
    mean = math.fsum(change for group in groups for change in group) / items
    deviations = (math.fsum(change - mean for change in group) for group in groups)
    return math.sqrt(math.fsum(deviation**2 for deviation in deviations) * count / (count - 1)) / items


def interval(evaluation: Evaluation, rules: EvaluationGroup) -> tuple[float, float]:
    """Return the 95 % interval of an evaluation's mean gate metric; [0, 1] when no item was scored.

    Wilson's score interval (1927), for graded scores as well: no score in [0, 1] varies more than a 0/1 score of
    the same mean, so it is right for hard and at most too wide for soft, mixed and averaged draws. It stays inside
    [0, 1] and keeps a width where all items agree. An evaluation that was cut short has none: the items that ran
    are no random ones.
    """
    count = len(evaluation.scores)
    if not count or evaluation.cancelled:
        return 0.0, 1.0
    mean = min(1.0, evaluation.gate_mean(rules))
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    shrink = 1 + z * z / count
    centre = (mean + z * z / (2 * count)) / shrink
    reach = z / shrink * math.sqrt(mean * (1 - mean) / count + (z / (2 * count)) ** 2)
    # At a mean of 0 or 1 the end of the interval is the mean itself, but for rounding.
    return max(0.0, min(mean, centre - reach)), min(1.0, max(mean, centre + reach))


def _values(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> list[tuple[str, float, float]]:
    """Return each common item and the gate metric of both, sorted by id."""
    metric, weight = rules.gate_metric, rules.gate_mixed_weight
    return [
        (item, metric_value(score, metric, weight), metric_value(other.scores[item], metric, weight))
        for item, score in sorted(candidate.scores.items(), key=itemgetter(0))
        if item in other.scores
    ]


def _mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
