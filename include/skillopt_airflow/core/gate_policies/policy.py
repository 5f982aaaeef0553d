"""A gate policy, and the evidence that it judges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from skillopt_airflow.core.groups import members
from skillopt_airflow.core.item_scores import Evaluation, missing_as_lost
from skillopt_airflow.core.paired import PairedTable, differences, paired, signs
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.verdict import Action, Verdict


@dataclass(frozen=True)
class FreshDraws:
    """Both skills run again on the items that they differed on."""

    differences: Mapping[str, float]
    coverage: float
    """Share of these items that have a fresh score under the skill with fewer of them."""
    missing: frozenset[str] = frozenset()
    """Items that only the current skill has a fresh score for."""


@dataclass(frozen=True)
class Evidence:
    """A candidate against the current skill."""

    table: PairedTable
    differences: Mapping[str, float]
    """Candidate less current, by item id."""
    missing: frozenset[str] = frozenset()
    """Items that only the current skill has a score for."""
    fresh: FreshDraws | None = None
    """None until the fresh draws have been made."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Groups of the items that have one, by id."""

    @property
    def not_scored(self) -> frozenset[str]:
        """Items for which only the candidate lacks a score, or a fresh one."""
        return self.missing if self.fresh is None else self.missing | self.fresh.missing

    @property
    def by_group(self) -> list[list[float]]:
        """The differences, in lists that are independent of each other."""
        return members(self.differences, self.groups)


@dataclass(frozen=True)
class Policy:
    """A rule for accepting candidates; its parameters are knobs of EvaluationGroup."""

    judge: Callable[[Evidence, EvaluationGroup], Verdict]
    """Judges a candidate whose mean is strictly better; the reason says what was found beyond the means."""
    fewest_items: Callable[[EvaluationGroup], int] = lambda rules: 1
    """Number of items, or of groups of items, below which not even a candidate that wins all of them is accepted."""
    needs_fresh_draws: bool = False
    has_level: bool = False
    """Accepts what changes nothing in a share of gate_alpha at most."""
    missing_may_decide: bool = False
    """Accept also what would not be accepted if the items that only the candidate lacks a score for were lost."""


def decided(accepted: bool, reason: str, statistic: float | None) -> Verdict:
    """Return the verdict of a test that came to a result."""
    return Verdict(action=Action.ACCEPT if accepted else Action.REJECT, reason=reason, statistic=statistic)


def evidence_of(
    candidate: Evaluation,
    current: Evaluation,
    rules: EvaluationGroup,
    confirmation: tuple[Evaluation, Evaluation] | None = None,
) -> Evidence:
    """Pair two evaluations, and the fresh draws of (candidate, current) if there are any."""
    changes = differences(candidate, current, rules)
    return Evidence(
        table=paired(candidate, current, rules),
        differences=changes,
        missing=frozenset(current.scores.keys() - candidate.scores.keys()),
        fresh=None if confirmation is None else _fresh(discordant(changes), confirmation, rules),
        groups=current.groups | candidate.groups,
    )


def worst_case(
    candidate: Evaluation,
    current: Evaluation,
    rules: EvaluationGroup,
    confirmation: tuple[Evaluation, Evaluation] | None,
) -> Evidence:
    """Return the evidence with every item lost, fresh draws included, that only the candidate has no score for."""
    lost = missing_as_lost(candidate, current)
    if confirmation is None:
        return evidence_of(lost, current, rules)
    fresh, other = confirmation
    # The fresh draws were of items that both had a score for.
    never_drawn = {item: score for item, score in current.scores.items() if item not in candidate.scores}
    other = other.model_copy(update={"scores": other.scores | never_drawn})
    return evidence_of(lost, current, rules, (missing_as_lost(fresh, other), other))


def discordant(changes: Mapping[str, float]) -> tuple[str, ...]:
    """Return the sorted ids of the items with different outcomes."""
    return tuple(sorted(item for item, change in changes.items() if any(signs([change]))))


def _fresh(items: tuple[str, ...], confirmation: tuple[Evaluation, Evaluation], rules: EvaluationGroup) -> FreshDraws:
    candidate, current = (
        Evaluation(scores={item: drawn.scores[item] for item in items if item in drawn.scores})
        for drawn in confirmation
    )
    fewer = min(len(candidate.scores), len(current.scores))
    return FreshDraws(
        differences(candidate, current, rules),
        coverage=fewer / len(items) if items else 0.0,
        missing=frozenset(current.scores.keys() - candidate.scores.keys()),
    )
