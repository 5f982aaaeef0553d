"""The validation gate (paper section 3.5), a pure function of paired item scores."""

from collections.abc import Iterable

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import LOST, WON, Evaluation, covers
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.paired import SAME_MEAN, PairedTable, paired
from skillopt_airflow.core.gate.policies import Action, Evidence, Verdict, policy_of
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.skill import SkillDocument, weighted_score

__all__ = ["Action", "GateDecision", "decide"]

UNGATED = "taken without the gate"
EQUAL = "equal to the current skill"
"""Beginnings of the reasons for candidates that were accepted without the gate, and for those without changes."""


class GateDecision(Document):
    """The verdict and its numbers."""

    action: Action
    reason: str
    metric: str
    policy: str
    coverage: float
    against_current: PairedTable
    """After an early rejection, only over the items that ran, which are the hard ones; see bound."""
    against_best: PairedTable
    statistic: float | None = None
    """The policy's p-value, if it computed one."""
    bound: float | None = None
    """After an early rejection, the upper bound of the candidate's mean over the items with a current score."""
    density: float | None = None
    """The candidate's score per 1,000 tokens of its text; None if it wasn't measured on all items."""
    weighed: tuple[float, float] | None = None
    """Scores of candidate and best including their density, if the choice of the best uses it."""
    candidate_mean: float | None = None
    """The candidate's mean of the gate metric over its scored items, if the evaluation is complete."""
    interval: tuple[float, float] | None = None
    """95% confidence interval of that mean."""
    by_type: tuple[TypeScore, ...] = ()
    """The candidate's scores by type of task, if items have types and the evaluation is complete."""
    memory_only: bool = False
    """True for an epoch's end without a candidate, which only left a memory for the optimizer."""

    @property
    def ungated(self) -> bool:
        return self.reason.startswith(UNGATED)

    @property
    def equal(self) -> bool:
        """True if the candidate equals the current skill, so nothing ran."""
        return self.reason.startswith(EQUAL)


def decide(
    candidate: Evaluation,
    current: Evaluation,
    best: Evaluation,
    rules: EvaluationGroup,
    force: bool = False,
    skills: tuple[SkillDocument, SkillDocument] | None = None,
    certain: str = "",
) -> GateDecision:
    """Accept a candidate that is strictly better than current and passes the policy; compare it with best, too.

    With `force`, or without use_gate, the candidate is accepted, and the reason contains the gate's verdict. `certain`
    is the reason to reject it on an incomplete evaluation, without the policy. The density of `skills` (candidate,
    best) counts only in the comparison with best.
    """
    evidence, against_best = Evidence(candidate, current, rules), paired(candidate, best, rules)
    table, is_best, dense, covered = evidence.table, against_best.better, None, covers(candidate, rules)
    if skills is not None:
        dense = weighted_score(against_best.score, skills[0]), weighted_score(against_best.other_score, skills[1])
        is_best = dense[0] - dense[1] > SAME_MEAN
    if certain:
        verdict = Verdict(action=Action.REJECT, reason=certain)
    elif not covered:
        because = f"; {candidate.reason}" if candidate.reason else ""
        reason = f"coverage {candidate.coverage:.3f} is below {rules.min_coverage} ({candidate.lacking}){because}"
        verdict = Verdict(action=Action.INDECISIVE, reason=reason)
    elif not table.pairs:
        verdict = Verdict(action=Action.INDECISIVE, reason="no item has a score under both skills")
    else:
        verdict = _judge_whole(evidence, rules)
    action, reason = verdict.action, verdict.reason
    if action is Action.ACCEPT:
        action = Action.ACCEPT_NEW_BEST if is_best else Action.ACCEPT
        than = f"current {table.other_score:.4f}, {'and best by density' if is_best else 'not than best'}"
        than = f"best {against_best.other_score:.4f}" if is_best and against_best.better else than
        reason = f"{table.score:.4f} is better than {than}{reason and f'; {reason}'}"
    if (force or not rules.use_gate) and not certain:
        reason = f"{UNGATED}, which says {action}: {reason}"
        action = Action.ACCEPT_NEW_BEST if covered and is_best else Action.ACCEPT
    return GateDecision(
        action=action,
        reason=reason,
        metric=rules.gate_metric,
        policy=rules.gate_policy,
        coverage=candidate.coverage,
        against_current=table,
        against_best=against_best,
        statistic=verdict.statistic,
        weighed=dense,
    )


def _judge_whole(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Return the policy's verdict, with an acceptance only if it also holds for single items.

    Protected items must not lose under any policy. An item without a score under the current skill can't lose; one
    without a score under the candidate is undecided. Failed items aren't a random sample. So under a policy with a
    level, the acceptance must also hold if items with only one score count against the candidate.
    """
    candidate, current, protected = evidence.candidate, evidence.current, rules.gate_protected_items
    verdict = judge(evidence, rules)
    if verdict.action is not Action.ACCEPT:
        return verdict
    if lost := [item for item in protected if evidence.differences.get(item, 0.0) < -SAME_MEAN]:
        return Verdict(action=Action.REJECT, reason=f"protected items lose: {', '.join(lost)}")
    if unseen := [item for item in protected if item not in candidate.scores]:
        reason = f"protected items have no score under the candidate: {', '.join(unseen)}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    missing = len(candidate.scores.keys() ^ current.scores.keys())
    if not missing or not policy_of(rules.gate_policy).has_level:
        return verdict
    worst = candidate.model_copy(update={"scores": dict.fromkeys(current.scores, LOST) | candidate.scores})
    rival = current.model_copy(update={"scores": dict.fromkeys(candidate.scores, WON) | current.scores})
    then = judge(Evidence(worst, rival, rules), rules)
    if then.action is Action.ACCEPT:
        return verdict
    items = "1 item has" if missing == 1 else f"{missing} items have"
    reason = f"{verdict.reason}, but {items} a score under only one skill, and counted against it: {then.reason}"
    return Verdict(action=Action.INDECISIVE, reason=reason, statistic=verdict.statistic)


def judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Apply the policy to a candidate that is strictly better; reject any other."""
    table = evidence.table
    if table.better:
        return policy_of(rules.gate_policy).judge(evidence, rules)
    worse = f"{table.score:.4f} is not better than current {table.other_score:.4f}"
    return Verdict(action=Action.REJECT, reason=worse)


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Return the protected items that aren't in `item_ids`, since a misspelled id would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)
