"""The validation gate (paper section 3.5): a pure function of paired per-item scores."""

from collections.abc import Iterable

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import LOST, WON, Evaluation, covers, missing_as
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.paired import SAME_MEAN, PairedTable, paired, signs
from skillopt_airflow.core.gate.policies import Action, Evidence, Verdict, evidence_of, policy_of
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
) -> GateDecision:
    """Accept only what is strictly better than current and passes the policy; best is what is also better than best.

    Under a policy with a level, both must also hold with each item that only one of the two has a score for counted
    against the candidate: the items that fail are no random sample. No protected item may lose under any policy.

    With `force`, or without use_gate, the candidate is taken and the reason tells what the gate would have said.

    `skills` are (candidate, best): their density counts in the comparison with best, but never in the one with current.
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
    """Reject a candidate on less than its whole evaluation, without asking the policy."""
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
    """Apply the policy; whatever it is, a candidate that is not strictly better is rejected."""
    table = evidence.table
    if not table.better:
        reason = f"{table.score:.4f} is not better than current {table.other_score:.4f}"
        return Verdict(action=Action.REJECT, reason=reason)
    return policy_of(rules).judge(evidence, rules)


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Return the protected items that are not among these; a misspelt id would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)


def _protected(candidate: Evaluation, evidence: Evidence, rules: EvaluationGroup) -> Verdict | None:
    """Return why the protected items forbid an acceptance; None if they do not.

    An item that has no score under the current skill cannot lose; one without a score under the candidate is open.
    """
    protected = rules.gate_protected_items
    if lost := [item for item in protected if signs([evidence.differences.get(item, 0.0)]) == (0, 1)]:
        return Verdict(action=Action.REJECT, reason=f"protected items lose: {', '.join(lost)}")
    if unseen := [item for item in protected if item not in candidate.scores]:
        reason = f"protected items have no score under the candidate: {', '.join(unseen)}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return None


def _worst_case(verdict: Verdict, candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> Verdict:
    """Return an acceptance if it holds with the items that only one skill has a score for against the candidate."""
    missing = len(candidate.scores.keys() ^ current.scores.keys())
    if not missing or not policy_of(rules).has_level:
        return verdict
    lost, won = missing_as(LOST, candidate, current), missing_as(WON, current, candidate)
    then = judge(evidence_of(lost, won, rules), rules)
    if then.action is Action.ACCEPT:
        return verdict
    items = "1 item has" if missing == 1 else f"{missing} items have"
    reason = f"{verdict.reason}, but {items} a score under one skill alone, and counted against it: {then.reason}"
    return Verdict(action=Action.INDECISIVE, reason=reason, statistic=verdict.statistic)


def _weighed(against_best: PairedTable, skills: tuple[SkillDocument, SkillDocument]) -> tuple[float, float]:
    candidate, best = skills
    return weighed(against_best.score, candidate), weighed(against_best.other_score, best)


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
