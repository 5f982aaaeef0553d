"""Reject a candidate before all of its evaluation ran: one that the full evaluation would not accept either.

It is the full evaluation's decision for fewer rollouts, with one exception: where so many items beyond those that
ran would have failed that too few had a score, the full evaluation would be indecisive.

Every policy wants a strictly better mean, so a candidate has lost once none is possible any more, whatever the items
that did not run would score. What counts is the shortest prefix of a fixed order that shows it: items that
other containers finished beyond it are left out, so that the record does not depend on which was faster.

Not for a candidate that is taken in any case: see `force` of the gate.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.gate import Action, GateDecision
from skillopt_airflow.core.item_scores import Evaluation, ItemScore, metric_value
from skillopt_airflow.core.paired import SAME_MEAN, paired
from skillopt_airflow.core.track_record import TrackRecord
from skillopt_airflow.core.types import Status

PERFECT = ItemScore(hard=1.0, soft=1.0)


def evaluation_order(
    item_ids: Sequence[str], current: Evaluation, rules: EvaluationGroup, record: TrackRecord
) -> tuple[str, ...]:
    """Sort the items by the score that the candidate will probably get, lowest first, to rule a win out early.

    What an item will probably score is what the current skill scores on it, and earlier candidates did. Items that
    the current skill has no score for come last.
    """

    def place(item: str) -> tuple[bool, float]:
        mine = _value(current.scores.get(item, PERFECT), rules)
        return item not in current.scores, record.expected(item, mine)

    return tuple(sorted(item_ids, key=place))


def horizon(
    scores: Mapping[str, ItemScore],
    failed: Collection[str],
    order: Sequence[str],
    current: Evaluation,
    rules: EvaluationGroup,
) -> int:
    """Return how many items from the start of `order` run in any case, so that all of them may begin at once.

    Takes what `certain_loss` takes, and asks that it has found none.
    """
    theirs = [-_value(current.scores[item], rules) for item in order if item in current.scores]
    arrived = _arrived(scores, failed, order)
    most = math.fsum([*_best_case(_ran(scores, order, arrived), order, current, rules), *theirs])
    # A further item takes away 1 at most.
    return min(len(order), arrived + math.ceil(most - SAME_MEAN))


def certain_loss(
    scores: Mapping[str, ItemScore],
    failed: Collection[str],
    order: Sequence[str],
    current: Evaluation,
    rules: EvaluationGroup,
) -> int | None:
    """Return the length of the shortest prefix of `order` that rules out a candidate better than current.

    Args:
        scores: the candidate's, of items that are complete, all draws included.
        failed: items that ended without a score. Like those that did not run they may still win all they could.
        order: every item of the evaluation, see `evaluation_order`.
        current: the current skill's evaluation; items that it has no score for do not count.
        rules: the gate's.

    Returns:
        None while a win is possible, where it takes all items to rule one out, when the failed items of the prefix
        leave too few to decide on, and when the rules want the full evaluation: then `decide` on that. 0 if current
        is perfect: nothing needs to run.
    """
    wanted = rules.early_reject and rules.use_gate
    if not wanted or not any(item in current.scores for item in order):
        return None
    theirs = [-_value(current.scores[item], rules) for item in order if item in current.scores]

    def lost(prefix: int) -> bool:
        ran = _ran(scores, order, prefix)
        most = math.fsum([*_best_case(ran, order, current, rules), *theirs])
        pairs = sum(item in current.scores for item in ran)
        # fsum is exact. Half of what counts as a tie leaves room for the rounding of the two means.
        return most <= SAME_MEAN / 2 * max(1, pairs)

    arrived = _arrived(scores, failed, order)
    if not lost(arrived):
        return None
    # A result never promises more than its item did before: once lost is lost.
    shortest = bisect_left(range(arrived), True, key=lost)
    failures = shortest - len(_ran(scores, order, shortest))
    covered = (len(order) - failures) / len(order) >= rules.min_coverage
    return shortest if covered and shortest < len(order) else None


def cut_short(
    scores: Mapping[str, ItemScore],
    failed: Mapping[str, Status],
    order: Sequence[str],
    prefix: int,
    current: Evaluation,
    rules: EvaluationGroup,
) -> tuple[Evaluation, float]:
    """Return the evaluation on the prefix, the rest cancelled, and the highest mean that was still possible.

    The mean is the one that the gate compares: over the items that current has a score for.
    """
    ran = _ran(scores, order, prefix)
    failures = [failed[item] for item in order[:prefix] if item not in ran]
    evaluation = Evaluation(
        scores=ran,
        failures={status: failures.count(status) for status in sorted(set(failures))},
        cancelled=len(order) - prefix,
    )
    best_case = _best_case(ran, order, current, rules)
    return evaluation, math.fsum(best_case) / len(best_case)


def reject_early(
    evaluation: Evaluation, bound: float, current: Evaluation, best: Evaluation, rules: EvaluationGroup
) -> GateDecision:
    """Return the gate's decision on an evaluation that was cut short."""
    compared = paired(current, current, rules).score
    return GateDecision(
        action=Action.REJECT,
        reason=f"rejected early, {evaluation.cancelled} of {evaluation.size} items did not run: its score is <= "
        f"{bound:.4f}, not better than current {compared:.4f}",
        metric=rules.gate_metric,
        policy=rules.gate_policy,
        coverage=evaluation.coverage,
        against_current=paired(evaluation, current, rules),
        against_best=paired(evaluation, best, rules),
        bound=bound,
    )


def _arrived(scores: Mapping[str, ItemScore], failed: Collection[str], order: Sequence[str]) -> int:
    """Return the length of the longest prefix of which every item has ended."""
    return next((n for n, item in enumerate(order) if item not in scores and item not in failed), len(order))


def _ran(scores: Mapping[str, ItemScore], order: Sequence[str], prefix: int) -> dict[str, ItemScore]:
    return {item: scores[item] for item in order[:prefix] if item in scores}


def _best_case(
    ran: Mapping[str, ItemScore], order: Sequence[str], current: Evaluation, rules: EvaluationGroup
) -> list[float]:
    """Return the candidate's metric on the items that current has a score for, with full scores where it has none."""
    return [_value(ran.get(item, PERFECT), rules) for item in order if item in current.scores]


def _value(score: ItemScore, rules: EvaluationGroup) -> float:
    return metric_value(score, rules.gate_metric, rules.gate_mixed_weight)
