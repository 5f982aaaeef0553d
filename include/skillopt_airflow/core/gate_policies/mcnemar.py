"""Policy mcnemar: the exact one-sided sign test on the differences must reach gate_alpha."""

from collections.abc import Mapping
from itertools import count

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.gate_policies.policy import Policy, decided
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.sign_test import sign_test
from skillopt_airflow.core.verdict import Action, Verdict

FEWEST_DISCORDANT = 5
"""Items with different outcomes below which a sign test cannot reach 5 %: 4 wins of 4 have p = 1/16."""


def judge_signs(changes: Mapping[str, float], rules: EvaluationGroup, where: str = "") -> Verdict:
    """Apply the sign test to differences by item id."""
    wins, losses = signs(changes.values())
    counts = f"{wins} wins and {losses} losses{where}"
    if wins + losses < FEWEST_DISCORDANT:
        return Verdict(action=Action.UNDERPOWERED, reason=f"{counts} are fewer than {FEWEST_DISCORDANT} differences")
    p = sign_test(wins, losses)
    accepted = p <= rules.gate_alpha
    relation = "at most" if accepted else "above"
    return decided(accepted, f"p = {p:.4g} of {counts} is {relation} {rules.gate_alpha:g}", p)


def fewest_wins(rules: EvaluationGroup) -> int:
    """Return the fewest wins without a loss that pass the sign test."""
    return next(wins for wins in count(FEWEST_DISCORDANT) if sign_test(wins, 0) <= rules.gate_alpha)


MCNEMAR = Policy(judge=lambda evidence, rules: judge_signs(evidence.differences, rules), fewest_items=fewest_wins)
