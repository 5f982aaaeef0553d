"""Published skills: immutable versions, and the champion alias that deployments follow."""

import logging
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import AwareDatetime

from skillopt_airflow.consumer import skill_md
from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError
from skillopt_airflow.core.gate.measured_score import MeasuredScore
from skillopt_airflow.core.gate.run_gates import Look, Question, next_number
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.core.values.types import JsonObject, Split, Value, sha256
from skillopt_airflow.store.aliases import Alias, ChampionAlias
from skillopt_airflow.store.keys import ArtifactKeys, version_name
from skillopt_airflow.store.objects import ObjectStore


class LookLedger:
    """The looks of one benchmark and target: numbered, written once, never removed."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys

    def next_number(self, marks: Collection[str]) -> int:
        return next_number(self._looks()[0], marks)

    def enter(
        self, marks: Sequence[str], question: Question, split: Split, run: str, publication: str, *, stored: bool
    ) -> Look:
        """Enter a look, and return it; the same question about the same rollouts is the same look, whoever asks.

        Args:
            split: which split of the run the items are.
            publication: name of its attempt to publish; asked again by the same one, it is the same look.
            stored: whether the rollouts of an earlier look are there; else they would be made again.
        """
        while True:
            before, place = self._looks()
            for look in before:
                if look.question == question and (stored or (look.run, look.publication) == (run, publication)):
                    return look
            look = Look(
                number=next_number(before, marks),
                split=split,
                items=len(marks),
                marks=tuple(marks),
                question=question,
                run=run,
                publication=publication,
                entered=datetime.now(UTC),
            )
            try:
                self._store.create_model(self._keys.look(place), look)
            except Conflict:
                # Another publisher took the place.
                continue
            return look

    def _looks(self) -> tuple[list[Look], int]:
        """Return all looks, and the place of the next one in the ledger."""
        keys = self._store.list_keys(self._keys.looks)
        looks = [self._store.get_model(key, Look) for key in keys]
        # After one that an administrator removed, the others keep their places.
        return looks, 1 + max((ArtifactKeys.place_of(key) for key in keys), default=0)


log = logging.getLogger(__name__)

_VERSION = re.compile(r"v(\d+)-([0-9a-f]{12})")


def is_version(name: str) -> bool:
    """Return whether this is the name of a version, such as v0003-0123456789ab."""
    return _VERSION.fullmatch(name) is not None


class PublishedScore(MeasuredScore):
    """Mean scores on a split as the manifest keeps them."""

    items: int
    """Number of items that have a score."""


class SplitScores(Value):
    """A skill's scores; None on a split where it was not measured."""

    publish: PublishedScore | None = None
    test: PublishedScore | None = None
    val: PublishedScore | None = None
    """On the selection split, by which the skill was chosen: it flatters the skill."""
    promised: PublishedScore | None = None
    """On items that decided nothing: the part of the test split that the publish gate did not look at, or all of it
    where the gate looked at a split publish."""


class PublishGate(Value):
    """The comparison by which a skill was published, on items by which nothing was selected."""

    split: Split
    look: int
    """Number of this look at these items."""
    level: float | None
    """Level of the gate's test at this look; None under a policy without one."""
    score: PublishedScore
    """The skill's, on the items that decided: it flatters the skill."""
    rival: str
    """The one that it beat."""
    rival_score: PublishedScore


class Provenance(Value):
    """The origin of a skill, as the run that trained it knows it."""

    publish_gate: PublishGate | None = None
    """None if the rows of its rollouts were removed between the gate and the approval."""
    selected_on: Split = Split.VAL
    """Split by whose scores the training chose the skill."""
    run: str
    config: JsonObject
    models: dict[str, str]
    """Model names: target, optimizer, and trained_for, the target that the training asked."""
    harness: str
    data_fingerprints: dict[Split, str]
    seed_scores: SplitScores
    best_scores: SplitScores
    gate_history: tuple[JsonObject, ...]
    """The gate's verdicts, in the order of the run's moments."""
    lines: tuple[LineOrigin, ...]
    """For each line of the skill, the edit that wrote it."""


class SkillManifest(Provenance, Document):
    """Provenance and identity of a published version."""

    benchmark: str
    target: str
    version: str
    sha256: str
    """SHA-256 of best_skill.md."""
    created: AwareDatetime
    """UTC."""


class Published(NamedTuple):
    """The outcome of publishing."""

    version: str
    key: str
    """Key of best_skill.md."""
    sha256: str
    created: bool
    """False if the skill was the champion already."""


class PublishedSkill(NamedTuple):
    """One version, verified."""

    skill: str
    manifest: SkillManifest


class ArtifactStore:
    """The published skills of one benchmark and target."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys
        self.champion = ChampionAlias(store, keys)
        self.looks = LookLedger(store, keys)

    @property
    def target(self) -> str:
        return self._keys.target

    def publish(
        self, skill: str, provenance: Provenance, seen: Alias | None, reason: str = "", description: str | None = None
    ) -> Published:
        """Write the skill as a version and make it the champion; safe to repeat after a failure at any point.

        A skill keeps its version if that is unfinished, was a champion, or tells of the same gate; else its manifest
        would tell of a gate that published nothing. Publishers of different skills that race can draw the same number,
        never the same version.

        Args:
            seen: the champion that it was compared with.
            description: when an agent should use it; None: its own title and first sentence.

        Raises:
            Conflict: another publisher moved the champion since; the text names its version. The version written
                here stays, and is not the champion.
        """
        digest = sha256(skill)
        champion = self.champion.read()
        if champion is not None and champion.sha256 == digest:
            return self._published(champion, created=champion.run == provenance.run)
        version = self._version_for(digest, provenance)
        self._write_version(version, skill, provenance, description)
        return self._published(self.champion.move(version, digest, provenance.run, reason, seen), created=True)

    def roll_back(self, version: str, run: str, reason: str, seen: Alias | None) -> Alias:
        """Move the champion to a version that was published before, or to one that never became it.

        Raises:
            ObjectMissing: there is no such version, or it was never completed.
            StoreError: the version was tampered with.
            Conflict: somebody else moved the champion since.
        """
        manifest = self.read(version).manifest
        return self.champion.move(version, manifest.sha256, run, reason, seen, rolled_back=True)

    def drop_unused(self, before: datetime) -> list[str]:
        """Remove versions that no alias named or was to name, if written before a moment; returns their names.

        An unfinished one stays: it may be about to be completed, and costs next to nothing.
        """
        used, dropped = self.champion.ever_named(), []
        for version in self.list_versions():
            # Asked anew before each removal: somebody may have published an old one meanwhile.
            if version in used or not self._is_old(version, before) or version in self.champion.ever_named():
                continue
            dropped.append(version)
            keys = self._keys.version(version)
            # The manifest first: what lacks it is no version to anybody.
            for key in (keys.manifest, keys.skill_md, keys.best_skill):
                self._store.delete(key)
            log.info("removed %s, which no alias ever named", version)
        return dropped

    def _is_old(self, version: str, before: datetime) -> bool:
        try:
            return self.read(version).manifest.created < before
        except ObjectMissing:
            return False

    def address(self, key: str) -> str:
        """Return `s3://<bucket>/<key>`."""
        return self._store.address(key)

    def list_versions(self) -> list[str]:
        """Return the names of all versions, oldest first, including unfinished ones."""
        prefix = self._keys.versions
        folders = {key.removeprefix(prefix).split("/")[0] for key in self._store.list_keys(prefix)}
        return sorted((name for name in folders if is_version(name)), key=_number)

    def manifest(self, version: str) -> SkillManifest:
        """Return what a version states of itself, without a look at its skill; raises ObjectMissing."""
        return self._store.get_model(self._keys.version(version).manifest, SkillManifest)

    def read(self, version: str) -> PublishedSkill:
        """Return a complete version.

        Raises:
            ObjectMissing: there is no such version, or it was never completed.
            StoreError: the skill is not the one that its manifest describes.
        """
        keys, manifest = self._keys.version(version), self.manifest(version)
        skill = self._store.get_text(keys.best_skill)
        if sha256(skill) != manifest.sha256:
            raise StoreError(
                f"{self._store.address(keys.best_skill)} has SHA-256 {sha256(skill)}, but its manifest says "
                f"{manifest.sha256}: it was changed after it was published; restore it or move the champion elsewhere"
            )
        return PublishedSkill(skill, manifest)

    def _published(self, alias: Alias, *, created: bool) -> Published:
        return Published(alias.version, self._keys.version(alias.version).best_skill, alias.sha256, created)

    def _version_for(self, digest: str, provenance: Provenance) -> str:
        """Return the version that this skill keeps, or else the next one."""
        versions = self.list_versions()
        for version in versions:
            if version.endswith(digest[:12]) and self._keeps(version, provenance):
                return version
        return version_name(max(map(_number, versions), default=0) + 1, digest)

    def _keeps(self, version: str, provenance: Provenance) -> bool:
        try:
            manifest = self.manifest(version)
        except ObjectMissing:
            return True
        told = (manifest.run, manifest.publish_gate) == (provenance.run, provenance.publish_gate)
        return told or version in self.champion.versions()

    def _write_version(self, version: str, skill: str, provenance: Provenance, description: str | None) -> None:
        keys = self._keys.version(version)
        manifest = SkillManifest(
            **{field: getattr(provenance, field) for field in Provenance.model_fields},
            benchmark=self._keys.benchmark,
            target=self._keys.target,
            version=version,
            sha256=sha256(skill),
            created=datetime.now(UTC),
        )
        self._create_same(keys.best_skill, skill.encode())
        # What is there already is this skill's: of an earlier publisher, or of this one before it failed.
        with suppress(Conflict):
            document = skill_md(skill, version, skill_name(self._keys.benchmark), description)
            self._store.create(keys.skill_md, document.encode())
        with suppress(Conflict):
            self._store.create_model(keys.manifest, manifest)
        self.read(version)

    def _create_same(self, key: str, body: bytes) -> None:
        """Write once; a retry finds its own bytes."""
        try:
            self._store.create(key, body)
        except Conflict:
            if self._store.get_bytes(key) != body:
                raise


def _number(version: str) -> int:
    match = _VERSION.fullmatch(version)
    return 0 if match is None else int(match[1])
