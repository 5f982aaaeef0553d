"""Policy paired_se: the mean difference must exceed gate_se_factor standard errors over the items.

With the default of 2, at most 3.7 % of the candidates that change nothing pass, on 0/1 scores of 9 items or more. The
normal distribution's 2.3 % would promise too much: where few items differ, 4 wins without a loss pass.
"""

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, decided
from skillopt_airflow.core.paired import SAME_MEAN, standard_error
from skillopt_airflow.core.verdict import Action, Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    error = standard_error(evidence.differences.values())
    if error is None:
        return Verdict(action=Action.UNDERPOWERED, reason="a standard error needs 2 items with a score under both")
    delta, needed = evidence.table.delta, rules.gate_se_factor * error
    accepted = delta - needed > SAME_MEAN
    relation = "exceeds" if accepted else "does not exceed"
    reason = f"the gain {delta:.4f} {relation} {rules.gate_se_factor:g} standard errors ({needed:.4f})"
    return decided(accepted, reason, delta / error if error > SAME_MEAN else None)


PAIRED_SE = Policy(judge=_judge, fewest_items=lambda rules: 2)
