"""What it takes to be accepted: one pure function a gate policy, of the paired differences and the rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.item_scores import Evaluation, covers
from skillopt_airflow.core.paired import SAME_MEAN, PairedTable, differences, paired, signs, standard_error
from skillopt_airflow.core.sign_test import e_value, sign_test
from skillopt_airflow.core.verdict import Action, Verdict

FEWEST_DISCORDANT = 5
"""Items with different outcomes below which a sign test cannot reach 5 %: 4 wins of 4 have p = 1/16."""


@dataclass(frozen=True)
class FreshDraws:
    """Both skills run again on the items that they differed on."""

    differences: Mapping[str, float]
    coverage: float
    """Share of these items that have a fresh score, of the skill with fewer."""


@dataclass(frozen=True)
class Evidence:
    """A candidate against the current skill."""

    table: PairedTable
    differences: Mapping[str, float]
    """Candidate less current, by item id."""
    missing: frozenset[str] = frozenset()
    """Items that only the current skill has a score for."""
    fresh: FreshDraws | None = None
    """None when there are none yet."""


class Policy(Protocol):
    """Judges a candidate whose mean is strictly better; accept, reject, indecisive or underpowered."""

    def __call__(self, evidence: Evidence, rules: EvaluationGroup) -> Verdict:
        """The verdict; its reason says what was found beyond the means."""


def judge(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """What the chosen policy says; whatever it is, a candidate that is not strictly better is rejected."""
    table = evidence.table
    if not table.better:
        reason = f"{table.score:.4f} is not better than current {table.other_score:.4f}"
        return Verdict(action=Action.REJECT, reason=reason)
    return POLICIES[rules.gate_policy](evidence, rules)


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
    )


def discordant(changes: Mapping[str, float]) -> tuple[str, ...]:
    """The sorted ids of the items with different outcomes."""
    return tuple(sorted(item for item, change in changes.items() if any(signs([change]))))


def unknown_protected_items(item_ids: Iterable[str], rules: EvaluationGroup) -> tuple[str, ...]:
    """Protected items that the selection split does not have: a misspelt one would protect nothing."""
    known = set(item_ids)
    return tuple(item for item in rules.gate_protected_items if item not in known)


def paper(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """Strictly better is enough; on small noisy splits 30 to 45 % of the candidates that change nothing are."""
    return Verdict(action=Action.ACCEPT)


def no_regression(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """No protected item may lose.

    An item that current has no score for cannot lose; one that only the candidate has none for decides nothing.
    """
    protected = rules.gate_protected_items
    lost = [item for item in protected if signs([evidence.differences.get(item, 0.0)]) == (0, 1)]
    if lost:
        return Verdict(action=Action.REJECT, reason=f"protected items lose: {', '.join(lost)}")
    unseen = [item for item in protected if item in evidence.missing]
    if unseen:
        reason = f"protected items have no score under the candidate: {', '.join(unseen)}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return Verdict(action=Action.ACCEPT)


def paired_se(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """The mean difference must exceed gate_se_factor standard errors over the items.

    With the default of 2, at most 3.7 % of the candidates that change nothing pass, on 0/1 scores of 9 items or
    more. The normal distribution's 2.3 % would promise too much: on few differences, 4 wins and no loss pass.
    """
    changes = evidence.differences.values()
    error = standard_error(changes)
    if error is None:
        return Verdict(action=Action.UNDERPOWERED, reason="a standard error needs 2 items with a score under both")
    delta, needed = evidence.table.delta, rules.gate_se_factor * error
    accepted = delta - needed > SAME_MEAN
    relation = "exceeds" if accepted else "does not exceed"
    return Verdict(
        action=Action.ACCEPT if accepted else Action.REJECT,
        reason=f"the gain {delta:.4f} {relation} {rules.gate_se_factor:g} standard errors ({needed:.4f})",
        statistic=delta / error if error > SAME_MEAN else None,
    )


def mcnemar(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """The exact one-sided sign test on the differences must reach gate_alpha."""
    return _sign_test(evidence.differences, rules, "")


def confirm(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """The sign test on fresh draws alone, of the items that differed: selection on the first draws cannot help."""
    fresh = evidence.fresh
    if fresh is None:
        count = len(discordant(evidence.differences))
        reason = f"fresh draws are missing, of the {count} items on which the two skills differ"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    if fresh.coverage < rules.min_coverage:
        reason = f"coverage {fresh.coverage:.3f} of the fresh draws is below {rules.min_coverage}"
        return Verdict(action=Action.INDECISIVE, reason=reason)
    return _sign_test(fresh.differences, rules, " on fresh draws")


def e_process(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
    """The E-value of the wins and losses must reach 1/gate_alpha."""
    wins, losses = signs(evidence.differences.values())
    value, needed = e_value(wins, losses), 1 / rules.gate_alpha
    accepted = value >= needed
    relation = "at least" if accepted else "below"
    return Verdict(
        action=Action.ACCEPT if accepted else Action.REJECT,
        reason=f"E = {value:.4g} of {_counts(wins, losses)} is {relation} {needed:g}",
        statistic=value,
    )


POLICIES: Mapping[str, Policy] = {
    "paper": paper,
    "no_regression": no_regression,
    "paired_se": paired_se,
    "mcnemar": mcnemar,
    "confirm": confirm,
    "e_process": e_process,
}


def to_confirm(candidate: Evaluation, current: Evaluation, rules: EvaluationGroup) -> tuple[str, ...]:
    """The sorted ids that both skills must run again before policy confirm can decide; empty if nothing hangs on it."""
    if not rules.use_gate or rules.gate_policy != "confirm" or not covers(candidate, rules):
        return ()
    if not paired(candidate, current, rules).better:
        return ()
    return discordant(differences(candidate, current, rules))


def _fresh(items: tuple[str, ...], confirmation: tuple[Evaluation, Evaluation], rules: EvaluationGroup) -> FreshDraws:
    candidate, current = (
        Evaluation(scores={item: drawn.scores[item] for item in items if item in drawn.scores})
        for drawn in confirmation
    )
    fewer = min(len(candidate.scores), len(current.scores))
    return FreshDraws(differences(candidate, current, rules), coverage=fewer / len(items) if items else 0.0)


def _sign_test(changes: Mapping[str, float], rules: EvaluationGroup, where: str) -> Verdict:
    wins, losses = signs(changes.values())
    if wins + losses < FEWEST_DISCORDANT:
        reason = f"{_counts(wins, losses)}{where} are fewer than {FEWEST_DISCORDANT} differences"
        return Verdict(action=Action.UNDERPOWERED, reason=reason)
    p = sign_test(wins, losses)
    accepted = p <= rules.gate_alpha
    relation = "at most" if accepted else "above"
    return Verdict(
        action=Action.ACCEPT if accepted else Action.REJECT,
        reason=f"p = {p:.4g} of {_counts(wins, losses)}{where} is {relation} {rules.gate_alpha:g}",
        statistic=p,
    )


def _counts(wins: int, losses: int) -> str:
    return f"{wins} wins and {losses} losses"
