"""A gate policy, and the evidence that it judges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.paired import PairedTable, differences, paired
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Verdict


@dataclass(frozen=True)
class Evidence:
    """A candidate against the current skill."""

    table: PairedTable
    differences: Mapping[str, float]
    """Candidate less current, by item id."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Groups of the items that have one, by id."""


@dataclass(frozen=True)
class Policy:
    """A rule for accepting candidates; its parameters are knobs of EvaluationGroup."""

    judge: Callable[[Evidence, EvaluationGroup], Verdict]
    """Judges a candidate whose mean is strictly better; the reason says what was found beyond the means."""
    fewest_items: Callable[[EvaluationGroup], int] = lambda rules: 1
    """Number of items, or of groups of items, below which not even a candidate that wins all of them is accepted."""
    has_level: bool = False
    """True if it accepts at most a share gate_alpha of the candidates that change nothing. Then an acceptance must
    also hold with the items that only one skill has a score for counted against the candidate."""


def evidence_of(candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> Evidence:
    """Pair two evaluations."""
    return Evidence(
        table=paired(candidate, current, rules),
        differences=differences(candidate, current, rules),
        groups=current.groups | candidate.groups,
    )
