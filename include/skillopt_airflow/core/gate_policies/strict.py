"""Policy strict, the paper's: a strictly better mean is enough.

On small noisy splits, 30 to 45 % of the candidates that change nothing pass.
"""

from skillopt_airflow.core.gate_policies.policy import Policy
from skillopt_airflow.core.verdict import Action, Verdict

STRICT = Policy(judge=lambda evidence, rules: Verdict(action=Action.ACCEPT))
