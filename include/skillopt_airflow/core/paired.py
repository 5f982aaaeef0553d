"""Two skills compared on the same items, and how sure the comparison is."""

import math
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter

from skillopt_airflow.core import intervals
from skillopt_airflow.core.groups import members
from skillopt_airflow.core.item_scores import Evaluation, metric_value
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Value

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
        """Items that both skills have a score for."""
        return self.wins + self.losses + self.ties

    @property
    def better(self) -> bool:
        """True if the first skill is strictly better; equal fractions that floats round apart are a tie."""
        return self.delta > SAME_MEAN

    @property
    def worse(self) -> bool:
        """True if the first skill is strictly worse."""
        return self.delta < -SAME_MEAN


def paired(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> PairedTable:
    """Compare on the items that both were scored on, so that a missing item favours neither.

    delta's interval counts an item's draws as one observation, since they were averaged before, and those of a group
    as well.
    """
    return _table(_values(candidate, other, rules), other.groups | candidate.groups)


def paired_values(values: Sequence[tuple[float, float]], groups: Sequence[str] = ()) -> PairedTable:
    """Compare by the gate metric of items, (first, other) of each, and the group of each; see `paired`.

    Without groups the items are independent.
    """
    named = {str(place): group for place, group in enumerate(groups)}
    return _table([(str(place), mine, theirs) for place, (mine, theirs) in enumerate(values)], named)


def _table(values: Sequence[tuple[str, float, float]], groups: Mapping[str, str]) -> PairedTable:
    changes = {item: mine - theirs for item, mine, theirs in values}
    score, other_score = _mean([mine for _, mine, _ in values]), _mean([theirs for _, _, theirs in values])
    delta, observed = score - other_score, members(changes, groups)
    low, high = intervals.of_difference(observed)
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
        groups=len(observed) if any(item in groups for item in changes) else None,
    )


def differences(candidate: Evaluation, other: Evaluation, rules: EvaluationGroup) -> dict[str, float]:
    """Return the gate metric of the candidate less the other's by item id, for items that both have a score for."""
    return {item: mine - theirs for item, mine, theirs in _values(candidate, other, rules)}


def signs(changes: Collection[float]) -> tuple[int, int]:
    """Count the wins and the losses among differences; graded scores count by the sign alone."""
    return sum(change > SAME_MEAN for change in changes), sum(change < -SAME_MEAN for change in changes)


def interval(evaluation: Evaluation, rules: EvaluationGroup) -> tuple[float, float]:
    """Return the 95 % interval of an evaluation's mean gate metric; [0, 1] when no item was scored.

    An evaluation that was cut short has none: the items that ran are no random ones.
    """
    if evaluation.cancelled:
        return 0.0, 1.0
    metric, weight = rules.gate_metric, rules.gate_mixed_weight
    values = {item: metric_value(score, metric, weight) for item, score in evaluation.scores.items()}
    return intervals.of_score(members(values, evaluation.groups))


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
