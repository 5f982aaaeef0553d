"""Policy confirm: the test of mcnemar on fresh draws alone, of the items that differed.

Selection on the first draws cannot help a candidate then.
"""

from skillopt_airflow.core.gate_policies.mcnemar import fewest_wins, judge_differences
from skillopt_airflow.core.gate_policies.policy import Evidence, Policy, discordant
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict


def _judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    fresh = evidence.fresh
    if fresh is None:
        count = len(discordant(evidence.differences))
        reason = f"fresh draws are missing, of the {count} items on which the two skills differ"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    if fresh.coverage < rules.min_coverage:
        reason = f"coverage {fresh.coverage:.3f} of the fresh draws is below {rules.min_coverage}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return judge_differences(fresh.differences, evidence.groups, rules, " on fresh draws")


CONFIRM = Policy(judge=_judge, fewest_items=fewest_wins, needs_fresh_draws=True, has_level=True)
