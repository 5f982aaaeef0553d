"""Policy mcnemar: an exact one-sided test of the mean difference must reach gate_alpha.

With single hard scores it is McNemar's, a sign test; see `sign_flip_test` for all other ones.
"""

from collections.abc import Mapping
from itertools import count

from skillopt_airflow.core.gate_policies.policy import Policy, decided
from skillopt_airflow.core.groups import sums
from skillopt_airflow.core.paired import signs
from skillopt_airflow.core.permutation import sign_flip_test
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict


def judge_differences(
    changes: Mapping[str, float], groups: Mapping[str, str], rules: EvaluationGroup, where: str = ""
) -> Verdict:
    """Apply the test to differences by item id; those of a group have one sign together."""
    observed = sums(changes, groups)
    wins, losses = signs(observed)
    what = f"{wins} wins and {losses} losses{' of groups' if len(observed) < len(changes) else ''}{where}"
    fewest = fewest_wins(rules)
    if wins + losses < fewest:
        reason = f"{what} are fewer than the {fewest} differences that gate_alpha = {rules.gate_alpha:g} takes"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    p = sign_flip_test(observed)
    accepted = p <= rules.gate_alpha
    relation = "at most" if accepted else "above"
    return decided(accepted, f"p = {p:.4g} of {what} is {relation} {rules.gate_alpha:g}", p)


def fewest_wins(rules: EvaluationGroup) -> int:
    """Return the fewest wins without a loss that pass: of n there are 2^n patterns of signs, and one is all wins."""
    return next(wins for wins in count(1) if 0.5**wins <= rules.gate_alpha)


MCNEMAR = Policy(
    judge=lambda evidence, rules: judge_differences(evidence.differences, evidence.groups, rules),
    fewest_items=fewest_wins,
    has_level=True,
)
