"""Policy e_process: the evidence of betting on the differences must reach 1/gate_alpha."""

import math
from itertools import count

from skillopt_airflow.core.betting import log_betting
from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, decided
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    groups = evidence.by_group
    largest = max(map(len, groups))
    # A group's sum, in parts of the most that one could lose: between -1 and 1.
    observed = [math.fsum(group) / largest for group in groups]
    value, needed = math.exp(min(700.0, log_betting(observed))), 1 / rules.gate_alpha
    wins, losses = signs(observed)
    relation = "at least" if value >= needed else "below"
    what = f"{wins} wins and {losses} losses{' of groups' if largest > 1 else ''}"
    return decided(value >= needed, f"E = {value:.4g} of {what} is {relation} {needed:g}", value)


def _fewest(rules: EvaluationGroup) -> int:
    return next(wins for wins in count(1) if log_betting([1.0] * wins) >= -math.log(rules.gate_alpha))


E_PROCESS = Policy(judge=_judge, fewest_items=_fewest, has_level=True)
