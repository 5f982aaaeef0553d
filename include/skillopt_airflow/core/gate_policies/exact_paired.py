"""Policy exact_paired: an exact one-sided paired test of the mean difference must reach gate_alpha.

With single hard scores it is McNemar's test, a sign test; see `sign_flip_test` for all other scores.
"""

import math

from skillopt_airflow.core.gate_policies.policy import Evidence, Policy
from skillopt_airflow.core.groups import sums
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.permutation import sign_flip_test
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Apply the test to the differences; those of a group have one sign together."""
    observed = sums(evidence.differences, evidence.groups)
    wins, losses = signs(observed)
    what = f"{wins} wins and {losses} losses{' of groups' if len(observed) < len(evidence.differences) else ''}"
    fewest = fewest_wins(rules)
    if wins + losses < fewest:
        reason = f"{what} are fewer than the {fewest} differences that gate_alpha = {rules.gate_alpha:g} takes"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    p = sign_flip_test(observed)
    accepted = p <= rules.gate_alpha
    relation = "at most" if accepted else "above"
    action = Action.ACCEPT if accepted else Action.REJECT
    return Verdict(action=action, reason=f"p = {p:.4g} of {what} is {relation} {rules.gate_alpha:g}", statistic=p)


def fewest_wins(rules: EvaluationGroup) -> int:
    """Return the fewest wins without a loss that pass: of n there are 2^n patterns of signs, and one is all wins."""
    return math.ceil(-math.log2(rules.gate_alpha))


EXACT_PAIRED = Policy(judge=_judge, fewest_items=fewest_wins, has_level=True)
