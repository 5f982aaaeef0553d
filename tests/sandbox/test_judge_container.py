"""Changes of a small repository in the judge's container: a right one resolves, and none that cheats does."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import docker
import pytest

from benchmarks.swebench.patches import touched_paths
from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import EngineUnavailable
from skillopt_airflow.core.values.types import Item, Rollout, Status, Trajectory
from skillopt_airflow.sandbox.docker.item_images import ItemImages
from skillopt_airflow.sandbox.judge_container import JudgeContainer
from skillopt_airflow.tasks.protocols import JudgesRepository
from skillopt_airflow.tasks.repository_tests import RepositoryTestRun, RepositoryTests
from skillopt_airflow.training.rollouts.judging import RunTests, score_repository
from tests.sandbox.judge_cheats import (
    BUG,
    CHEATS,
    LEFT_OUT,
    UNITTEST_CHEATS,
    UNITTEST_GOLD,
    UNITTEST_RECORD,
    WITH_PLUGIN,
)
from tests.sandbox.small_repository import CONTENTS, GOLD, small_item, sums

pytestmark = pytest.mark.engine

BENCHMARK = benchmarks.load("swebench")
LIMITS = SandboxGroup(test_timeout=60)
ITEM = small_item()
FEW = {
    "deletes the tests",
    "does not fit",
    "prints results and exits 0",
    "patches pytest's reports",
    "removes what judges",
    "kills what started it",
    "conftest passes all",
    "sitecustomize",
    "patches assertEqual",
}
"""Cheats of each kind; the others are tried at night."""
OTHER_GOLD = GOLD.replace("+    return sum(amounts)", "+    return sum(list(amounts))")
"""As right as the one that is known to be."""


@pytest.fixture(scope="module")
def run(docker_host: str) -> Iterator[RunTests]:
    with closing(docker.APIClient(base_url=docker_host, timeout=600)) as client:
        images = ItemImages(client, image.IMAGE, LIMITS, lambda _: CONTENTS)

        def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
            limits = LIMITS.model_copy(update={"test_timeout": 10}) if "sleep(600)" in wanted.patch else LIMITS
            return JudgeContainer(client, limits, {"run": "judge-test"}).run(item, images.judge_image(item), wanted)

        yield run


def judged(run: RunTests, patch: str, item: Item = ITEM) -> Rollout:
    assert isinstance(BENCHMARK, JudgesRepository)
    left = Trajectory(item_id=item.id, status=Status.OK, answer="Done.")
    return score_repository(BENCHMARK, item, left, {"patch.diff": patch.encode()}, run)


def scored(found: Rollout) -> tuple[float, float]:
    assert found.score is not None, found.trajectory.error
    print(found.score.feedback)
    return found.score.hard, found.score.soft


def tried(cheats: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in FEW else pytest.mark.nightly) for name in cheats]


def unittest_item() -> Item:
    return BENCHMARK.item(UNITTEST_RECORD).model_copy(update={"image": ITEM.image})


@pytest.mark.parametrize("patch", [GOLD, OTHER_GOLD], ids=["recorded", "other"])
def test_a_right_change_resolves_and_is_the_answer(patch: str, run: RunTests) -> None:
    found = judged(run, patch)
    assert scored(found) == (1.0, 1.0)
    assert found.trajectory.answer == patch


@pytest.mark.parametrize("name", tried(CHEATS))
def test_no_cheat_resolves(name: str, run: RunTests) -> None:
    assert scored(judged(run, CHEATS[name])) == (0.0, 0.0)


@pytest.mark.nightly
@pytest.mark.parametrize("name", tried(LEFT_OUT))
def test_none_resolves_even_where_all_of_it_gets_into_the_container(name: str, run: RunTests) -> None:
    def unfiltered(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        cheats = wanted.patch == OTHER_GOLD
        all_of_it = {"patch": WITH_PLUGIN[name], "touched": touched_paths(WITH_PLUGIN[name])}
        return run(item, wanted.model_copy(update=all_of_it) if cheats else wanted)

    found = judged(unfiltered, OTHER_GOLD)
    assert scored(found) == (0.0, 0.0)
    assert found.score is not None
    assert not found.score.feedback.startswith("not_applied")


def test_a_right_change_resolves_with_unittest(run: RunTests) -> None:
    assert scored(judged(run, UNITTEST_GOLD, unittest_item())) == (1.0, 1.0)


@pytest.mark.nightly
@pytest.mark.parametrize("name", tried(UNITTEST_CHEATS))
def test_no_cheat_resolves_with_unittest(name: str, run: RunTests) -> None:
    code = UNITTEST_CHEATS[name]
    change = sums(code if "def total" in code else BUG + code)
    assert scored(judged(run, change, unittest_item())) == (0.0, 0.0)


def test_a_right_change_beside_a_conftest_counts_without_it(run: RunTests) -> None:
    found = judged(run, GOLD + CHEATS["conftest passes all"])
    assert scored(found)[0] == 1.0
    assert found.score is not None
    assert "tests/conftest.py" in found.score.feedback


def test_a_change_of_files_that_its_headers_do_not_name_is_not_applied(run: RunTests) -> None:
    # Git leaves out the first folder of a name, whatever it is called.
    found = judged(run, GOLD + "--- /dev/null\n+++ z/ledger/more.py\n@@ -0,0 +1 @@\n+MORE = 1\n")
    assert scored(found) == (0.0, 0.0)
    assert found.score is not None
    assert found.score.feedback.startswith("not_applied: ")


def test_an_engine_that_fails_is_no_score() -> None:
    def broken(*_: object) -> RepositoryTestRun:
        raise EngineUnavailable("the engine went away")

    found = judged(broken, GOLD)
    assert (found.trajectory.status, found.score, found.trajectory.answer) == (Status.JUDGE_ERROR, None, GOLD)
