"""The screen before the gate: a candidate that is worse on its step's own batch is not measured further.

It is the acceptance test on a minibatch of GEPA (arXiv 2507.19457), with one difference: a tie goes on.
"""

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.paired import PairedTable, paired
from skillopt_airflow.core.training_groups import EvaluationGroup


class Screening(Document):
    """A candidate against the current skill on its step's batch."""

    candidate: str
    """SHA-256 of its text."""
    items: int
    """Items of the batch."""
    against_current: PairedTable
    """Over the items that both have a score for."""
    passed: bool
    """False if the candidate is worse; True, too, if too few items have both scores to tell."""


def screened(sha256: str, candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> Screening:
    """Compare a candidate, by its text's hash, with the current skill; both are measured on the whole batch."""
    table = paired(candidate, current, rules)
    decides = table.pairs >= rules.min_coverage * current.size
    return Screening(candidate=sha256, items=current.size, against_current=table, passed=not (decides and table.worse))
