"""Paired comparison of two skills, with 95% confidence intervals of the difference and of each score.

A group of items is one observation. If groups have several items, the degrees of freedom are the effective number of
groups, (sum m)^2 / sum m^2 of their sizes m, minus 1. With fewer than three effective groups there is no interval.

Two pseudo-groups widen the intervals (Agresti and Coull 1998; Bonett and Price 2012, for paired outcomes). Without
them, the coverage is below 87% if few of 17 items differ, or all are right. `python -m bench truth` measures it.
"""

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist, fmean

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, gate_value, group_values
from skillopt_airflow.core.values.types import Value

CONFIDENCE = 0.95
NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
PSEUDO_GROUPS = 2
MIN_GROUPS = 3.0
"""Minimum of effective groups for an interval."""
NEGLIGIBLE = 1e-12
"""Differences below this count as zero (rounding error)."""

Groups = Sequence[Sequence[float]]


def difference_interval(groups: Groups) -> tuple[float, float]:
    """Return the interval of the mean of differences between -1 and 1; [-1, 1] if there is none.

    A group counts as its sum. The pseudo-groups have opposite signs and the usual size, which is the root mean square
    of the nonzero sums. For n independent items with differences -1, 0 and 1 it is Bonett and Price's interval with the
    sample variance. That makes it wider by a factor of sqrt((n + 2) / (n + 1)).
    """
    if len(groups) < 2 or has_too_few_groups(groups):
        return -1.0, 1.0
    sums, size = [math.fsum(group) for group in groups], _size(groups)
    squares = [total**2 for total in sums if abs(total) > NEGLIGIBLE]
    usual = math.sqrt(math.fsum(squares) / len(squares)) if squares else size
    items = (len(groups) + PSEUDO_GROUPS) * size
    mean = math.fsum(sums) / items
    deviations = [
        *(total - mean * len(group) for total, group in zip(sums, groups, strict=True)),
        usual - mean * size,
        -usual - mean * size,
    ]
    count = len(deviations)
    error = math.sqrt(math.fsum(deviation**2 for deviation in deviations) * count / (count - 1)) / items
    reach, seen = _quantile(groups) * error, math.fsum(sums) / (len(groups) * size)
    return max(-1.0, min(seen, mean - reach)), min(1.0, max(seen, mean + reach))


def score_interval(groups: Groups) -> tuple[float, float]:
    """Return the interval of the mean of scores between 0 and 1; [0, 1] if there is none.

    It is Wilson's score interval (1927) for the number of 0/1 scores with the same variance: means of samples and
    partial credit vary less, correlated groups more. The pseudo-groups vary halfway between independent and equal 0/1
    scores. It stays inside [0, 1], and has a width if all items agree. For independent 0/1 scores it's Wilson's own.
    """
    if not groups or has_too_few_groups(groups):
        return 0.0, 1.0
    size, count = _size(groups), len(groups)
    items = count * size
    mean = min(1.0, math.fsum(score for group in groups for score in group) / items)
    binary, alike = mean * (1 - mean), float(count)
    if binary > NEGLIGIBLE:
        deviations = (math.fsum(score - mean for score in group) for group in groups)
        unseen = PSEUDO_GROUPS * binary * size**1.5
        spread = (math.fsum(deviation**2 for deviation in deviations) + unseen) / (count - 1 + PSEUDO_GROUPS)
        alike = max(alike, binary * items**2 / (count * spread))
    z = _quantile(groups)
    shrink = 1 + z * z / alike
    center = (mean + z * z / (2 * alike)) / shrink
    reach = z / shrink * math.sqrt(binary / alike + (z / (2 * alike)) ** 2)
    # At a mean of 0 or 1 one end equals the mean, except for rounding.
    return max(0.0, min(mean, center - reach)), min(1.0, max(mean, center + reach))


def _size(groups: Groups) -> float:
    return sum(map(len, groups)) / len(groups)


def has_too_few_groups(groups: Groups) -> bool:
    return _grouped(groups) and effective(groups) < MIN_GROUPS


def effective(groups: Groups) -> float:
    return sum(map(len, groups)) ** 2 / sum(len(group) ** 2 for group in groups)


def _grouped(groups: Groups) -> bool:
    return any(len(group) > 1 for group in groups)


def _quantile(groups: Groups) -> float:
    """Return Student's t for groups, which may be few, and the normal quantile for independent items."""
    if not _grouped(groups):
        return NORMAL
    from scipy.special import stdtrit

    return float(stdtrit(effective(groups) - 1, (1 + CONFIDENCE) / 2))


SAME_MEAN = 1e-12
"""Scores with a smaller difference are equal. It is far below one token of one item, and far above rounding errors."""


class PairedTable(Value):
    """Two skills on the items with a score under both; scores are means of the gate metric over these items."""

    wins: int
    losses: int
    ties: int
    score: float
    other_score: float
    delta: float
    """Mean difference: the first skill's score minus the other's."""
    low: float
    """Lower end of delta's 95% confidence interval; see `paired`."""
    high: float
    groups: int | None = None
    """Number of the items' groups; None if the items are independent."""

    @property
    def pairs(self) -> int:
        return self.wins + self.losses + self.ties

    @property
    def better(self) -> bool:
        """True if the first skill is strictly better; rounding errors count as ties."""
        return self.delta > SAME_MEAN

    @property
    def worse(self) -> bool:
        return self.delta < -SAME_MEAN


def paired(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> PairedTable:
    """Compare on the items with a score under both, so missing items favor neither.

    For delta's interval, an item's averaged samples are one observation, and so are the items of a group.
    """
    both, groups = sorted(candidate.scores.keys() & other.scores.keys()), other.groups | candidate.groups
    values = [(gate_value(candidate.scores[item], rules), gate_value(other.scores[item], rules)) for item in both]
    return paired_values(values, [groups.get(item, "") for item in both])


def paired_values(values: Sequence[tuple[float, float]], groups: Sequence[str] = ()) -> PairedTable:
    """Like `paired`, for pairs (first, other) of gate metrics; items without a group (or "") are independent."""
    changes = {str(place): mine - theirs for place, (mine, theirs) in enumerate(values)}
    named = {str(place): group for place, group in enumerate(groups) if group}
    score, other_score = map(fmean, zip(*values, strict=True)) if values else (0.0, 0.0)
    delta, observed = score - other_score, group_values(changes, named)
    low, high = difference_interval(observed)
    wins, losses = signs(changes.values())
    return PairedTable(
        wins=wins,
        losses=losses,
        ties=len(changes) - wins - losses,
        score=score,
        other_score=other_score,
        delta=delta,
        # delta is a difference of means, and the interval is of the mean difference: rounding may separate them.
        low=min(low, delta),
        high=max(high, delta),
        groups=len(observed) if named else None,
    )


def differences(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> dict[str, float]:
    """Return the differences of the gate metric, candidate minus other, by item id for items with both scores."""
    both = sorted(candidate.scores.keys() & other.scores.keys())
    return {item: gate_value(candidate.scores[item], rules) - gate_value(other.scores[item], rules) for item in both}


def signs(changes: Collection[float]) -> tuple[int, int]:
    """Count wins and losses by the sign of the differences."""
    return sum(change > SAME_MEAN for change in changes), sum(change < -SAME_MEAN for change in changes)


def interval(evaluation: Evaluation, rules: EvaluationGroup) -> tuple[float, float]:
    """Return the 95% confidence interval of an evaluation's mean gate metric; [0, 1] without scored items.

    It is also [0, 1] for an evaluation that was cut short, because its items aren't a random sample.
    """
    scores = {} if evaluation.cancelled else evaluation.scores
    values = {item: gate_value(score, rules) for item, score in scores.items()}
    return score_interval(group_values(values, evaluation.groups))
