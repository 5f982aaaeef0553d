"""Policy e_process: the E-value of the wins and losses must reach 1/gate_alpha."""

from itertools import count

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, decided
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.sign_test import e_value
from skillopt_airflow.core.verdict import Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    wins, losses = signs(evidence.differences.values())
    value, needed = e_value(wins, losses), 1 / rules.gate_alpha
    relation = "at least" if value >= needed else "below"
    reason = f"E = {value:.4g} of {wins} wins and {losses} losses is {relation} {needed:g}"
    return decided(value >= needed, reason, value)


def _fewest(rules: EvaluationGroup) -> int:
    return next(wins for wins in count(1) if e_value(wins, 0) >= 1 / rules.gate_alpha)


E_PROCESS = Policy(judge=_judge, fewest_items=_fewest)
