"""Scoring any skill on any split, alone or against another one, outside of a training."""

import logging
from typing import TYPE_CHECKING, ClassVar

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.measured_score import MeasuredScore, require_coverage
from skillopt_airflow.core.paired import PairedTable, paired
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import JsonObject, Split, Status, Value
from skillopt_airflow.training.data_checks import check_measured
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.artifacts import ArtifactStore

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


class Question(Value):
    """The skills that are scored, and the split; `other` may be empty."""

    FORM: ClassVar[tuple[str, str, str]] = ("skill", "compare_to", "split")
    """The fields of the form that ask it."""

    skill: str
    other: str
    split: Split


def find_skill(asked: str, seed: SkillDocument, artifacts: "ArtifactStore", client: "S3Client") -> SkillDocument:
    """Find the skill that a user named.

    Args:
        asked: `seed`, `champion`, a version such as `v0003-0123456789ab`, an `s3://` address, or a skill's text.
        seed: the benchmark's seed skill.
        artifacts: where versions and the champion are published.
        client: reads s3:// addresses.

    Raises:
        ConfigError: it is none of these, or there is no champion.
        StoreError: nothing is stored under the version or address.
    """
    from skillopt_airflow.store.artifacts import is_version
    from skillopt_airflow.store.objects import ObjectStore

    if asked == "seed":
        return seed
    if asked == "champion":
        champion = artifacts.champion.read()
        if champion is None:
            raise ConfigError("skill champion: nothing is published for this benchmark and target yet")
        return SkillDocument(artifacts.read(champion.version).skill)
    if is_version(asked):
        return SkillDocument(artifacts.read(asked).skill)
    if asked.startswith("s3://"):
        bucket, _, key = asked.removeprefix("s3://").partition("/")
        return SkillDocument(ObjectStore(client, bucket).get_text(key))
    if any(character.isspace() for character in asked.strip()):
        return SkillDocument(asked)
    raise ConfigError(
        f"skill {asked!r}: expected seed, champion, a version such as v0003-0123456789ab, an s3:// address, or the "
        "text of a skill"
    )


def scoring_plan(run: TrainingRun, question: Question, skills: list[SkillDocument]) -> list[JsonObject]:
    """Store the skills as the run's versions 0 and 1, and plan their rollouts; equal texts share theirs."""
    keys, item_ids = [], ids(run.item_refs(question.split))
    for version, skill in enumerate(skills):
        key = run.keys.skill(version)
        run.store.put_text(key, skill.text)
        if skill not in skills[:version]:
            keys.append(key)
    chunks = chunks_of(run.config, "score", keys, question.split, item_ids, range(run.config.evaluation.draws))
    return store_plan(run, run.timeline[0], "score", chunks)


def scorecard(run: TrainingRun, question: Question) -> Scorecard:
    """Compute the scores and their comparison, and store them as evaluation.json.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score.
    """
    rules = run.config.evaluation
    sources = [question.skill, question.other] if question.other else [question.skill]
    names = ("first", "second")[: len(sources)]
    skills = {name: run.skill(version) for version, name in enumerate(names)}
    run.merge_parts(question.split, skills.values())
    check_measured(run, question.split, skills)
    evaluations = [measured(run, question.split, run.skill(version)) for version in range(len(sources))]
    scores = []
    for version, (source, evaluation) in enumerate(zip(sources, evaluations, strict=True)):
        require_coverage(evaluation, rules, source[:60])
        scores.append(SkillScore.of(evaluation, rules, source=source, sha256=run.skill(version).sha256))
    compared = paired(evaluations[0], evaluations[1], rules) if question.other else None
    card = Scorecard(
        benchmark=run.ref.benchmark,
        run=run.ref.run,
        target=str(run.config.model.target),
        harness=run.config.model.harness,
        split=question.split,
        metric=rules.gate_metric,
        skill=scores[0],
        other=scores[1] if question.other else None,
        paired=compared,
    )
    run.store.put_model(run.keys.scorecard, card)
    for score in scores:
        log.info(
            "%s: %.4f [%.4f, %.4f] on %d items", score.source[:60], score.score, score.low, score.high, score.items
        )
    if compared is not None:
        log.info(
            "%d wins, %d losses, %d ties; difference %+.4f [%+.4f, %+.4f]",
            *(compared.wins, compared.losses, compared.ties, compared.delta, compared.low, compared.high),
        )
    return card
