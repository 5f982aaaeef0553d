"""The gate policies by name: each is one object in a file of its own, and one line here."""

from collections.abc import Mapping

from skillopt_airflow.core.gate_policies.confirm import CONFIRM
from skillopt_airflow.core.gate_policies.e_process import E_PROCESS
from skillopt_airflow.core.gate_policies.mcnemar import MCNEMAR
from skillopt_airflow.core.gate_policies.no_regression import NO_REGRESSION
from skillopt_airflow.core.gate_policies.paired_se import PAIRED_SE
from skillopt_airflow.core.gate_policies.paper import PAPER
from skillopt_airflow.core.gate_policies.policy import Policy
from skillopt_airflow.core.training_groups import EvaluationGroup

POLICIES: Mapping[str, Policy] = {
    "paper": PAPER,
    "no_regression": NO_REGRESSION,
    "paired_se": PAIRED_SE,
    "mcnemar": MCNEMAR,
    "confirm": CONFIRM,
    "e_process": E_PROCESS,
}


def policy_of(rules: EvaluationGroup) -> Policy:
    """Return the policy that the rules choose."""
    return POLICIES[rules.gate_policy]
