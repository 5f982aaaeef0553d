"""A published skill: its champion, what that scored when it was published, versions, moves of the alias, and nights."""

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
from skillopt_airflow.training.champion.night import DEMOTED, read_series
from skillopt_airflow.training.champion.target_change import TargetChangeReport

SHOWN_NIGHTS = 30
"""Nights of the line that shows the evidence."""


class Buckets(NamedTuple):
    """The buckets in which the skills of a benchmark are."""

    runs: ObjectStore
    artifacts: ObjectStore
    prefix: str
    """Of the keys in both."""

    def published(self, benchmark: str, target: str) -> ArtifactStore:
        return ArtifactStore(self.artifacts, ArtifactKeys(self.prefix, benchmark, target))

    def nights(self, benchmark: str, target: str) -> RegateKeys:
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
    mean = gate_value(means, rules)
    return StatedScore(mean, score.low, score.high, split, score.items)


class Move(NamedTuple):
    """A move of the alias."""

    alias: Alias
    kind: str
    """published, rolled back or demoted."""


class VersionRow(NamedTuple):
    """A version as a table of versions shows it."""

    version: str
    published: PublishedSkill | None
    """None if it was never completed, or is gone."""
    older: str
    """The version before it; empty for the first."""
    tokens: int
    added: int
    """Lines that the older one does not have."""
    removed: int
    stated: StatedScore | None


class SkillDetails(NamedTuple):
    """The documents that the page of a skill reads, whatever it shows of them."""

    champion: Champion | None
    moves: Sequence[Move]
    """The newest, the present one first."""
    versions: Sequence[str]
    """All names, the newest first."""
    rows: Sequence[VersionRow]
    """Some of these."""
    nights: Sequence[NightPoint]
    """In the order in which they were settled."""
    changes: Sequence[TargetChangeReport]
    """Of nights under this model and another one, some of them."""
    all_changes: int
    """The number of all of these."""
    matrices: Sequence[SkillMatrix]
    """The newest ones with the champion."""


VERSIONS = 20
"""Versions of one page of the table."""
MOVES, NIGHTS, CHANGES, MATRICES = 30, 60, 10, 2
"""What is read of the rest of the history."""
THREADS = 10
"""As many connections as an S3 client keeps."""


def read_details(buckets: Buckets, benchmark: str, target: str, page: int) -> SkillDetails:
    """Read what a page of the versions shows (from 1; one beyond the end is the last), many objects at a time.

    Raises:
        StoreError: an object is not what it should be; the text names it.
    """
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
    """Return a version that a listing named; None if it was never completed.

    Raises:
        StoreError: it was changed after it was published.
    """
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
    """Return the rows of versions, each with what it changed of the complete one before it, or else of the seed."""
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
    """Return the keys of the reports of nights under this model and others, whichever of the two came first."""
    suffix = f"{keys.target_change(keys.target)}.json".removeprefix(keys.folder)
    own = [key for key in buckets.runs.list_keys(keys.target_change("")) if key.endswith(".json")]
    of_all = RegateKeys.of_benchmark(buckets.prefix, keys.benchmark)
    others = [f"{of_all}{folder}/{suffix}" for folder in buckets.runs.list_folders(of_all)]
    there = pool.map(buckets.runs.exists, others)
    return [*own, *(key for key, exists in zip(others, there, strict=True) if exists)]
