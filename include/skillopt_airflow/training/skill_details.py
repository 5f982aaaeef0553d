"""A published skill with its history: versions, moves of the alias, nights, and how it does under other models."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from skillopt_airflow import benchmarks
from skillopt_airflow.core.density import tokens_of
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.night_point import NightPoint
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.transfer_matrix import TransferMatrix
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, PublishedSkill
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.training.night import DEMOTED
from skillopt_airflow.training.night_series import read_series
from skillopt_airflow.training.skill_overview import Buckets, Champion, StatedScore, champion_of, stated_score
from skillopt_airflow.training.target_change import TargetChangeReport


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
    matrices: Sequence[TransferMatrix]
    """The newest ones with the champion."""


class Window(NamedTuple):
    """The part of the history that is read."""

    first: int
    """Place of the newest version that is read (0-based)."""
    versions: int
    moves: int
    nights: int
    changes: int
    matrices: int


def read_details(buckets: Buckets, benchmark: str, target: str, window: Window, pool: Executor) -> SkillDetails:
    """Read what a page shows, many objects at a time.

    Raises:
        StoreError: an object is not what it should be; the text names it.
    """
    artifacts, keys = buckets.published(benchmark, target), buckets.nights(benchmark, target)
    nights = pool.submit(read_series, buckets.runs, keys, window.nights)
    champion, names = champion_of(artifacts), artifacts.list_versions()[::-1]
    matrices = pool.submit(_matrices, buckets, benchmark, champion, window.matrices)
    # A page beyond the end is the last one.
    begin = min(window.first, max(0, len(names) - 1) // window.versions * window.versions)
    wanted = names[begin : begin + window.versions + 1]
    read = dict(zip(wanted, pool.map(partial(read_version, artifacts), wanted), strict=True))
    moves = _moves(artifacts, champion, window.moves, pool)
    rows = []
    for place, name in enumerate(wanted):
        complete = ((older, found) for older in wanted[place + 1 :] if (found := read[older]) is not None)
        older, found = next(complete, ("", None))
        before = benchmarks.seed_skill(benchmark).read_text(encoding="utf-8") if found is None else found.skill
        rows.append(_row(name, read[name], older, before))
    changes = _changes(buckets, keys, pool)
    return SkillDetails(
        champion,
        moves,
        names,
        rows[: window.versions],
        nights.result(),
        [*pool.map(lambda key: buckets.runs.get_model(key, TargetChangeReport), changes[: window.changes])],
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


def _moves(artifacts: ArtifactStore, champion: Champion | None, most: int, pool: Executor) -> list[Move]:
    """Return the newest moves, at most `most`."""
    if champion is None:
        return []
    present = champion.alias
    before = pool.map(artifacts.champion.was, range(present.sequence - 1, max(-1, present.sequence - most), -1))
    aliases = [alias for alias in (present, *before) if alias is not None]
    return [Move(alias, _kind(alias)) for alias in aliases]


def _kind(alias: Alias) -> str:
    if alias.reason.startswith(DEMOTED):
        return "demoted"
    return "rolled back" if alias.rolled_back else "published"


def _row(version: str, published: PublishedSkill | None, older: str, before: str) -> VersionRow:
    if published is None:
        return VersionRow(version, None, older, 0, 0, 0, None)
    mine, theirs = (Counter(text.split("\n")) for text in (published.skill, before))
    return VersionRow(
        version,
        published,
        older,
        tokens_of(SkillDocument(published.skill)),
        (mine - theirs).total(),
        (theirs - mine).total(),
        stated_score(published.manifest),
    )


def _matrices(buckets: Buckets, benchmark: str, champion: Champion | None, most: int) -> list[TransferMatrix]:
    return [] if champion is None else buckets.matrices(benchmark).of_skill(champion.alias.sha256, most)


def _changes(buckets: Buckets, keys: RegateKeys, pool: Executor) -> list[str]:
    """Return the keys of the reports of nights under this model and others, whichever of the two came first."""
    suffix = f"{keys.target_change(keys.target)}.json".removeprefix(keys.folder)
    own = [key for key in buckets.runs.list_keys(keys.target_change("")) if key.endswith(".json")]
    of_all = RegateKeys.of_benchmark(buckets.prefix, keys.benchmark)
    others = [f"{of_all}{folder}/{suffix}" for folder in buckets.runs.list_folders(of_all)]
    there = pool.map(buckets.runs.exists, others)
    return [*own, *(key for key, exists in zip(others, there, strict=True) if exists)]
