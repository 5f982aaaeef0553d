import pytest

from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError
from skillopt_airflow.core.values.types import sha256
from skillopt_airflow.store.aliases import champion_before
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.objects import ObjectStore
from tests.store.test_artifacts import KEYS, artifacts, champion_of, provenance, publish

__all__ = ["artifacts"]


def test_a_rollback_names_its_reason_and_the_history_keeps_all(artifacts: ArtifactStore) -> None:
    assert artifacts.champion.history() == []
    first = artifacts.publish("one", provenance("run-1"), None, "better than the seed")
    second = artifacts.publish("two", provenance("run-2"), artifacts.champion.read(), "better than one")
    seen = artifacts.champion.read()
    back = artifacts.roll_back(first.version, "rollback-1", "users complained", seen)
    assert (back.version, back.sha256, back.previous, back.run) == (
        first.version,
        sha256("one"),
        second.version,
        "rollback-1",
    )
    assert artifacts.champion.read() == back
    history = artifacts.champion.history()
    assert [(alias.sequence, alias.version, alias.reason) for alias in history] == [
        (0, first.version, "better than the seed"),
        (1, second.version, "better than one"),
        (2, first.version, "users complained"),
    ]
    # A former alias is found by its number, and the present one is none.
    assert [artifacts.champion.find(place) for place in range(4)] == [*history[:2], None, None]
    # Asked for again by the same run, it moves nothing.
    assert artifacts.roll_back(first.version, "rollback-1", "users complained", seen) == back
    assert artifacts.champion.history() == history
    assert artifacts.list_versions() == [first.version, second.version]


@pytest.mark.parametrize("restored", [True, False])
def test_a_lost_alias_is_followed_by_a_move_of_a_new_number(
    artifacts: ArtifactStore, store: ObjectStore, restored: bool
) -> None:
    first = publish(artifacts, "one", provenance("one"))
    backup = store.get_bytes(KEYS.champion)
    for text in ("two", "three"):
        publish(artifacts, text, provenance(text))
    if restored:
        store.put_bytes(KEYS.champion, backup)
    else:
        store.delete(KEYS.champion)
    last = [publish(artifacts, text, provenance(text)).version for text in ("four", "five")]
    history = artifacts.champion.history()
    assert [alias.sequence for alias in history] == [0, 1, 2, 3]
    assert [history[0].version, *(alias.version for alias in history[2:])] == [first.version, *last]


def test_a_former_champion_that_is_published_again_follows_the_one_that_it_beat(artifacts: ArtifactStore) -> None:
    def before() -> str:
        alias = champion_before(artifacts.champion.history())
        assert alias is not None
        return alias.version

    names = [publish(artifacts, text, provenance(text)).version for text in ("a", "b", "c", "b")]
    assert names[1] == names[3]
    assert before() == names[2]
    artifacts.roll_back(names[2], "back", "worse", artifacts.champion.read())
    assert before() == names[0]


def test_who_compared_with_a_former_champion_is_refused(artifacts: ArtifactStore) -> None:
    first = publish(artifacts, "one", provenance("run-1"))
    seen = artifacts.champion.read()
    second = publish(artifacts, "two", provenance("run-2"))
    for refused in (
        lambda: artifacts.publish("three", provenance("run-3"), seen),
        lambda: artifacts.roll_back(first.version, "rollback-1", "why", seen),
    ):
        with pytest.raises(Conflict, match=f"run run-2 made {second.version}"):
            refused()
    assert champion_of(artifacts).version == second.version
    # A publication that was rolled back does not come back by itself.
    artifacts.roll_back(first.version, "rollback-1", "why", artifacts.champion.read())
    with pytest.raises(Conflict, match=f"run rollback-1 made {first.version}"):
        artifacts.publish("two", provenance("run-2"), seen)


def test_only_a_complete_and_untouched_version_can_be_rolled_back_to(
    artifacts: ArtifactStore, store: ObjectStore
) -> None:
    first = publish(artifacts, "one", provenance())
    publish(artifacts, "two", provenance())
    seen = artifacts.champion.read()
    with pytest.raises(ObjectMissing):
        artifacts.roll_back("v0009-0123456789ab", "rollback-1", "why", seen)
    store.put_text(first.key, "one, and a line more")
    with pytest.raises(StoreError, match="was changed after it was published"):
        artifacts.roll_back(first.version, "rollback-1", "why", seen)
    assert artifacts.champion.read() == seen
