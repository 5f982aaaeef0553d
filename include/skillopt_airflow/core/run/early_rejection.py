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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import GateDecision, reject
from skillopt_airflow.core.gate.item_scores import (
    WON,
    Evaluation,
    ItemScore,
    evaluation_of,
    failed_draw,
    metric_value,
)
from skillopt_airflow.core.gate.paired import SAME_MEAN, paired
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import RolloutResult, Status


def may_end_early(moment: Moment, config: TrainConfig) -> bool:
    """Return whether an evaluation may be ended as soon as a win is impossible: only where a gate decides on it.

    A batch job is paid for as a whole.
    """
    rules = config.evaluation
    gated = moment.kind in ("step", "meta_reflect") or (
        moment.kind == "slow_update" and config.optimizer.slow_update_gate
    )
    return rules.early_reject and rules.use_gate and gated and not config.model.batch


def evaluation_order(
    item_ids: Sequence[str], current: Evaluation, rules: EvaluationGroup, record: TrackRecord
) -> tuple[str, ...]:
    """Sort the items by the score that the candidate will probably get, lowest first, to rule a win out early.

    What an item will probably score is what the current skill scores on it, and earlier candidates did. Items that
    the current skill has no score for come last.
    """

    def place(item: str) -> tuple[bool, float]:
        mine = _value(current.scores.get(item, WON), rules)
        return item not in current.scores, record.expected(item, mine)

    return tuple(sorted(item_ids, key=place))


@dataclass(frozen=True)
class RunningEvaluation:
    """A candidate's evaluation while it runs."""

    scores: Mapping[str, ItemScore]
    """Scores of the items that are complete, all draws included."""
    failed: Mapping[str, Status]
    """Items that ended without a score. Like those that did not run they may still win all they could."""
    order: Sequence[str]
    """Every item of the evaluation, see `evaluation_order`."""
    current: Evaluation
    """The current skill's; items that it has no score for do not count."""
    rules: EvaluationGroup
    record: TrackRecord = field(default_factory=TrackRecord)
    """The scores of earlier candidates."""

    @classmethod
    def of(
        cls,
        item_ids: Sequence[str],
        rollouts: Mapping[str, Sequence[RolloutResult]],
        current: Evaluation,
        rules: EvaluationGroup,
        record: TrackRecord,
    ) -> "RunningEvaluation":
        """Collect the rollouts so far, by item id; an item counts once all of its draws have ended."""
        complete = {item: draws for item, draws in rollouts.items() if len(draws) == rules.draws}
        ended = [one for draws in complete.values() for one in draws]
        scores = evaluation_of(list(complete), ended, draws=rules.draws).scores
        failed = {item: failed_draw(item, draws).status for item, draws in complete.items() if item not in scores}
        return cls(scores, failed, evaluation_order(item_ids, current, rules, record), current, rules, record)

    def lost(self) -> tuple[Evaluation, float] | None:
        """Return the evaluation up to where the loss was certain, and the bound of its mean; see `certain_loss`.

        Both depend on the items' order only, never on which container was faster.
        """
        prefix = self.certain_loss()
        return None if prefix is None else self.cut_short(prefix)

    def worthwhile(self) -> Sequence[str]:
        """Return the items to begin before more is known: up to where they will probably have made a loss certain.

        Each is expected to score what the current skill and earlier candidates did on it. Probably is a standard
        deviation beyond a tie, so that a candidate that does as expected waits for nothing. What runs in any case is
        always among them.
        """
        arrived, ended = self._arrived(), self.scores.keys() | self.failed.keys()
        certain = self._lead(arrived)
        if certain <= SAME_MEAN * len(self.order):
            # It has lost, and that too few items have a score takes all of them to see.
            return self.order
        expected, variance = self._lead(len(self.order)), 0.0
        for begun, item in enumerate(self.order[arrived:], start=arrived):
            if expected < -math.sqrt(variance) - SAME_MEAN:
                # A further item takes away 1 at most.
                return self.order[: max(begun, arrived + math.ceil(certain - SAME_MEAN))]
            if item in self.current.scores and item not in ended:
                score = self.record.expected(item, _value(self.current.scores[item], self.rules))
                expected, variance = expected - (1.0 - score), variance + score * (1.0 - score)
        return self.order

    def certain_loss(self) -> int | None:
        """Return the length of the shortest prefix of the order that rules out a candidate better than current.

        None while a win is possible, where it takes all items to rule one out, when the failed items of the prefix
        leave too few to decide on, and when the rules want the full evaluation: then `decide` on that. 0 if current
        is perfect: nothing needs to run.
        """
        wanted = self.rules.early_reject and self.rules.use_gate
        if not wanted or not any(item in self.current.scores for item in self.order):
            return None

        def lost(prefix: int) -> bool:
            pairs = sum(item in self.current.scores for item in self._ran(prefix))
            # fsum is exact. Half of what counts as a tie leaves room for the rounding of the two means.
            return self._lead(prefix) <= SAME_MEAN / 2 * max(1, pairs)

        arrived, total = self._arrived(), len(self.order)
        if not lost(arrived):
            return None
        # A result never promises more than its item did before: once lost is lost.
        shortest = bisect_left(range(arrived), True, key=lost)
        failures = shortest - len(self._ran(shortest))
        covered = (total - failures) / total >= self.rules.min_coverage
        return shortest if covered and shortest < total else None

    def cut_short(self, prefix: int) -> tuple[Evaluation, float]:
        """Return the evaluation on the prefix, the rest cancelled, and the highest mean that was still possible.

        The mean is the one that the gate compares: over the items that current has a score for.
        """
        ran = self._ran(prefix)
        failures = Counter(self.failed[item] for item in self.order[:prefix] if item not in ran)
        evaluation = Evaluation(scores=ran, failures=dict(sorted(failures.items())), cancelled=len(self.order) - prefix)
        best_case = self._best_case(prefix)
        return evaluation, math.fsum(best_case) / len(best_case)

    def _arrived(self) -> int:
        ended = self.scores.keys() | self.failed.keys()
        return next((place for place, item in enumerate(self.order) if item not in ended), len(self.order))

    def _ran(self, prefix: int) -> dict[str, ItemScore]:
        return {item: self.scores[item] for item in self.order[:prefix] if item in self.scores}

    def _lead(self, prefix: int) -> float:
        theirs = [-_value(self.current.scores[item], self.rules) for item in self.order if item in self.current.scores]
        return math.fsum([*self._best_case(prefix), *theirs])

    def _best_case(self, prefix: int) -> list[float]:
        ran = self._ran(prefix)
        return [_value(ran.get(item, WON), self.rules) for item in self.order if item in self.current.scores]


def reject_early(
    evaluation: Evaluation, bound: float, current: Evaluation, best: Evaluation, rules: EvaluationGroup
) -> GateDecision:
    """Return the gate's decision on an evaluation that was cut short."""
    compared = paired(current, current, rules).score
    reason = (
        f"rejected early, {evaluation.cancelled} of {evaluation.size} items were not needed: its score is <= "
        f"{bound:.4f}, not better than current {compared:.4f}"
    )
    return reject(evaluation, current, best, rules, reason).model_copy(update={"bound": bound})


def _value(score: ItemScore, rules: EvaluationGroup) -> float:
    return metric_value(score, rules.gate_metric, rules.gate_mixed_weight)
