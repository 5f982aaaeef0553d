"""Publishers at the same moment, and a deployment that reads meanwhile."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.core.values.types import sha256
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.objects import ObjectStore
from tests.store.polling_reader import PollingReader
from tests.store.test_artifacts import KEYS, artifacts, champion_of, provenance, publish

__all__ = ["artifacts"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("aws_variables")
def test_of_publishers_at_the_same_moment_one_wins_fifty_times(
    artifacts: ArtifactStore, store: ObjectStore, tmp_path: Path
) -> None:
    reader = PollingReader(store, KEYS, tmp_path)
    with reader.polling():
        race_fifty_times(artifacts)
    assert [alias.sequence for alias in artifacts.champion.history()] == list(range(50))
    for version in artifacts.list_versions():
        artifacts.read(version)
    champions = [alias.version for alias in artifacts.champion.history()]
    seen = list(dict.fromkeys(reader.seen))
    assert len(seen) > 1
    # Never one that lost, never back to an earlier one.
    assert seen == [version for version in champions if version in seen]
    assert seen[-1] == champions[-1]


def race_fifty_times(artifacts: ArtifactStore) -> None:
    for turn in range(50):
        seen = artifacts.champion.read()

        def attempt(number: int, turn: int = turn, seen: Alias | None = seen) -> str | Conflict:
            try:
                return artifacts.publish(f"{turn} {number}", provenance(f"run-{turn}-{number}"), seen).version
            except Conflict as conflict:
                return conflict

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(attempt, range(2)))
        [winner] = [outcome for outcome in outcomes if isinstance(outcome, str)]
        [loser] = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
        assert f"made {winner} the champion" in str(loser)
        champion = champion_of(artifacts)
        assert (champion.version, champion.sequence) == (winner, turn)


@pytest.mark.usefixtures("aws_variables")
def test_the_reader_would_notice_an_alias_that_comes_before_its_version(
    artifacts: ArtifactStore, store: ObjectStore, tmp_path: Path
) -> None:
    reader = PollingReader(store, KEYS, tmp_path)
    digest = sha256("two")
    publish(artifacts, "one", provenance())
    reader.look()
    artifacts.champion.move(f"v0002-{digest[:12]}", digest, "run", "early", artifacts.champion.read())
    with pytest.raises(ObjectMissing):
        reader.look()
    with pytest.raises(ObjectMissing), reader.polling():
        time.sleep(0.1)
    assert "is missing, yet the alias names its version" in reader.client.get().problem
