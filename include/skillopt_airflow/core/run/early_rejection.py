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
from skillopt_airflow.core.gate.item_scores import WON, Evaluation, ItemScore, evaluation_of, failed_draw, gate_value
from skillopt_airflow.core.gate.paired import SAME_MEAN
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Status


def may_end_early(moment: Moment, config: TrainConfig) -> bool:
    """Return whether a candidate's evaluation may be ended as soon as a win is impossible: where a gate decides on it.

    A batch job is paid for as a whole.
    """
    rules, gated = config.evaluation, moment.kind != "slow_update" or config.optimizer.slow_update_gate
    return rules.early_reject and rules.use_gate and gated and not config.model.batch


def evaluation_order(
    item_ids: Sequence[str], current: Evaluation, rules: EvaluationGroup, record: TrackRecord
) -> tuple[str, ...]:
    """Sort the items by the score that the candidate will probably get, lowest first, to rule a win out early.

    What an item will probably score is what the current skill scores on it, and earlier candidates did. Items that
    the current skill has no score for come last.
    """
    mine = {item: gate_value(current.scores.get(item, WON), rules) for item in item_ids}
    expected = {item: record.expected(item, score) for item, score in mine.items()}
    return tuple(sorted(item_ids, key=lambda item: (item not in current.scores, expected[item])))


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
        items: Sequence[ItemRef],
        rollouts: Mapping[str, Sequence[RolloutResult]],
        current: Evaluation,
        rules: EvaluationGroup,
        record: TrackRecord,
    ) -> "RunningEvaluation":
        """Collect the rollouts so far, by item id; an item counts once all of its draws have ended."""
        complete = [item for item in items if len(rollouts.get(item.id, ())) == rules.draws]
        scores = evaluation_of(complete, rollouts, rules.draws).scores
        failed = {one.id: failed_draw(one.id, rollouts[one.id]).status for one in complete if one.id not in scores}
        order = evaluation_order([item.id for item in items], current, rules, record)
        return cls(scores, failed, order, current, rules, record)

    def lost(self) -> tuple[Evaluation, float] | None:
        """Return the evaluation up to where a loss is certain, the rest cancelled, and the highest mean still possible.

        It is the shortest prefix of the order that rules out a candidate better than current; both depend on the order
        only, never on which container was faster. The mean is the one that the gate compares: over the items that
        current has a score for.

        None while a win is possible, where it takes all items to rule one out, when the failed items of the prefix
        leave too few to decide on, and when the rules want the full evaluation: then `decide` on that. No item is in it
        if current is perfect: nothing needs to run.
        """
        wanted = self.rules.early_reject and self.rules.use_gate
        if not wanted or not any(item in self.current.scores for item in self.order):
            return None

        def is_lost(prefix: int) -> bool:
            pairs = sum(item in self.current.scores for item in self._ran(prefix))
            # fsum is exact. Half of what counts as a tie leaves room for the rounding of the two means.
            return self._lead(prefix) <= SAME_MEAN / 2 * max(1, pairs)

        arrived, total = self._arrived(), len(self.order)
        if not is_lost(arrived):
            return None
        # A result never promises more than its item did before: once lost is lost.
        prefix = bisect_left(range(arrived), True, key=is_lost)
        ran, best_case = self._ran(prefix), self._best_case(prefix)
        if (total - (prefix - len(ran))) / total < self.rules.min_coverage or prefix == total:
            return None
        failures = Counter(self.failed[item] for item in self.order[:prefix] if item not in ran)
        evaluation = Evaluation(scores=ran, failures=dict(sorted(failures.items())), cancelled=total - prefix)
        return evaluation, math.fsum(best_case) / len(best_case)

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
                score = self.record.expected(item, gate_value(self.current.scores[item], self.rules))
                expected, variance = expected - (1.0 - score), variance + score * (1.0 - score)
        return self.order

    def _arrived(self) -> int:
        ended = self.scores.keys() | self.failed.keys()
        return next((place for place, item in enumerate(self.order) if item not in ended), len(self.order))

    def _ran(self, prefix: int) -> dict[str, ItemScore]:
        return {item: self.scores[item] for item in self.order[:prefix] if item in self.scores}

    def _lead(self, prefix: int) -> float:
        theirs = (self.current.scores[item] for item in self.order if item in self.current.scores)
        return math.fsum([*self._best_case(prefix), *(-gate_value(score, self.rules) for score in theirs)])

    def _best_case(self, prefix: int) -> list[float]:
        ran = self._ran(prefix)
        return [gate_value(ran.get(item, WON), self.rules) for item in self.order if item in self.current.scores]
