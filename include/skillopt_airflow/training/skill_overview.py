"""A published skill in a few figures: its champion, what that scored when it was published, and the newest nights."""

from collections.abc import Sequence
from typing import NamedTuple

from skillopt_airflow.core.item_scores import ItemScore, metric_value
from skillopt_airflow.core.night_verdict import NightPoint
from skillopt_airflow.core.skill import SkillDocument, tokens_of
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, SkillManifest
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys, target_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.night_series import read_series

SHOWN_NIGHTS = 30
"""Nights of the line that shows the evidence."""


class Buckets(NamedTuple):
    """The buckets in which the skills of a benchmark are."""

    runs: ObjectStore
    artifacts: ObjectStore
    prefix: str
    """Of the keys in both."""

    def published(self, benchmark: str, target: str) -> ArtifactStore:
        """Return what is published for a target model."""
        return ArtifactStore(self.artifacts, ArtifactKeys(self.prefix, benchmark, target))

    def nights(self, benchmark: str, target: str) -> RegateKeys:
        """Return the keys of a target model's nights."""
        return RegateKeys(self.prefix, benchmark, target)


class StatedScore(NamedTuple):
    """The score of a skill when it was published, by the metric of its run's gate."""

    score: float
    low: float
    """Of the 95 % interval."""
    high: float
    split: Split
    items: int

    @property
    def flatters(self) -> bool:
        """True where the items are those by which the skill was chosen."""
        return self.split is Split.VAL


class Champion(NamedTuple):
    """The version that deployments get."""

    alias: Alias
    skill: str
    manifest: SkillManifest
    stated: StatedScore | None

    @property
    def tokens(self) -> int:
        """Return roughly how many tokens the skill has."""
        return tokens_of(SkillDocument(self.skill))


class SkillOverview(NamedTuple):
    """The skill of a benchmark and target, as a line of a list shows it."""

    champion: Champion | None
    """None where nothing is published for this target."""
    nights: Sequence[NightPoint]
    """The newest ones."""


def targets(buckets: Buckets, benchmark: str) -> list[str]:
    """Return the target models that have published skills or nights, sorted; two listings whatever they hold."""
    published = buckets.artifacts.list_folders(ArtifactKeys.of_benchmark(buckets.prefix, benchmark))
    measured = buckets.runs.list_folders(RegateKeys.of_benchmark(buckets.prefix, benchmark))
    return sorted(set(map(target_of, [*published, *measured])))


def overview(buckets: Buckets, benchmark: str, target: str) -> SkillOverview:
    """Read a line of the list: four objects.

    Raises:
        StoreError: one of them is not what it should be.
    """
    champion = champion_of(buckets.published(benchmark, target))
    return SkillOverview(champion, read_series(buckets.runs, buckets.nights(benchmark, target), SHOWN_NIGHTS))


def champion_of(artifacts: ArtifactStore) -> Champion | None:
    """Return the champion with its manifest; None before the first publication.

    Raises:
        StoreError: the version is not there, or not what its manifest describes.
    """
    alias = artifacts.champion.read()
    if alias is None:
        return None
    skill, manifest = artifacts.read(alias.version)
    return Champion(alias, skill, manifest, stated_score(manifest))


def stated_score(manifest: SkillManifest) -> StatedScore | None:
    """Return the manifest's score on items that chose nothing, or else on the selection split; None without any."""
    scores = manifest.best_scores
    split, score = (Split.VAL, scores.val) if scores.promised is None else (Split.TEST, scores.promised)
    if score is None:
        return None
    rules = EvaluationGroup.model_validate(manifest.config.get("evaluation", {}))
    means = ItemScore(hard=score.hard, soft=score.soft)
    mean = metric_value(means, rules.gate_metric, rules.gate_mixed_weight)
    return StatedScore(mean, score.low, score.high, split, score.items)
