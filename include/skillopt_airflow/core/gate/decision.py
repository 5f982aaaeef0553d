"""The validation gate (paper section 3.5): a pure function of paired per-item scores."""

from collections.abc import Iterable

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import LOST, WON, Evaluation, covers
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.paired import SAME_MEAN, PairedTable, paired
from skillopt_airflow.core.gate.policies import Action, Evidence, Verdict, policy_of
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.skill import SkillDocument, weighed

__all__ = ["Action", "GateDecision", "decide"]

UNGATED = "taken without the gate"
EQUAL = "equal to the current skill"
"""Begin the reason of a candidate that was taken whatever it scores, and of one with nothing new to measure."""


class GateDecision(Document):
    """The verdict and the numbers behind it."""

    action: Action
    reason: str
    metric: str
    policy: str
    coverage: float
    against_current: PairedTable
    """After an early rejection over the items that ran, which are the hard ones: see bound."""
    against_best: PairedTable
    statistic: float | None = None
    """The policy's p-value; None if it computes none, or did not get that far."""
    bound: float | None = None
    """An early-rejected candidate's mean, over the items that current has a score for, is at most this."""
    density: float | None = None
    """The candidate's score for each 1,000 tokens of its text; None if it was not measured on all items."""
    weighed: tuple[float, float] | None = None
    """Scores of candidate and best with what their density adds, where that has a say in the choice of the best."""
    candidate_mean: float | None = None
    """The candidate's mean of the gate metric over all items that it has a score for, where it was measured whole."""
    interval: tuple[float, float] | None = None
    """95 % interval of that mean."""
    by_type: tuple[TypeScore, ...] = ()
    """The candidate's scores by the type of task, where items have one and all were measured."""
    memory_only: bool = False
    """True of an epoch's end that made no candidate: it left the optimizer a memory."""

    @property
    def ungated(self) -> bool:
        return self.reason.startswith(UNGATED)

    @property
    def equal(self) -> bool:
        """Return whether the candidate is the current skill itself, so that nothing ran."""
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
    """Accept only what is strictly better than current and passes the policy; best is what is also better than best.

    With `force`, or without use_gate, the candidate is taken and the reason tells what the gate would have said.

    Args:
        skills: (candidate, best): their density counts in the comparison with best, but never in the one with current.
        certain: why the candidate is rejected on less than its whole evaluation, without asking the policy.
    """
    evidence, against_best = Evidence(candidate, current, rules), paired(candidate, best, rules)
    table, is_best, dense, covered = evidence.table, against_best.better, None, covers(candidate, rules)
    if skills is not None:
        dense = weighed(against_best.score, skills[0]), weighed(against_best.other_score, skills[1])
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
    """Return the policy's verdict, an acceptance only if it also holds for single items.

    No protected item may lose under any policy. One that has no score under the current skill cannot; one without a
    score under the candidate is open. Under a policy with a level, each item that only one of the two has a score for
    counts against the candidate: the items that fail are no random sample.
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
    if not missing or not policy_of(rules).has_level:
        return verdict
    worst = candidate.model_copy(update={"scores": dict.fromkeys(current.scores, LOST) | candidate.scores})
    rival = current.model_copy(update={"scores": dict.fromkeys(candidate.scores, WON) | current.scores})
    then = judge(Evidence(worst, rival, rules), rules)
    if then.action is Action.ACCEPT:
        return verdict
    items = "1 item has" if missing == 1 else f"{missing} items have"
    reason = f"{verdict.reason}, but {items} a score under one skill alone, and counted against it: {then.reason}"
    return Verdict(action=Action.INDECISIVE, reason=reason, statistic=verdict.statistic)


def judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Apply the policy; whatever it is, a candidate that is not strictly better is rejected."""
    table = evidence.table
    worse = f"{table.score:.4f} is not better than current {table.other_score:.4f}"
    return policy_of(rules).judge(evidence, rules) if table.better else Verdict(action=Action.REJECT, reason=worse)


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Return the protected items that are not among these; a misspelt id would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)
