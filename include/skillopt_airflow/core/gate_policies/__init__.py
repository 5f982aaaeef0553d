"""The gate policies by name: each is one object in a file of its own, and one line here."""

from collections.abc import Mapping

from skillopt_airflow.core.gate_policies.exact_paired import EXACT_PAIRED
from skillopt_airflow.core.gate_policies.policy import Policy
from skillopt_airflow.core.gate_policies.strict import STRICT
from skillopt_airflow.core.training_groups import EvaluationGroup

POLICIES: Mapping[str, Policy] = {"strict": STRICT, "exact_paired": EXACT_PAIRED}


def policy_of(rules: EvaluationGroup) -> Policy:
    """Return the policy that the rules choose."""
    return POLICIES[rules.gate_policy]
