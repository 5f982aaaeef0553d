"""Policy e_process: the evidence of betting on the differences, one by one, must reach 1/gate_alpha."""

import math
from itertools import count

from skillopt_airflow.core.betting import highest_capital
from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, decided
from skillopt_airflow.core.groups import members
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import sha256
from skillopt_airflow.core.verdict import Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    groups = _in_blind_order(evidence)
    largest = max(map(len, groups))
    # A group's sum, in parts of the most that one could lose: between -1 and 1.
    observed = [math.fsum(group) / largest for group in groups]
    needed = 1 / rules.gate_alpha
    value = highest_capital(observed, needed)
    wins, losses = signs(observed)
    relation = "at least" if value >= needed else "below"
    what = f"{wins} wins and {losses} losses{' of groups' if largest > 1 else ''}"
    return decided(value >= needed, f"betting on {what} brought E to {value:.4g}, {relation} {needed:g}", value)


def _in_blind_order(evidence: Evidence) -> list[list[float]]:
    """Return the differences by group, in an order that is always the same and has nothing to do with the data's."""
    places = {item: sha256(item) for item in evidence.differences}
    groups = {places[item]: evidence.groups.get(item, "") for item in places}
    return members({places[item]: difference for item, difference in evidence.differences.items()}, groups)


def _fewest(rules: EvaluationGroup) -> int:
    enough = 1 / rules.gate_alpha
    return next(wins for wins in count(1) if highest_capital([1.0] * wins, enough) >= enough)


E_PROCESS = Policy(judge=_judge, fewest_items=_fewest, has_level=True)
