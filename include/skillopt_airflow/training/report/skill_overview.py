"""A published skill: champion, scores, versions, moves of the alias, and nights."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.gate.item_scores import ItemScore, gate_value
from skillopt_airflow.core.gate.night_verdict import NightPoint
from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.core.values.skill import SkillDocument, tokens_of
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, PublishedSkill, SkillManifest
from skillopt_airflow.store.keys import ArtifactKeys, MatrixKeys, RegateKeys, target_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.training.champion.night_conclusion import DEMOTED, read_series
from skillopt_airflow.training.champion.target_change import TargetChangeReport

SHOWN_NIGHTS = 30
"""Number of nights in the evidence line."""


class Buckets(NamedTuple):
    """The buckets of runs and published skills."""

    runs: ObjectStore
    artifacts: ObjectStore
    prefix: str
    """Key prefix in both."""

    def published(self, benchmark: str, target: str) -> ArtifactStore:
        return ArtifactStore(self.artifacts, ArtifactKeys(self.prefix, benchmark, target))

    def nights(self, benchmark: str, target: str) -> RegateKeys:
        return RegateKeys(self.prefix, benchmark, target)


class StatedScore(NamedTuple):
    """A skill's score at publication, by its run's gate metric."""

    score: float
    low: float
    """Lower bound of the 95% interval."""
    high: float
    split: Split
    items: int

    @property
    def flatters(self) -> bool:
        """True if the skill was selected on these items, which makes its score optimistic."""
        return self.split is Split.VAL


class Champion(NamedTuple):
    """The champion with its manifest."""

    alias: Alias
    skill: str
    manifest: SkillManifest
    stated: StatedScore | None

    @property
    def tokens(self) -> int:
        return tokens_of(SkillDocument(self.skill))


class SkillOverview(NamedTuple):
    """A row of the list of skills."""

    champion: Champion | None
    """None if nothing is published for this target."""
    nights: Sequence[NightPoint]
    """The newest ones."""


def targets(buckets: Buckets, benchmark: str) -> list[str]:
    """Return the target models with published skills or nights, sorted; costs two listings."""
    published = buckets.artifacts.list_folders(ArtifactKeys.of_benchmark(buckets.prefix, benchmark))
    measured = buckets.runs.list_folders(RegateKeys.of_benchmark(buckets.prefix, benchmark))
    return sorted(set(map(target_of, [*published, *measured])))


def overview(buckets: Buckets, benchmark: str, target: str) -> SkillOverview:
    """Read a row of the list: four objects; raise StoreError if one is invalid."""
    champion = champion_of(buckets.published(benchmark, target))
    return SkillOverview(champion, read_series(buckets.runs, buckets.nights(benchmark, target), SHOWN_NIGHTS))


def champion_of(artifacts: ArtifactStore) -> Champion | None:
    """Return the champion with its manifest; None before the first publication.

    Raises:
        StoreError: the version is missing or doesn't match its manifest.
    """
    alias = artifacts.champion.read()
    if alias is None:
        return None
    skill, manifest = artifacts.read(alias.version)
    return Champion(alias, skill, manifest, stated_score(manifest))


def stated_score(manifest: SkillManifest) -> StatedScore | None:
    """Return the manifest's held-out score, else the one on the selection split; None without any."""
    scores = manifest.best_scores
    split, score = (Split.VAL, scores.val) if scores.promised is None else (Split.TEST, scores.promised)
    if score is None:
        return None
    rules = EvaluationGroup.model_validate(manifest.config.get("evaluation", {}))
    means = ItemScore(hard=score.hard, soft=score.soft)
    mean = gate_value(means, rules)
    return StatedScore(mean, score.low, score.high, split, score.items)


class Move(NamedTuple):
    """A move of the alias."""

    alias: Alias
    kind: str
    """published, rolled back or demoted."""


class VersionRow(NamedTuple):
    """A row of the versions table."""

    version: str
    published: PublishedSkill | None
    """None if it is incomplete or gone."""
    older: str
    """The previous version; empty for the first."""
    tokens: int
    added: int
    """Lines that the previous version lacks."""
    removed: int
    stated: StatedScore | None


class SkillDetails(NamedTuple):
    """The data of a skill's page."""

    champion: Champion | None
    moves: Sequence[Move]
    """The newest moves, the current one first."""
    versions: Sequence[str]
    """All version names, the newest first."""
    rows: Sequence[VersionRow]
    nights: Sequence[NightPoint]
    """In the order of conclusion."""
    changes: Sequence[TargetChangeReport]
    """Some of the comparisons of nights under this model and another one."""
    all_changes: int
    matrices: Sequence[SkillMatrix]
    """The newest matrices with the champion."""


VERSIONS = 20
"""Versions per page of the table."""
MOVES, NIGHTS, CHANGES, MATRICES = 30, 60, 10, 2
"""Maximum of each other kind that a page reads."""
THREADS = 10
"""Concurrent reads; equals an S3 client's connection pool."""


def read_details(buckets: Buckets, benchmark: str, target: str, page: int) -> SkillDetails:
    """Read a page of versions (from 1; larger numbers mean the last), concurrently; raise StoreError."""
    artifacts, keys = buckets.published(benchmark, target), buckets.nights(benchmark, target)
    with ThreadPoolExecutor(THREADS) as pool:
        nights = pool.submit(read_series, buckets.runs, keys, NIGHTS)
        champion, names = champion_of(artifacts), artifacts.list_versions()[::-1]
        matrices = pool.submit(_matrices, buckets, benchmark, champion)
        begin = min(page - 1, max(0, len(names) - 1) // VERSIONS) * VERSIONS
        wanted = names[begin : begin + VERSIONS + 1]
        read = dict(zip(wanted, pool.map(partial(read_version, artifacts), wanted), strict=True))
        moves, changes = _moves(artifacts, champion, pool), _changes(buckets, keys, pool)
        return SkillDetails(
            champion,
            moves,
            names,
            _rows(benchmark, read)[:VERSIONS],
            nights.result(),
            [*pool.map(lambda key: buckets.runs.get_model(key, TargetChangeReport), changes[:CHANGES])],
            len(changes),
            matrices.result(),
        )


def read_version(artifacts: ArtifactStore, version: str) -> PublishedSkill | None:
    """Return a listed version, or None if it is incomplete; raise StoreError if it was changed."""
    try:
        return artifacts.read(version)
    except ObjectMissing:
        return None


def _moves(artifacts: ArtifactStore, champion: Champion | None, pool: Executor) -> list[Move]:
    if champion is None:
        return []
    present = champion.alias
    before = pool.map(artifacts.champion.find, range(present.sequence - 1, max(-1, present.sequence - MOVES), -1))
    return [Move(alias, _kind(alias)) for alias in (present, *before) if alias is not None]


def _kind(alias: Alias) -> str:
    if alias.reason.startswith(DEMOTED):
        return "demoted"
    return "rolled back" if alias.rolled_back else "published"


def _rows(benchmark: str, read: Mapping[str, PublishedSkill | None]) -> list[VersionRow]:
    """Return the rows of versions, each with its changes to the previous complete version, or to the seed."""
    older, before, rows = "", benchmarks.seed_skill(benchmark).read_text(encoding="utf-8"), []
    for version, published in [*read.items()][::-1]:
        if published is None:
            rows.append(VersionRow(version, None, older, 0, 0, 0, None))
            continue
        mine, theirs = (Counter(text.split("\n")) for text in (published.skill, before))
        tokens, stated = tokens_of(SkillDocument(published.skill)), stated_score(published.manifest)
        changed = (mine - theirs).total(), (theirs - mine).total()
        rows.append(VersionRow(version, published, older, tokens, *changed, stated))
        older, before = version, published.skill
    return rows[::-1]


def _matrices(buckets: Buckets, benchmark: str, champion: Champion | None) -> list[SkillMatrix]:
    if champion is None:
        return []
    table = MatrixTable(buckets.runs, MatrixKeys(buckets.prefix, benchmark))
    return table.of_skill(champion.alias.sha256, MATRICES)


def _changes(buckets: Buckets, keys: RegateKeys, pool: Executor) -> list[str]:
    """Return the keys of the comparisons of this model with others, in either direction."""
    suffix = f"{keys.target_change(keys.target)}.json".removeprefix(keys.folder)
    own = [key for key in buckets.runs.list_keys(keys.target_change("")) if key.endswith(".json")]
    of_all = RegateKeys.of_benchmark(buckets.prefix, keys.benchmark)
    others = [f"{of_all}{folder}/{suffix}" for folder in buckets.runs.list_folders(of_all)]
    there = pool.map(buckets.runs.exists, others)
    return [*own, *(key for key, exists in zip(others, there, strict=True) if exists)]
