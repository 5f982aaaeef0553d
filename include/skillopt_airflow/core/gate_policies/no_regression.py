"""Policy no_regression: no protected item may lose."""

from collections.abc import Iterable

from skillopt_airflow.core.gate_policies.policy import Evidence, Policy
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Return the protected items that are not among these; a misspelt id would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Reject a loss; an item that has no score under the current skill cannot lose, one that only lost it is open."""
    protected = rules.gate_protected_items
    lost = [item for item in protected if signs([evidence.differences.get(item, 0.0)]) == (0, 1)]
    if lost:
        return Verdict(action=Action.REJECT, reason=f"protected items lose: {', '.join(lost)}")
    unseen = [item for item in protected if item in evidence.missing]
    if unseen:
        reason = f"protected items have no score under the candidate: {', '.join(unseen)}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return Verdict(action=Action.ACCEPT)


NO_REGRESSION = Policy(judge=_judge)
