"""Skills under every combination of some targets and harnesses, on the same items: what becomes of each there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from pydantic import AwareDatetime

from skillopt_airflow.core.budget import ModelPrice, Spent
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.failure_reasons import FailureReason
from skillopt_airflow.core.harnesses import HarnessName
from skillopt_airflow.core.item_scores import Evaluation, Metric, covers
from skillopt_airflow.core.paired import PairedTable, interval, paired
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import RolloutResult, Split, Status, UnitInterval, Value


class MatrixCell(Value):
    """A target and a harness under which the skills of a matrix are compared, and what the run settled for them."""

    target: str
    harness: HarnessName
    image: str
    """Digest of the sandbox image."""
    price: ModelPrice | None
    """The target's, when the run began; None if it is not known."""


class RolloutCost(Value):
    """The costs of the scored rollouts of a skill in a cell, whichever run made them."""

    rollouts: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """US dollars at the target's price in this run; None if that is not known. A judge's calls are not in it."""

    @property
    def tokens(self) -> float | None:
        """Mean tokens of a rollout, read and written; None without one."""
        return (self.prompt_tokens + self.completion_tokens) / self.rollouts if self.rollouts else None


class Measurement(NamedTuple):
    """A skill in a cell, as it was measured."""

    evaluation: Evaluation
    failed: Sequence[RolloutResult]
    """Of each item without a score its last failed rollout, if it has one."""
    cost: RolloutCost


class SkillInCell(Value):
    """A skill under one target and harness."""

    score: UnitInterval | None
    """Mean of the gate metric; None, like its interval, where too few items have a score to say anything."""
    low: UnitInterval | None
    """Lower end of the 95 % interval."""
    high: UnitInterval | None
    items: int
    """Items that have a score."""
    coverage: UnitInterval
    """Share of the items that have a score."""
    failures: dict[Status, int]
    """Items whose rollouts ended without a score."""
    missing: int
    """Items without a stored rollout, such as those that were given up after the first ones had failed alike."""
    reason: FailureReason | None
    """The most frequent reason of the failures."""
    cost: RolloutCost
    against_first: PairedTable | None
    """The skill against the first one on the items that both have a score for; None for the first one itself, and where
    one of the two has no score."""

    @classmethod
    def of(cls, measured: Measurement, first: Measurement, rules: EvaluationGroup) -> Self:
        """Conclude from a measurement, beside that of the first skill in the same cell."""
        evaluation, decided = measured.evaluation, _decides(measured.evaluation, rules)
        low, high = interval(evaluation, rules) if decided else (None, None)
        compared = measured is not first and decided and _decides(first.evaluation, rules)
        return cls(
            score=evaluation.gate_mean(rules) if decided else None,
            low=low,
            high=high,
            items=len(evaluation.scores),
            coverage=evaluation.coverage,
            failures=dict(sorted(Counter(one.status for one in measured.failed).items())),
            missing=evaluation.size - len(evaluation.scores) - len(measured.failed),
            reason=FailureReason.of(measured.failed, evaluation.size),
            cost=measured.cost,
            against_first=paired(evaluation, first.evaluation, rules) if compared else None,
        )


class CellResult(Value):
    """All skills under one target and harness."""

    target: str
    harness: str
    skills: tuple[SkillInCell, ...]
    """In the order of the matrix's skills."""

    @classmethod
    def of(cls, cell: MatrixCell, measured: Sequence[Measurement], rules: EvaluationGroup) -> Self:
        """Conclude from the measurements of all skills, the one that the others are compared with first."""
        skills = tuple(SkillInCell.of(one, measured[0], rules) for one in measured)
        return cls(target=cell.target, harness=cell.harness, skills=skills)


class ComparedSkill(Value):
    """A skill of a matrix."""

    source: str
    """The skill as the user named it: seed, champion, a version, an address, or the beginning of a text."""
    version: str = ""
    """The published version with this text; empty if there is none."""
    sha256: str
    tokens: int
    """Roughly the tokens of its text."""


class MatrixRow(NamedTuple):
    """One skill in one cell, with the names of both."""

    cell: CellResult
    skill: ComparedSkill
    result: SkillInCell


class TransferMatrix(Document):
    """The result of a run of the transfer DAG."""

    benchmark: str
    run: str
    created: AwareDatetime
    """UTC, when the run was prepared."""
    split: Split
    metric: Metric
    items: int
    """Items that every skill ran on in every cell."""
    draws: int
    """Rollouts of each item, whose mean is its score."""
    min_coverage: UnitInterval
    """Share of the items that had to have a score."""
    skills: tuple[ComparedSkill, ...]
    """The first one is what the others are compared with."""
    cells: tuple[CellResult, ...]
    spent: Spent
    """What the run itself paid; stored rollouts of other runs cost it nothing."""

    @property
    def standin(self) -> bool:
        """Return whether a target is the offline stand-in, which is no language model."""
        return any("stand-in" in target for target in self.targets)

    @property
    def targets(self) -> list[str]:
        """The targets, in the order in which they were named."""
        return list(dict.fromkeys(cell.target for cell in self.cells))

    @property
    def harnesses(self) -> list[str]:
        """The harnesses, in the order in which they were named."""
        return list(dict.fromkeys(cell.harness for cell in self.cells))

    def result(self, target: str, harness: str, place: int) -> SkillInCell:
        """Return the result of a skill, by its place, in one cell; raises KeyError where there is no such cell."""
        return {(cell.target, cell.harness): cell for cell in self.cells}[target, harness].skills[place]

    def rows(self) -> Iterator[MatrixRow]:
        """Yield every skill in every cell, cell by cell."""
        for cell in self.cells:
            for skill, result in zip(self.skills, cell.skills, strict=True):
                yield MatrixRow(cell, skill, result)

    @property
    def undecided(self) -> list[MatrixRow]:
        """The skills in cells that have no score."""
        return [row for row in self.rows() if row.result.score is None]


def _decides(evaluation: Evaluation, rules: EvaluationGroup) -> bool:
    # `min_coverage` may be 0, and there is no mean of nothing.
    return bool(evaluation.scores) and covers(evaluation, rules)
