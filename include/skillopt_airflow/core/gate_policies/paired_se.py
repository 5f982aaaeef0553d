"""Policy paired_se: the mean difference must exceed gate_se_factor standard errors over the items.

With the default of 2, at most 3.7 % of the candidates that change nothing pass, on 0/1 scores of 9 items or more. The
normal distribution's 2.3 % would promise too much: where few items differ, 4 wins without a loss pass.

Where items have groups, it is the standard error over these. There may be few of them, so it takes as many errors more
as Student's t does to be as sure as the normal distribution. Where all gain alike, the error is 0, and so few may do so
by chance.
"""

from statistics import NormalDist

from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, decided
from skillopt_airflow.core.paired import SAME_MEAN, standard_error
from skillopt_airflow.core.t_quantile import two_sided_quantile
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict

SUREST = 1 - 1e-12
"""Near enough to certainty for any factor."""


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    groups = evidence.by_group
    grouped = len(groups) < len(evidence.differences)
    error = standard_error(groups)
    if error is None:
        unit = "groups of items" if grouped else "items"
        return Verdict(action=Action.UNDERPOWERED, reason=f"a standard error needs 2 {unit} with a score under both")
    if grouped and error <= SAME_MEAN and 0.5 ** len(groups) > 1 - NormalDist().cdf(rules.gate_se_factor):
        reason = f"all {len(groups)} groups of items gain alike, and they are too few to know an error"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    factor = _of_few_groups(rules.gate_se_factor, len(groups)) if grouped else rules.gate_se_factor
    delta, needed = evidence.table.delta, factor * error
    accepted = delta - needed > SAME_MEAN
    relation = "exceeds" if accepted else "does not exceed"
    over = f" over {len(groups)} groups" if grouped else ""
    reason = f"the gain {delta:.4f} {relation} {factor:.3g} standard errors{over} ({needed:.4f})"
    return decided(accepted, reason, delta / error if error > SAME_MEAN else None)


def _of_few_groups(factor: float, groups: int) -> float:
    return two_sided_quantile(min(SUREST, 2 * NormalDist().cdf(factor) - 1), groups - 1)


PAIRED_SE = Policy(judge=_judge, fewest_items=lambda rules: 2)
