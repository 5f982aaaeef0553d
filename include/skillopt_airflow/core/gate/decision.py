"""The validation gate (paper section 3.5), a pure function of paired item scores."""

from collections.abc import Iterable

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import LOST, WON, Evaluation, covers, missing_as
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.paired import SAME_MEAN, PairedTable, paired, signs
from skillopt_airflow.core.gate.policies import Action, Evidence, Verdict, evidence_of, policy_of
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
) -> GateDecision:
    """Accept a candidate that is strictly better than current and passes the policy; compare it with best, too.

    Failed items aren't a random sample. So under a policy with a level, both must also hold if items with only one
    score count against the candidate. Protected items must not lose under any policy.

    With `force`, or without use_gate, the candidate is accepted, and the reason contains the gate's verdict.

    `skills` are (candidate, best); their density counts only in the comparison with best.
    """
    evidence = evidence_of(candidate, current, rules)
    against_best = paired(candidate, best, rules)
    scores = None if skills is None else _weighed(against_best, skills)
    covered = covers(candidate, rules)
    if not covered:
        verdict = Verdict(action=Action.INDECISIVE, reason=_too_few(candidate, rules))
    elif not evidence.table.pairs:
        verdict = Verdict(action=Action.INDECISIVE, reason="no item has a score under both skills")
    else:
        verdict = judge(evidence, rules)
        if verdict.action is Action.ACCEPT:
            verdict = _protected(candidate, evidence, rules) or _worst_case(verdict, candidate, current, rules)
    is_best = against_best.better if scores is None else scores[0] - scores[1] > SAME_MEAN
    action, reason = _ranked(verdict, evidence.table, against_best, is_best)
    if force or not rules.use_gate:
        reason = f"{UNGATED}, which says {action}: {reason}"
        action = Action.ACCEPT_NEW_BEST if covered and is_best else Action.ACCEPT
    return GateDecision(
        action=action,
        reason=reason,
        metric=rules.gate_metric,
        policy=rules.gate_policy,
        coverage=candidate.coverage,
        against_current=evidence.table,
        against_best=against_best,
        statistic=verdict.statistic,
        weighed=scores,
    )


def reject(
    evaluation: Evaluation, current: Evaluation, best: Evaluation, rules: EvaluationGroup, reason: str
) -> GateDecision:
    """Reject a candidate on an incomplete evaluation, without the policy."""
    return GateDecision(
        action=Action.REJECT,
        reason=reason,
        metric=rules.gate_metric,
        policy=rules.gate_policy,
        coverage=evaluation.coverage,
        against_current=paired(evaluation, current, rules),
        against_best=paired(evaluation, best, rules),
    )


def judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Apply the policy to a candidate that is strictly better; reject any other."""
    table = evidence.table
    if not table.better:
        reason = f"{table.score:.4f} is not better than current {table.other_score:.4f}"
        return Verdict(action=Action.REJECT, reason=reason)
    return policy_of(rules).judge(evidence, rules)


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Return the protected items that aren't in `item_ids`, since a misspelled id would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)


def _protected(candidate: Evaluation, evidence: Evidence, rules: EvaluationGroup) -> Verdict | None:
    """Return a verdict if protected items prevent an acceptance.

    An item without a score under the current skill can't lose; one without a score under the candidate is undecided.
    """
    protected = rules.gate_protected_items
    if lost := [item for item in protected if signs([evidence.differences.get(item, 0.0)]) == (0, 1)]:
        return Verdict(action=Action.REJECT, reason=f"protected items lose: {', '.join(lost)}")
    if unseen := [item for item in protected if item not in candidate.scores]:
        reason = f"protected items have no score under the candidate: {', '.join(unseen)}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return None


def _worst_case(verdict: Verdict, candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> Verdict:
    """Return the acceptance if it also holds when items with only one score count against the candidate."""
    missing = len(candidate.scores.keys() ^ current.scores.keys())
    if not missing or not policy_of(rules).has_level:
        return verdict
    lost, won = missing_as(LOST, candidate, current), missing_as(WON, current, candidate)
    then = judge(evidence_of(lost, won, rules), rules)
    if then.action is Action.ACCEPT:
        return verdict
    items = "1 item has" if missing == 1 else f"{missing} items have"
    reason = f"{verdict.reason}, but {items} a score under only one skill, and counted against it: {then.reason}"
    return Verdict(action=Action.INDECISIVE, reason=reason, statistic=verdict.statistic)


def _weighed(against_best: PairedTable, skills: tuple[SkillDocument, SkillDocument]) -> tuple[float, float]:
    candidate, best = skills
    return weighted_score(against_best.score, candidate), weighted_score(against_best.other_score, best)


def _ranked(
    verdict: Verdict, against_current: PairedTable, against_best: PairedTable, is_best: bool
) -> tuple[Action, str]:
    score, current = against_current.score, against_current.other_score
    found = f"; {verdict.reason}" if verdict.reason else ""
    if verdict.action is not Action.ACCEPT:
        return verdict.action, verdict.reason
    if is_best and not against_best.better:
        return Action.ACCEPT_NEW_BEST, f"{score:.4f} is better than current {current:.4f}, and best by density{found}"
    if is_best:
        return Action.ACCEPT_NEW_BEST, f"{score:.4f} is better than best {against_best.other_score:.4f}{found}"
    return Action.ACCEPT, f"{score:.4f} is better than current {current:.4f}, not than best{found}"


def _too_few(candidate: Evaluation, rules: EvaluationGroup) -> str:
    lacking = [f"{count} {status}" for status, count in sorted(candidate.failures.items())]
    if candidate.cancelled:
        lacking.append(f"{candidate.cancelled} cancelled")
    reason = f"; {candidate.reason}" if candidate.reason else ""
    return f"coverage {candidate.coverage:.3f} is below {rules.min_coverage} ({', '.join(lacking)}){reason}"
