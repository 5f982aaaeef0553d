"""Published skills: immutable versions, and the ledger of looks at their items."""

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
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore, model_bytes


class LookLedger:
    """The statistical looks of one benchmark and target: numbered, written once, never removed."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys

    def next_number(self, marks: Collection[str]) -> int:
        return next_number(self._looks()[0], marks)

    def enter(
        self, marks: Sequence[str], question: Question, split: Split, run: str, publication: str, *, stored: bool
    ) -> Look:
        """Enter a look and return it; the same question about the same rollouts is the same look.

        Args:
            split: the run's split of the items.
            publication: name of the attempt to publish; a repeated question of the same attempt is the same look.
            stored: True if the rollouts of earlier looks are still stored.
        """
        while True:
            earlier, place = self._looks()
            for look in earlier:
                if look.question == question and (stored or (look.run, look.publication) == (run, publication)):
                    return look
            look = Look(
                number=next_number(earlier, marks),
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
        # If an administrator removed one, the others keep their places.
        return looks, 1 + max(
            (int(key.removeprefix(self._keys.looks).removesuffix(".json")) for key in keys), default=0
        )


log = logging.getLogger(__name__)

_VERSION = re.compile(r"v\d+-[0-9a-f]{12}")


def is_version(name: str) -> bool:
    return _VERSION.fullmatch(name) is not None


class PublishedScore(MeasuredScore):
    items: int
    """Number of items with a score."""


class SplitScores(Value):
    """A skill's scores by split; None if it wasn't measured there."""

    publish: PublishedScore | None = None
    test: PublishedScore | None = None
    val: PublishedScore | None = None
    """Score on the selection split, with optimistic bias."""
    promised: PublishedScore | None = None
    """Score on held-out items: the test split without the publish gate's items, or, if there is a split publish, all of
    the test split."""


class PublishGate(Value):
    """The comparison that published a skill, on held-out items."""

    split: Split
    look: int
    """Number of this look at these items."""
    level: float | None
    """Significance level of this look; None if the policy has none."""
    score: PublishedScore
    """Score of the skill on the gate's items, with optimistic bias."""
    rival: str
    """The skill that it beat."""
    rival_score: PublishedScore


class Provenance(Value):
    """The origin of a skill, from the run that trained it."""

    publish_gate: PublishGate | None = None
    """None if its rollouts were removed between the gate and the approval."""
    selected_on: Split = Split.VAL
    """Split on which the training selected the skill."""
    run: str
    config: JsonObject
    models: dict[str, str]
    """Model names: target, optimizer, and trained_for, the target of the training."""
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
    """False if the skill was already the champion."""


class PublishedSkill(NamedTuple):
    """One verified version."""

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

        A skill keeps its version if that is unfinished, was a champion, or has the same gate; otherwise its manifest
        would describe a gate that published nothing. Concurrent publishers of different skills may get the same number,
        but never the same version.

        Args:
            seen: the champion that the skill was compared with.
            description: when an agent should use the skill; None: the skill's title and first sentence.

        Raises:
            Conflict: another publisher moved the champion since. The new version is stored, but isn't the champion.
        """
        digest = sha256(skill)
        champion = self.champion.read()
        if champion is not None and champion.sha256 == digest:
            return self._published(champion, created=champion.run == provenance.run)
        version = self._version_for(digest, provenance)
        self._write_version(version, skill, provenance, description)
        return self._published(self.champion.move(version, digest, provenance.run, reason, seen), created=True)

    def roll_back(self, version: str, run: str, reason: str, seen: Alias | None) -> Alias:
        """Move the champion to a stored version, even if that never was the champion.

        Raises:
            ObjectMissing: the version doesn't exist or isn't complete.
            StoreError: the version was tampered with.
            Conflict: another publisher moved the champion since.
        """
        manifest = self.read(version).manifest
        return self.champion.move(version, manifest.sha256, run, reason, seen, rolled_back=True)

    def drop_unused(self, before: datetime) -> list[str]:
        """Remove versions that no alias ever named, if they are older than `before`; return their names.

        Unfinished versions stay, because a publisher may still complete them.
        """
        used, dropped = self.champion.ever_named(), []
        for version in self.list_versions():
            # Read again before each removal: another publisher may have published an old version since.
            if version in used or not self._is_old(version, before) or version in self.champion.ever_named():
                continue
            dropped.append(version)
            keys = self._keys.version(version)
            # The manifest first, because a version without a manifest doesn't count.
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
        return self._store.address(key)

    def list_versions(self) -> list[str]:
        """Return the names of all versions, oldest first, including unfinished ones."""
        prefix = self._keys.versions
        folders = {key.removeprefix(prefix).split("/")[0] for key in self._store.list_keys(prefix)}
        return sorted((name for name in folders if is_version(name)), key=_number)

    def manifest(self, version: str) -> SkillManifest:
        return self._store.get_model(self._keys.version(version).manifest, SkillManifest)

    def read(self, version: str) -> PublishedSkill:
        """Return a complete version.

        Raises:
            ObjectMissing: the version doesn't exist or isn't complete.
            StoreError: the skill doesn't match its manifest.
        """
        keys, manifest = self._keys.version(version), self.manifest(version)
        skill = self._store.get_text(keys.best_skill)
        if sha256(skill) != manifest.sha256:
            raise StoreError(
                f"{self._store.address(keys.best_skill)}: it was changed after it was published, from SHA-256 "
                f"{manifest.sha256} to {sha256(skill)}. Restore it, or move the champion to another version."
            )
        return PublishedSkill(skill, manifest)

    def _published(self, alias: Alias, *, created: bool) -> Published:
        return Published(alias.version, self._keys.version(alias.version).best_skill, alias.sha256, created)

    def _version_for(self, digest: str, provenance: Provenance) -> str:
        versions = self.list_versions()
        for version in versions:
            if version.endswith(digest[:12]) and self._keeps(version, provenance):
                return version
        return f"v{max(map(_number, versions), default=0) + 1:04d}-{digest[:12]}"

    def _keeps(self, version: str, provenance: Provenance) -> bool:
        try:
            manifest = self.manifest(version)
        except ObjectMissing:
            return True
        is_same_gate = (manifest.run, manifest.publish_gate) == (provenance.run, provenance.publish_gate)
        return is_same_gate or version in self.champion.versions()

    def _write_version(self, version: str, skill: str, provenance: Provenance, description: str | None) -> None:
        keys = self._keys.version(version)
        manifest = SkillManifest(
            **dict(provenance),
            benchmark=self._keys.benchmark,
            target=self._keys.target,
            version=version,
            sha256=sha256(skill),
            created=datetime.now(UTC),
        )
        document = skill_md(skill, version, skill_name(self._keys.benchmark), description)
        bodies = {
            keys.best_skill: skill.encode(),
            keys.skill_md: document.encode(),
            keys.manifest: model_bytes(manifest),
        }
        for key, body in bodies.items():
            # Existing objects are this skill's, from an earlier publisher or an attempt of this one that failed.
            with suppress(Conflict):
                self._store.create(key, body)
        self.read(version)


def _number(version: str) -> int:
    return int(version[1:].partition("-")[0])
