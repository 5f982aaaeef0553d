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
    """Return whether an evaluation may end early: only if a gate decides on it, and not in a prepaid batch job."""
    rules = config.evaluation
    gated = moment.kind in ("step", "meta_reflect") or (
        moment.kind == "slow_update" and config.optimizer.slow_update_gate
    )
    return rules.early_reject and rules.use_gate and gated and not config.model.batch


def evaluation_order(
    item_ids: Sequence[str], current: Evaluation, rules: EvaluationGroup, record: TrackRecord
) -> tuple[str, ...]:
    """Sort the items by the candidate's expected score, lowest first, to rule out a win early.

    The expected score is based on the current skill and on earlier candidates. Items without a current score come last.
    """

    def place(item: str) -> tuple[bool, float]:
        mine = _value(current.scores.get(item, WON), rules)
        return item not in current.scores, record.expected(item, mine)

    return tuple(sorted(item_ids, key=place))


@dataclass(frozen=True)
class RunningEvaluation:
    """A candidate's evaluation while it runs."""

    scores: Mapping[str, ItemScore]
    """Scores of the items with all draws."""
    failed: Mapping[str, Status]
    """Items that ended without a score. Like pending items, they count as possible wins."""
    order: Sequence[str]
    """All items of the evaluation, see `evaluation_order`."""
    current: Evaluation
    """The current skill's evaluation; items without a score in it don't count."""
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
        """Return the evaluation up to the certain loss, and the bound of its mean; see `certain_loss`.

        Both depend only on the items' order, never on the speed of containers.
        """
        prefix = self.certain_loss()
        return None if prefix is None else self.cut_short(prefix)

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
                score = self.record.expected(item, _value(self.current.scores[item], self.rules))
                expected, variance = expected - (1.0 - score), variance + score * (1.0 - score)
        return self.order

    def certain_loss(self) -> int | None:
        """Return the length of the shortest prefix of the order that rules out a win; 0 if current is perfect.

        None while a win is possible, if ruling it out takes all items, or if too many items of the prefix failed. Also
        None if the rules require the full evaluation. Then use `decide` on the full evaluation.
        """
        wanted = self.rules.early_reject and self.rules.use_gate
        if not wanted or not any(item in self.current.scores for item in self.order):
            return None

        def lost(prefix: int) -> bool:
            pairs = sum(item in self.current.scores for item in self._ran(prefix))
            # fsum is exact. Half of the tolerance for ties leaves room for rounding of the two means.
            return self._lead(prefix) <= SAME_MEAN / 2 * max(1, pairs)

        arrived, total = self._arrived(), len(self.order)
        if not lost(arrived):
            return None
        # Results never raise the lead, so a loss is final.
        shortest = bisect_left(range(arrived), True, key=lost)
        failures = shortest - len(self._ran(shortest))
        covered = (total - failures) / total >= self.rules.min_coverage
        return shortest if covered and shortest < total else None

    def cut_short(self, prefix: int) -> tuple[Evaluation, float]:
        """Return the evaluation on the prefix, with the rest cancelled, and the highest possible mean.

        The mean is over the items with a current score, as in the gate.
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
