"""Two skills compared on the same items, with 95 % intervals of the difference and of each score.

A group of items is one observation. Where groups have several items, the degrees of freedom are those of the effective
number of groups, (sum m)^2 / sum m^2 of their sizes m, less 1; with fewer than three there is no interval.

Intervals are as wide as if two more groups had been seen. Without these, where few of 17 items differ, or all are
right, an interval from the items' own spread holds the truth in less than 87 % of cases (Agresti and Coull 1998; Bonett
and Price 2012, of paired outcomes). `python -m bench truth` measures how often these hold it.
"""

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, gate_value, members
from skillopt_airflow.core.values.types import Value

CONFIDENCE = 0.95
"""Confidence of every interval."""
NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
UNSEEN = 2
"""Groups that are added to those that were seen."""
FEWEST = 3.0
"""Effective groups below which there is no interval."""
NEGLIGIBLE = 1e-12
"""Differences below this count as zero (rounding error)."""

Groups = Sequence[Sequence[float]]


def of_difference(groups: Groups) -> tuple[float, float]:
    """Return the interval of the mean of differences between -1 and 1; [-1, 1] where there is none.

    A group counts as its sum. The two more have a sum of the usual size, the root mean square of those that are not 0,
    one with either sign. In groups of one with differences of -1, 0 and 1 it is Bonett and Price's interval, but with a
    sample's variance: of n groups it is wider by a factor of sqrt((n + 2) / (n + 1)).
    """
    if len(groups) < 2 or too_few(groups):
        return -1.0, 1.0
    sums, size = [math.fsum(group) for group in groups], _size(groups)
    squares = [total**2 for total in sums if abs(total) > NEGLIGIBLE]
    usual = math.sqrt(math.fsum(squares) / len(squares)) if squares else size
    items = (len(groups) + UNSEEN) * size
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


def of_score(groups: Groups) -> tuple[float, float]:
    """Return the interval of the mean of scores between 0 and 1; [0, 1] where there is none.

    Wilson's score interval (1927) for as many 0/1 scores as would vary like these: averaged draws and partial credit
    vary less, groups that hang together more. The two more groups vary halfway between independent 0/1 scores and
    equal ones. Of single 0/1 scores of independent items it is Wilson's own; it stays inside [0, 1], and keeps a width
    where all items agree.
    """
    if not groups or too_few(groups):
        return 0.0, 1.0
    size, count = _size(groups), len(groups)
    items = count * size
    mean = min(1.0, math.fsum(score for group in groups for score in group) / items)
    binary, alike = mean * (1 - mean), float(count)
    if binary > NEGLIGIBLE:
        deviations = (math.fsum(score - mean for score in group) for group in groups)
        unseen = UNSEEN * binary * size**1.5
        spread = (math.fsum(deviation**2 for deviation in deviations) + unseen) / (count - 1 + UNSEEN)
        alike = max(alike, binary * items**2 / (count * spread))
    z = _quantile(groups)
    shrink = 1 + z * z / alike
    centre = (mean + z * z / (2 * alike)) / shrink
    reach = z / shrink * math.sqrt(binary / alike + (z / (2 * alike)) ** 2)
    # At a mean of 0 or 1 the end of the interval is the mean itself, but for rounding.
    return max(0.0, min(mean, centre - reach)), min(1.0, max(mean, centre + reach))


def _size(groups: Groups) -> float:
    return sum(map(len, groups)) / len(groups)


def too_few(groups: Groups) -> bool:
    return _grouped(groups) and effective([len(group) for group in groups]) < FEWEST


def effective(sizes: Sequence[int]) -> float:
    return sum(sizes) ** 2 / sum(size * size for size in sizes)


def _grouped(groups: Groups) -> bool:
    return any(len(group) > 1 for group in groups)


def _quantile(groups: Groups) -> float:
    """Return Student's t for groups, of which there may be few, and the normal quantile for items."""
    if not _grouped(groups):
        return NORMAL
    from scipy.special import stdtrit

    return float(stdtrit(effective([len(group) for group in groups]) - 1, (1 + CONFIDENCE) / 2))


SAME_MEAN = 1e-12
"""Scores that are this close are equal: far below one token of one item, far above the rounding of fractions."""


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
    groups: int | None = None
    """Groups that the items come from; None if they have none, and are taken as independent of each other."""

    @property
    def pairs(self) -> int:
        return self.wins + self.losses + self.ties

    @property
    def better(self) -> bool:
        """True if the first skill is strictly better; equal fractions that floats round apart are a tie."""
        return self.delta > SAME_MEAN

    @property
    def worse(self) -> bool:
        return self.delta < -SAME_MEAN


def paired(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> PairedTable:
    """Compare on the items that both were scored on, so that a missing item favours neither.

    delta's interval counts an item's draws as one observation, since they were averaged before, and those of a group
    as well.
    """
    both, groups = sorted(candidate.scores.keys() & other.scores.keys()), other.groups | candidate.groups
    values = [(gate_value(candidate.scores[item], rules), gate_value(other.scores[item], rules)) for item in both]
    return paired_values(values, [groups.get(item, "") for item in both])


def paired_values(values: Sequence[tuple[float, float]], groups: Sequence[str] = ()) -> PairedTable:
    """Compare by the gate metric of items, (first, other) of each, and the group of each; see `paired`.

    Items without a group, or with an empty one, are independent.
    """
    changes = {str(place): mine - theirs for place, (mine, theirs) in enumerate(values)}
    named = {str(place): group for place, group in enumerate(groups) if group}
    score, other_score = _mean([mine for mine, _ in values]), _mean([theirs for _, theirs in values])
    delta, observed = score - other_score, members(changes, named)
    low, high = of_difference(observed)
    wins, losses = signs(changes.values())
    return PairedTable(
        wins=wins,
        losses=losses,
        ties=len(changes) - wins - losses,
        score=score,
        other_score=other_score,
        delta=delta,
        # Of two means, and of the differences' mean: they may be rounded apart.
        low=min(low, delta),
        high=max(high, delta),
        groups=len(observed) if named else None,
    )


def differences(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> dict[str, float]:
    """Return the gate metric of the candidate less the other's by item id, for items that both have a score for."""
    both = sorted(candidate.scores.keys() & other.scores.keys())
    return {item: gate_value(candidate.scores[item], rules) - gate_value(other.scores[item], rules) for item in both}


def signs(changes: Collection[float]) -> tuple[int, int]:
    """Count the wins and the losses among differences; graded scores count by the sign alone."""
    return sum(change > SAME_MEAN for change in changes), sum(change < -SAME_MEAN for change in changes)


def interval(evaluation: Evaluation, rules: EvaluationGroup) -> tuple[float, float]:
    """Return the 95 % interval of an evaluation's mean gate metric; [0, 1] when no item was scored.

    An evaluation that was cut short has none: the items that ran are no random ones.
    """
    scores = {} if evaluation.cancelled else evaluation.scores
    values = {item: gate_value(score, rules) for item, score in scores.items()}
    return of_score(members(values, evaluation.groups))


def _mean(values: Collection[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
