"""Publishing and a rollback that end at any of their writes and are retried, while a deployment looks before each."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from unittest.mock import patch

import pytest

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.run.history import History
from skillopt_airflow.core.values.types import sha256
from skillopt_airflow.store.artifacts import ArtifactStore, is_version
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.champion.approval import roll_back, rollback_request
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication, publish_best
from skillopt_airflow.training.report import reporting
from skillopt_airflow.training.report.reporting import write_report
from skillopt_airflow.training.run.run import TrainingRun
from tests.store.test_artifacts import provenance
from tests.training.in_process import InterruptedRun, Training
from tests.training.local_store import LocalStore

KEYS = ArtifactKeys("", "searchqa", "openai-chat:stand-in-target")
FORMER, FIRST = "# Former\n", "# First\n"
VERSION = ["best_skill.md", "SKILL.md", "manifest.json"]
REPORT = ["report.html", "history.json"]
NAMED = "named"
"""Stands for the version's own name."""
WRITES = {
    "first": [*VERSION, NAMED, "champion.json", *REPORT],
    "second": [*VERSION, NAMED, "000000.json", "champion.json", *REPORT],
}


MOVES = [NAMED, "000001.json", "champion.json"]
"""Writes of a rollback."""


class Buckets(NamedTuple):
    """That of artifacts and that of runs."""

    artifacts: LocalStore
    runs: LocalStore

    def copied(self) -> "Buckets":
        copies = Buckets(LocalStore(), LocalStore())
        for copy, origin in zip(copies, self, strict=True):
            copy.objects |= origin.objects
        return copies

    def seen_by_a_deployment(self, work: Callable[["Buckets"], object], at: int | None = None) -> list[str]:
        """Do the work, which ends before a write if one is named; return the champions that were there meanwhile."""
        champions: list[str] = []
        written: list[str] = []
        artifacts = ArtifactStore(self.artifacts, KEYS)

        def look() -> None:
            alias = artifacts.champion.read()
            if alias is not None:
                assert sha256(artifacts.read(alias.version).skill) == alias.sha256
                champions.append(alias.version)

        def before(key: str) -> None:
            look()
            if len(written) == at:
                raise InterruptedRun(key)
            written.append(key)

        for store in self:
            store.before_write = before
        try:
            work(self)
        except InterruptedRun:
            assert at == len(written)
        for store in self:
            store.before_write = lambda key: None
        look()
        return champions


def names_written(buckets: Buckets, work: Callable[[Buckets], object]) -> list[str]:
    written: list[str] = []
    for store in buckets:
        store.before_write = lambda key: written.append(key.rpartition("/")[2])
    work(buckets)
    return [NAMED if is_version(name) else name for name in written]


@pytest.fixture(scope="module")
def training() -> Training:
    training = Training.of(
        train__num_epochs=1, train__steps_per_epoch=1, evaluation__val_limit=None, evaluation__test_limit=60
    )
    training()
    return training


@pytest.fixture(scope="module")
def gated(training: Training) -> Mapping[str, Buckets]:
    """The buckets after the run passed the gate against the seed and against a champion, by the publication's name."""
    found = {name: LocalStore() for name in WRITES}
    for name, store in found.items():
        artifacts = ArtifactStore(store, KEYS)
        if name == "second":
            artifacts.publish(FORMER, provenance("former"), None)
        training.run_containers(plan_publication(training.run, artifacts, name, PublishingGroup(gate_policy="strict")))
        assert gate_publication(training.run, name) == ""
    return {name: Buckets(store, training.store) for name, store in found.items()}


@pytest.mark.parametrize("name", [pytest.param("first", marks=pytest.mark.nightly), "second"])
def test_a_publisher_that_ends_at_any_write_is_retried_to_one_version_and_a_valid_alias(
    training: Training, gated: Mapping[str, Buckets], name: str
) -> None:
    def publish(buckets: Buckets) -> None:
        run = TrainingRun(training.run.ref, training.models, buckets.runs)
        # The page takes most of the time.
        with patch.multiple(reporting, view_of=lambda run, history: None, render=lambda view: ""):
            write_report(run, publish_best(run, ArtifactStore(buckets.artifacts, KEYS), name))

    skill, formers = training.skill(), [FORMER] * (name == "second")
    assert names_written(gated[name].copied(), publish) == WRITES[name]
    for at in range(len(WRITES[name])):
        buckets = gated[name].copied()
        seen = buckets.seen_by_a_deployment(publish, at) + buckets.seen_by_a_deployment(publish)
        versions = published_once(training, ArtifactStore(buckets.artifacts, KEYS), buckets.runs, [*formers, skill])
        # Each version once, in its order.
        assert list(dict.fromkeys(seen)) == versions


def published_once(
    training: Training, artifacts: ArtifactStore, runs: ObjectStore, skills: Sequence[str]
) -> Sequence[str]:
    """Check that the run's skill is the last of these versions, and the champion; return their names."""
    versions = artifacts.list_versions()
    assert [artifacts.read(version).skill for version in versions] == skills
    history = artifacts.champion.history()
    assert [(one.sequence, one.version) for one in history] == list(enumerate(versions))
    assert history[-1] == artifacts.champion.read()
    assert history[-1].run == training.run.ref.run
    manifest = artifacts.read(versions[-1]).manifest
    assert (manifest.version, manifest.run) == (versions[-1], training.run.ref.run)
    published = runs.get_model(training.run.keys.history, History).published
    assert published is not None
    assert (published.version, published.created) == (versions[-1], True)
    return versions


def test_a_rollback_that_ends_at_any_write_is_retried_to_a_valid_alias() -> None:
    buckets = Buckets(LocalStore(), LocalStore())
    artifacts = ArtifactStore(buckets.artifacts, KEYS)
    first = artifacts.publish(FIRST, provenance("first"), None).version
    second = artifacts.publish(FORMER, provenance("second"), artifacts.champion.read()).version
    request = rollback_request(artifacts, "rollback", first, "users complained", approval=False)

    def move_back(copies: Buckets) -> None:
        roll_back(ArtifactStore(copies.artifacts, KEYS), request)

    assert names_written(buckets.copied(), move_back) == MOVES
    for at in range(len(MOVES)):
        copies = buckets.copied()
        seen = copies.seen_by_a_deployment(move_back, at) + copies.seen_by_a_deployment(move_back)
        moved_back(ArtifactStore(copies.artifacts, KEYS), first, second)
        assert list(dict.fromkeys(seen)) == [second, first]


def moved_back(artifacts: ArtifactStore, first: str, second: str) -> None:
    """Check that the rollback to the first version is the last of all moves."""
    history = artifacts.champion.history()
    assert [(one.sequence, one.version) for one in history] == [(0, first), (1, second), (2, first)]
    assert (history[-1].run, history[-1].reason) == ("rollback", "users complained")
    assert artifacts.champion.read() == history[-1]
