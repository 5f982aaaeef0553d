"""Comparison of skills on the same items, for several targets, harnesses and splits."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from pydantic import AwareDatetime

from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.training_groups import EvaluationGroup, PolicyName
from skillopt_airflow.core.gate.decision import decide
from skillopt_airflow.core.gate.item_scores import Evaluation, Metric, covers
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.paired import PairedTable, interval, paired
from skillopt_airflow.core.gate.policies import Verdict
from skillopt_airflow.core.run.budget import Spending
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.types import RolloutResult, Split, Status, UnitInterval, Value


class MatrixRequest(Value):
    """The skills of a matrix, of which the first is the baseline, and their targets, harnesses and splits."""

    skills: tuple[str, ...]
    targets: tuple[str, ...]
    harnesses: tuple[HarnessName, ...]
    splits: tuple[Split, ...]


class RolloutCost(Value):
    """The costs of a skill's scored rollouts in a cell, including those of other runs."""

    rollouts: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """US dollars at the target's price in this run; None if unknown. Excludes the calls of a judge."""

    @property
    def tokens(self) -> float | None:
        """Mean tokens per rollout, read and written; None without a rollout."""
        return (self.prompt_tokens + self.completion_tokens) / self.rollouts if self.rollouts else None


class Measurement(NamedTuple):
    """The raw results of a skill in a cell."""

    evaluation: Evaluation
    by_type: tuple[TypeScore, ...]
    failed: Sequence[RolloutResult]
    """The last failed rollout of each item without a score, if the item has one."""
    cost: RolloutCost


class SkillInCell(Value):
    """The result of a skill for one target, harness and split."""

    score: UnitInterval | None
    """Mean of the gate metric. None, like its 95% interval, if too few items have a score."""
    low: UnitInterval | None
    high: UnitInterval | None
    items: int
    coverage: UnitInterval
    """Share of the items that have a score."""
    by_type: tuple[TypeScore, ...]
    failures: dict[Status, int]
    """Items whose rollouts ended without a score."""
    missing: int
    """Items without a stored rollout, such as those that were skipped after the first ones failed alike."""
    reason: FailureReason | None
    cost: RolloutCost
    against_first: PairedTable | None
    """The skill minus the baseline, on items with a score under both; None for the baseline, or without scores."""
    verdict: Verdict | None
    """The gate policy's verdict on the skill against the baseline. None if no policy was requested."""

    @classmethod
    def of(cls, measured: Measurement, first: Measurement, rules: EvaluationGroup, policy: PolicyName | None) -> Self:
        """Summarize a measurement and compare it with the baseline's in the same cell."""
        evaluation, decided = measured.evaluation, _decides(measured.evaluation, rules)
        low, high = interval(evaluation, rules) if decided else (None, None)
        is_first = measured is first
        compared = not is_first and decided and _decides(first.evaluation, rules)
        return cls(
            score=evaluation.gate_mean(rules) if decided else None,
            low=low,
            high=high,
            items=len(evaluation.scores),
            coverage=evaluation.coverage,
            by_type=measured.by_type,
            failures=dict(sorted(Counter(one.status for one in measured.failed).items())),
            missing=evaluation.size - len(evaluation.scores) - len(measured.failed),
            reason=FailureReason.of(measured.failed, evaluation.size),
            cost=measured.cost,
            against_first=paired(evaluation, first.evaluation, rules) if compared else None,
            verdict=None if is_first or policy is None else _verdict(evaluation, first.evaluation, rules, policy),
        )


class CellResult(Value):
    """The results of all skills for one target, harness and split."""

    target: str
    harness: str
    split: Split
    items: int
    skills: tuple[SkillInCell, ...]
    """In the order of the matrix's skills."""


class ComparedSkill(Value):
    """A skill of a matrix, with an estimate of its tokens."""

    source: str
    """The user's name of the skill: seed, champion, a version, a URL, or the beginning of its text."""
    version: str = ""
    """The published version with this text; empty if there is none."""
    sha256: str
    tokens: int


class MatrixRow(NamedTuple):
    """One skill in one cell."""

    cell: CellResult
    skill: ComparedSkill
    result: SkillInCell


class SkillMatrix(Document):
    """The result of a run of the evaluation DAG."""

    benchmark: str
    run: str
    created: AwareDatetime
    """UTC, when the run was prepared."""
    metric: Metric
    samples: int
    min_coverage: UnitInterval
    """Required share of items with a score."""
    policy: PolicyName | None
    skills: tuple[ComparedSkill, ...]
    """The first one is the baseline."""
    cells: tuple[CellResult, ...]
    """All combinations of target, harness and split."""
    spent: Spending
    """The costs of the run itself, without reused rollouts."""

    @property
    def standin(self) -> bool:
        return any("stand-in" in target for target in self.targets)

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(cell.target for cell in self.cells))

    @property
    def harnesses(self) -> list[str]:
        return list(dict.fromkeys(cell.harness for cell in self.cells))

    @property
    def splits(self) -> list[Split]:
        return list(dict.fromkeys(cell.split for cell in self.cells))

    def on(self, split: Split) -> dict[tuple[str, str], CellResult]:
        return {(cell.target, cell.harness): cell for cell in self.cells if cell.split == split}

    def rows(self) -> Iterator[MatrixRow]:
        """Yield every skill in every cell, cell by cell."""
        for cell in self.cells:
            for skill, result in zip(self.skills, cell.skills, strict=True):
                yield MatrixRow(cell, skill, result)

    @property
    def typed(self) -> bool:
        return any(row.result.by_type for row in self.rows())

    @property
    def undecided(self) -> list[MatrixRow]:
        return [row for row in self.rows() if row.result.score is None]

    @property
    def not_better(self) -> list[MatrixRow]:
        return [row for row in self.rows() if (found := row.result.verdict) is not None and not found.action.accepted]


def _decides(evaluation: Evaluation, rules: EvaluationGroup) -> bool:
    # If `min_coverage` is 0, there may be no scores.
    return bool(evaluation.scores) and covers(evaluation, rules)


def _verdict(skill: Evaluation, first: Evaluation, rules: EvaluationGroup, policy: PolicyName) -> Verdict:
    # Protected items are ids of the selection split, but a matrix can use other splits.
    asked = rules.model_copy(update={"use_gate": True, "gate_policy": policy, "gate_protected_items": ()})
    decision = decide(skill, first, first, asked)
    return Verdict(action=decision.action, reason=decision.reason, statistic=decision.statistic)
