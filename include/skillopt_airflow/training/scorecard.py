"""Scoring any skill on any split, alone or against another one, outside of a training."""

import logging
from typing import ClassVar

from pydantic import Field

from skillopt_airflow.core.density import density
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.measured_score import MeasuredScore, require_coverage
from skillopt_airflow.core.paired import PairedTable, paired
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import JsonObject, Split, Status, Value
from skillopt_airflow.training.data_checks import check_tables, measured_tables
from skillopt_airflow.training.evaluation import by_type, measured
from skillopt_airflow.training.rollout_plan import chunks_of, ids, store_plan, store_versions
from skillopt_airflow.training.run import TrainingRun

log = logging.getLogger(__name__)


class SkillScore(MeasuredScore):
    """One skill's scores on the split."""

    source: str
    """The skill as the user named it: seed, champion, a version, an address, or the text itself."""
    sha256: str
    score: float
    """Mean of the gate metric."""
    items: int
    """Number of items that have a score."""
    failures: dict[Status, int]
    density: float | None = None
    """Score for each 1,000 tokens of the skill; None where the document does not say."""


class Scorecard(Document):
    """The result of a run of the evaluation DAG."""

    benchmark: str
    run: str
    target: str
    harness: str
    split: Split
    metric: str
    skill: SkillScore
    other: SkillScore | None = None
    paired: PairedTable | None = None
    """`skill` against `other`, on the items that both have a score for."""
    other_splits: tuple["Scorecard", ...] = Field(default=(), exclude_if=lambda cards: not cards)
    """The results on the other splits, where all were asked for."""


class ScoringRequest(Value):
    """The skills that are scored, and the splits, of which the first is the result's; `other` may be empty."""

    FORM: ClassVar[tuple[str, str, str]] = ("skill", "compare_to", "split")
    """The fields of the form that ask it."""

    skill: str
    other: str
    splits: tuple[Split, ...]


def scoring_plan(run: TrainingRun, request: ScoringRequest, skills: list[SkillDocument]) -> list[JsonObject]:
    """Store the skills as the run's versions 0 and 1, and plan their rollouts; equal texts share theirs."""
    keys = store_versions(run, [skill.text for skill in skills])
    draws = range(run.config.evaluation.draws)
    chunks = [
        chunk
        for split in request.splits
        for chunk in chunks_of(run.config, "score", keys, split, ids(run.item_refs(split)), draws)
    ]
    return store_plan(run, run.timeline[0], "score", chunks)


def scorecard(run: TrainingRun, request: ScoringRequest) -> Scorecard:
    """Compute the scores and their comparison, and store them as evaluation.json.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score.
    """
    _check(run, request)
    first, *others = (_scorecard(run, request, split) for split in request.splits)
    card = first.model_copy(update={"other_splits": tuple(others)})
    run.store.put_model(run.keys.scorecard, card)
    return card


def _check(run: TrainingRun, request: ScoringRequest) -> None:
    names = ("first", "second") if request.other else ("first",)
    skills = {name: run.skill(version) for version, name in enumerate(names)}
    tables = {}
    for split in request.splits:
        for name, rows in measured_tables(run, split, skills).items():
            tables[name if len(request.splits) == 1 else f"{name}, {split}"] = rows
    check_tables(run, request.splits, tables)


def _scorecard(run: TrainingRun, request: ScoringRequest, split: Split) -> Scorecard:
    rules = run.config.evaluation
    sources = [request.skill, request.other] if request.other else [request.skill]
    evaluations = [measured(run, split, run.skill(version)) for version in range(len(sources))]
    scores = []
    for version, (source, evaluation) in enumerate(zip(sources, evaluations, strict=True)):
        require_coverage(evaluation, rules, f"{source[:60]} on the {split} split")
        skill = run.skill(version)
        dense = density(evaluation.gate_mean(rules), skill)
        types = by_type(run, split, evaluation)
        scores.append(
            SkillScore.of(evaluation, rules, source=source, sha256=skill.sha256, density=dense, by_type=types)
        )
    compared = paired(evaluations[0], evaluations[1], rules) if request.other else None
    card = Scorecard(
        benchmark=run.ref.benchmark,
        run=run.ref.run,
        target=str(run.config.model.target),
        harness=run.config.model.harness,
        split=split,
        metric=rules.gate_metric,
        skill=scores[0],
        other=scores[1] if request.other else None,
        paired=compared,
    )
    for score in scores:
        named = f"{split}, {score.source[:60]}"
        log.info("%s: %.4f [%.4f, %.4f] on %d items", named, score.score, score.low, score.high, score.items)
        for one in score.by_type:
            log.info("%s, %s: %.4f on %d items", named, one.task_type, one.score, one.items)
    if compared is not None:
        log.info(
            "%d wins, %d losses, %d ties; difference %+.4f [%+.4f, %+.4f]",
            *(compared.wins, compared.losses, compared.ties, compared.delta, compared.low, compared.high),
        )
    return card
