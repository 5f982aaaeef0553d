"""Rollouts as a training stores them, written with a moment and a part of one's choice."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from skillopt_airflow.core.values.types import ItemRef, Message, Rollout, Score, Split, Status, Trajectory, sha256
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import parquet
from skillopt_airflow.store.tables.parquet import RolloutRow, rollouts_to_table, to_parquet
from skillopt_airflow.store.tables.rollout_table import RolloutKey

SKILL, OTHER = "a" * 64, "b" * 64
BEGINNING = datetime(2026, 11, 21, 4, tzinfo=UTC)


class Try(NamedTuple):
    """A rollout; it has no score if `hard` is None."""

    item: str
    hard: float | None = 1.0
    soft: float | None = None
    """As `hard` if it is None."""
    run: str = "run"
    error: str = ""
    tokens: int = 0
    seconds: float = 0.0
    said: str = ""
    status: Status | None = None
    content: str = ""
    """Of the item: two of one id with different contents are two items."""

    @property
    def ended(self) -> Status:
        return self.status or (Status.TIMEOUT if self.hard is None else Status.OK)

    @property
    def ref(self) -> ItemRef:
        return ItemRef(self.item, sha256(f"{self.item} {self.content}"))

    @property
    def rollout(self) -> Rollout:
        messages = (Message(role="system", content="the skill"), Message(role="assistant", content=self.said))
        trajectory = Trajectory(
            item_id=self.item,
            status=self.ended,
            error=self.error,
            messages=messages,
            prompt_tokens=self.tokens,
            seconds=self.seconds,
        )
        score = None
        if self.hard is not None:
            score = Score(hard=self.hard, soft=self.hard if self.soft is None else self.soft)
        return Rollout(trajectory=trajectory, score=score)


def rollout_key(skill: str = SKILL, settings: str = "5" * 64, sample: int = 0) -> RolloutKey:
    return RolloutKey(
        benchmark="searchqa",
        target="openai-chat:org/model",
        harness="chat",
        split=Split.VAL,
        skill_sha256=skill,
        sample=sample,
        settings_sha256=settings,
        image="protocol-3/adapter-0123",
    )


def put(store: ObjectStore, key: RolloutKey, parts: Sequence[Sequence[Try]], group_bytes: int = 400) -> None:
    """Store the tries of each part, one second after the other, in row groups of so many bytes."""
    folder = key.partition("")
    number = 0
    for part, tries in enumerate(parts):
        rows = []
        for one in tries:
            stored = BEGINNING + timedelta(seconds=number)
            origin = (one.run, one.ref.fingerprint, key.skill_sha256, key.settings_sha256, key.image, stored)
            rows.append(RolloutRow(*origin, one.rollout))
            number += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet, "GROUP_BYTES", group_bytes)
            name = f"{key.settings_sha256[:4]}-{part:03d}"
            store.put_bytes(keys.part(folder, name), to_parquet(rollouts_to_table(rows)))
