"""Early rejection of candidates that the full evaluation wouldn't accept either.

It gives the full evaluation's decision with fewer rollouts, with one exception: if too many of the remaining items had
failed, the full evaluation would be indecisive.

Every policy requires a strictly better mean, so a candidate has lost once that is impossible, whatever the remaining
items score. The result is the shortest prefix of a fixed order that proves it. Items that other containers have
finished beyond it are left out, so the record doesn't depend on their speed.

It doesn't apply to candidates that are accepted in any case: see `force` of the gate.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import WON, Evaluation, ItemScore, evaluation_of, failed_sample, gate_value
from skillopt_airflow.core.gate.paired import SAME_MEAN
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Status


def may_end_early(moment: Moment, config: TrainConfig) -> bool:
    """Return whether an evaluation may end early: only if a gate decides on it, and not in a prepaid batch job."""
    rules, gated = config.evaluation, moment.kind != "slow_update" or config.optimizer.slow_update_gate
    return rules.early_reject and rules.use_gate and gated and not config.model.batch


def evaluation_order(
    item_ids: Sequence[str], current: Evaluation, rules: EvaluationGroup, record: TrackRecord
) -> tuple[str, ...]:
    """Sort the items by the candidate's expected score, lowest first, to rule out a win early.

    The expected score is based on the current skill and on earlier candidates. Items without a current score come last.
    """
    mine = {item: gate_value(current.scores.get(item, WON), rules) for item in item_ids}
    expected = {item: record.expected(item, score) for item, score in mine.items()}
    return tuple(sorted(item_ids, key=lambda item: (item not in current.scores, expected[item])))


@dataclass(frozen=True)
class RunningEvaluation:
    """A candidate's evaluation while it runs."""

    scores: Mapping[str, ItemScore]
    """Scores of the items with all samples."""
    failed: Mapping[str, Status]
    """Items that ended without a score. Like pending items, they count as possible wins."""
    order: Sequence[str]
    """All items of the evaluation, see `evaluation_order`."""
    current: Evaluation
    """The current skill's evaluation; items without a score in it don't count."""
    rules: EvaluationGroup
    record: TrackRecord = field(default_factory=TrackRecord)

    @classmethod
    def of(
        cls,
        items: Sequence[ItemRef],
        rollouts: Mapping[str, Sequence[RolloutResult]],
        current: Evaluation,
        rules: EvaluationGroup,
        record: TrackRecord,
    ) -> "RunningEvaluation":
        """Collect the rollouts so far, by item id; an item counts once all of its samples have ended."""
        complete = [item for item in items if len(rollouts.get(item.id, ())) == rules.samples]
        scores = evaluation_of(complete, rollouts, rules.samples).scores
        failed = {one.id: failed_sample(one.id, rollouts[one.id]).status for one in complete if one.id not in scores}
        order = evaluation_order([item.id for item in items], current, rules, record)
        return cls(scores, failed, order, current, rules, record)

    def lost(self) -> tuple[Evaluation, float] | None:
        """Return the evaluation up to the certain loss, with the rest cancelled, and the highest possible mean.

        The evaluation has the shortest prefix of the order that rules out a win, and no items if current is perfect.
        The mean is over the items with a current score, as in the gate. Use the full evaluation after None: while a win
        is possible, if ruling it out takes all items, or if too many items of the prefix failed.
        """
        if not any(item in self.current.scores for item in self.order):
            return None

        def is_lost(prefix: int) -> bool:
            pairs = sum(item in self.current.scores for item in self._ran(prefix))
            # fsum is exact. Half of the tolerance for ties leaves room for rounding of the two means.
            return self._lead(prefix) <= SAME_MEAN / 2 * max(1, pairs)

        arrived, total = self._arrived(), len(self.order)
        if not is_lost(arrived):
            return None
        # Results never raise the lead, so a loss is final.
        prefix = bisect_left(range(arrived), True, key=is_lost)
        ran, best_case = self._ran(prefix), self._best_case(prefix)
        if (total - (prefix - len(ran))) / total < self.rules.min_coverage or prefix == total:
            return None
        failures = Counter(self.failed[item] for item in self.order[:prefix] if item not in ran)
        evaluation = Evaluation(scores=ran, failures=dict(sorted(failures.items())), cancelled=total - prefix)
        return evaluation, math.fsum(best_case) / len(best_case)

    def worthwhile(self) -> Sequence[str]:
        """Return the items to start now: the prefix that probably makes a loss certain.

        Scores are expected as in `evaluation_order`. The prefix ends one standard deviation below a tie, so a candidate
        that performs as expected never waits. It includes all items that must run in any case.
        """
        arrived, ended = self._arrived(), self.scores.keys() | self.failed.keys()
        certain = self._lead(arrived)
        if certain <= SAME_MEAN * len(self.order):
            # The candidate has lost, and only all items can show whether too few have a score.
            return self.order
        expected, variance = self._lead(len(self.order)), 0.0
        for begun, item in enumerate(self.order[arrived:], start=arrived):
            if expected < -math.sqrt(variance) - SAME_MEAN:
                # Each item reduces the lead by at most 1.
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
