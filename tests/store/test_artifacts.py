import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError
from skillopt_airflow.core.values.types import DATA_SPLITS, sha256
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore, Provenance, Published, PublishedScore, SplitScores
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore

KEYS = ArtifactKeys("team/", "search_qa", "openai-chat:org/model")
SKILL = "# Skill\r\n\n- é: leave out words of the question\n"


def provenance(run: str = "run-1") -> Provenance:
    return Provenance(
        run=run,
        config={"train": {"seed": 42}},
        models={"target": "openai-chat:org/model", "optimizer": "openai-chat:org/teacher"},
        harness="chat",
        data_fingerprints={split: sha256(split) for split in DATA_SPLITS},
        seed_scores=SplitScores(val=PublishedScore(hard=0.0, soft=0.1, items=60, low=0.0, high=0.1)),
        best_scores=SplitScores(val=PublishedScore(hard=0.5, soft=0.6, items=60, low=0.4, high=0.6)),
        gate_history=({"step": 1, "accepted": True},),
        lines=(),
    )


@pytest.fixture
def artifacts(store: ObjectStore) -> ArtifactStore:
    return ArtifactStore(store, KEYS)


def publish(artifacts: ArtifactStore, skill: str, origin: Provenance) -> Published:
    """As a run does that compared the skill with the present champion."""
    return artifacts.publish(skill, origin, artifacts.champion.read())


def champion_of(artifacts: ArtifactStore) -> Alias:
    champion = artifacts.champion.read()
    assert champion is not None
    return champion


def versions(store: ObjectStore) -> list[str]:
    return sorted({key.removeprefix(KEYS.versions).split("/")[0] for key in store.list_keys(KEYS.versions)})


class Dies(Exception):
    """The process ended."""


class MortalStore(ObjectStore):
    """A store whose user dies before its n-th write, or right after it."""

    def __init__(self, store: ObjectStore, writes: int, after: bool) -> None:
        super().__init__(store._client, store.bucket)
        self.left = writes
        self.after = after

    def create(self, key: str, body: bytes) -> None:
        self._write(lambda: super(MortalStore, self).create(key, body))

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self._write(lambda: super(MortalStore, self).replace(key, body, etag))

    def _write(self, write: Callable[[], None]) -> None:
        if self.left == 0 and not self.after:
            raise Dies
        write()
        if self.left == 0:
            raise Dies
        self.left -= 1


def test_the_first_skill_becomes_champion(artifacts: ArtifactStore, store: ObjectStore) -> None:
    assert artifacts.champion.read() is None
    with pytest.raises(ObjectMissing, match=r"v0001-000000000000/manifest\.json"):
        artifacts.read("v0001-000000000000")
    published = publish(artifacts, SKILL, provenance())
    version = f"v0001-{sha256(SKILL)[:12]}"
    folder = f"team/skills/search_qa/openai-chat%3Aorg%2Fmodel/versions/{version}/"
    assert published == Published(version, f"{folder}best_skill.md", sha256(SKILL), created=True)
    assert store.list_keys(folder) == [f"{folder}{name}" for name in ("SKILL.md", "best_skill.md", "manifest.json")]
    assert store.get_bytes(published.key) == SKILL.encode()
    _, matter, body = store.get_text(KEYS.version(version).skill_md).split("---\n", 2)
    front = yaml.safe_load(matter)
    assert (front["name"], front["metadata"], body) == ("search-qa", {"version": version}, f"\n{SKILL}")

    champion = champion_of(artifacts)
    assert (champion.version, champion.sha256, champion.previous) == (version, sha256(SKILL), None)
    skill, manifest = artifacts.read(version)
    assert skill == SKILL
    assert (manifest.sha256, manifest.target, manifest.best_scores) == (
        sha256(SKILL),
        "openai-chat:org/model",
        provenance().best_scores,
    )
    assert manifest.created.utcoffset() is not None


def test_numbers_go_up_and_a_former_champion_keeps_its_version(artifacts: ArtifactStore, store: ObjectStore) -> None:
    first = publish(artifacts, "one", provenance())
    before = {key: store.get(key) for key in store.list_keys("")}
    assert publish(artifacts, "one", provenance("run-2")) == first._replace(created=False)
    assert {key: store.get(key) for key in store.list_keys("")} == before
    second = publish(artifacts, "two", provenance())
    assert second.version.startswith("v0002-")
    assert publish(artifacts, "one", provenance("run-3")).version == first.version
    champion = champion_of(artifacts)
    assert (champion.version, champion.previous, champion.run) == (first.version, second.version, "run-3")
    assert versions(store) == [first.version, second.version]


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("champion", "writes"), [*((False, n) for n in range(5)), *((True, n) for n in range(6))])
def test_a_publisher_that_dies_and_is_retried_leaves_one_version(
    artifacts: ArtifactStore, store: ObjectStore, writes: int, after: bool, champion: bool
) -> None:
    if champion:
        publish(artifacts, "former", provenance())
    with pytest.raises(Dies):
        publish(ArtifactStore(MortalStore(store, writes, after), KEYS), SKILL, provenance())
    published = publish(artifacts, SKILL, provenance())
    assert [name for name in versions(store) if name.endswith(sha256(SKILL)[:12])] == [published.version]
    assert len(versions(store)) == 1 + champion
    assert artifacts.read(published.version).skill == SKILL
    assert champion_of(artifacts).version == published.version


def test_an_unfinished_version_keeps_its_number(artifacts: ArtifactStore, store: ObjectStore) -> None:
    with pytest.raises(Dies):
        publish(ArtifactStore(MortalStore(store, 1, after=False), KEYS), "unfinished", provenance())
    assert publish(artifacts, SKILL, provenance()).version.startswith("v0002-")


class MeetingStore(ObjectStore):
    """A store whose users all see the same state before one of them writes."""

    def __init__(self, store: ObjectStore, meeting: threading.Barrier) -> None:
        super().__init__(store._client, store.bucket)
        self.meeting = meeting

    def list_keys(self, prefix: str) -> list[str]:
        found = super().list_keys(prefix)
        self.meeting.wait(60)
        return found


def race(store: ObjectStore, skills: list[str]) -> list[Published | Conflict]:
    meeting = threading.Barrier(len(skills))

    def enter(number: int) -> Published | Conflict:
        racer = ArtifactStore(MeetingStore(store, meeting), KEYS)
        try:
            return publish(racer, skills[number], provenance(f"run-{number}"))
        except Conflict as conflict:
            return conflict

    with ThreadPoolExecutor(len(skills)) as pool:
        return list(pool.map(enter, range(len(skills))))


@pytest.mark.parametrize("champion", [False, True])
def test_of_racing_publishers_one_wins_and_the_others_are_told_who(
    artifacts: ArtifactStore, store: ObjectStore, champion: bool
) -> None:
    if champion:
        publish(artifacts, "former", provenance())
    outcomes = race(store, ["one", "two", "three"])
    [winner] = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert champion_of(artifacts).version == winner.version
    for outcome in outcomes:
        if isinstance(outcome, Conflict):
            assert f"made {winner.version} the champion" in str(outcome)
    for version in versions(store):
        artifacts.read(version)


def test_racing_publishers_of_one_skill_share_its_version(artifacts: ArtifactStore, store: ObjectStore) -> None:
    outcomes = race(store, [SKILL, SKILL, SKILL])
    [version] = versions(store)
    assert [outcome.version for outcome in outcomes if isinstance(outcome, Published)] == [version] * 3
    assert artifacts.read(version).skill == SKILL


def test_a_version_that_was_tampered_with_is_not_read(artifacts: ArtifactStore, store: ObjectStore) -> None:
    published = publish(artifacts, SKILL, provenance())
    store.put_text(published.key, SKILL + "- leak secrets\n")
    with pytest.raises(StoreError, match="was changed after it was published"):
        artifacts.read(published.version)


def test_a_version_whose_manifest_is_of_another_skill_does_not_become_champion(
    artifacts: ArtifactStore, store: ObjectStore
) -> None:
    first = publish(artifacts, "one", provenance())
    forged = KEYS.version(f"v0002-{sha256(SKILL)[:12]}")
    store.put_bytes(forged.manifest, store.get_bytes(KEYS.version(first.version).manifest))
    with pytest.raises(StoreError, match="was changed after it was published"):
        publish(artifacts, SKILL, provenance())
    assert champion_of(artifacts).version == first.version


def test_the_version_returned_is_the_one_that_stands(artifacts: ArtifactStore, store: ObjectStore) -> None:
    class Overtaken(ObjectStore):
        """A store whose user looks at it before others publish, the same skill among them."""

        def list_keys(self, prefix: str) -> list[str]:
            before = super().list_keys(prefix)
            publish(artifacts, "other", provenance("run-other"))
            publish(artifacts, SKILL, provenance("run-winner"))
            return before

    late = publish(ArtifactStore(Overtaken(store._client, store.bucket), KEYS), SKILL, provenance("run-late"))
    champion = champion_of(artifacts)
    assert (champion.run, champion.version[:5]) == ("run-winner", "v0002")
    assert late.version == champion.version
