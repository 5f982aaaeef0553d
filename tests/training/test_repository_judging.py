"""How often the tests of a change run, and what counts of it; the runs themselves are made up."""

import random

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.protocols import JudgesRepository
from skillopt_airflow.core.repository_tests import Canaries, RepositoryTests, RunEnd, TestedRepository
from skillopt_airflow.core.types import Item, Status, Trajectory
from skillopt_airflow.training.repository_judging import judged_repository
from tests.sandbox.small_repository import GOLD, RECORD

BENCHMARK = benchmarks.load("swebench")
OTHER = GOLD.replace("+    return sum(amounts)", "+    return sum(list(amounts))")
FIXED, STAYED = "tests/test_sums.py::test_all_the_amounts", "tests/test_sums.py::test_none"
FUNCTIONS = ("tests.test_sums.test_all_the_amounts", "tests.test_sums.test_none")


class Runs:
    """Runs in which all tests pass, but where they expect something else: there those that do so whatever they do."""

    def __init__(self, unmoved: tuple[str, ...], unmoved_with_solution: tuple[str, ...]) -> None:
        self._unmoved = {OTHER: unmoved, GOLD: unmoved_with_solution}
        self.orders: list[RepositoryTests] = []

    def __call__(self, item: Item, wanted: RepositoryTests) -> TestedRepository:
        self.orders.append(wanted)
        passed = self._unmoved[wanted.patch] if wanted.altered is not None else (FIXED, STAYED)
        canaries = Canaries.drawn("pytest", wanted.files, random.Random(0))
        lines = [f"PASSED {canaries.first}::{canaries.passing[0]}", f"PASSED {canaries.last}::{canaries.passing[1]}"]
        lines += [f"{'PASSED' if one in passed else 'FAILED'} {one}" for one in (FIXED, STAYED)]
        lines += [f"FAILED {canaries.last}::{canaries.failing} - assert 1 == 2"]
        counts = [f"{sum(line.startswith(word) for line in lines)} {word.lower()}" for word in ("FAILED", "PASSED")]
        text = "\n".join(["=== short test summary info ===", *lines, f"=== {', '.join(counts)} in 0.01s ===", ""])
        altered = FUNCTIONS if wanted.altered is not None else ()
        return TestedRepository(end=RunEnd.RAN, output=text, exit_status=1, canaries=canaries, altered=altered)


@pytest.mark.parametrize(
    ("unmoved", "with_solution", "runs", "said"),
    [
        ((), (), 2, "resolved: 1 of 1 tests of the issue pass."),
        ((FIXED,), (), 3, f"indifferent: tests pass that expect something else than they should. ({FIXED})"),
        (
            (FIXED, STAYED),
            (STAYED,),
            3,
            f"indifferent: tests pass that expect something else than they should. ({FIXED})",
        ),
        ((STAYED,), (STAYED,), 3, "resolved: 1 of 1 tests of the issue pass."),
    ],
    ids=["right", "cheats", "cheats in one", "a test that looks for no value"],
)
def test_tests_that_pass_whatever_they_expect_show_nothing(
    unmoved: tuple[str, ...], with_solution: tuple[str, ...], runs: int, said: str
) -> None:
    run = Runs(unmoved, with_solution)
    assert isinstance(BENCHMARK, JudgesRepository)
    left = Trajectory(item_id="ledger__ledger-1", status=Status.OK)
    found = judged_repository(BENCHMARK, BENCHMARK.item(RECORD), left, {"patch.diff": OTHER.encode()}, run)
    assert found.score is not None
    assert found.score.feedback == said
    assert found.score.hard == found.score.soft == float(said.startswith("resolved"))
    assert [order.patch for order in run.orders] == [OTHER, OTHER, GOLD][:runs]
    # What the solution is asked, the change was asked, too.
    assert len({order.altered for order in run.orders[1:]}) == 1


def test_without_a_solution_tests_run_once() -> None:
    run = Runs((FIXED,), ())
    assert isinstance(BENCHMARK, JudgesRepository)
    item = BENCHMARK.item({**RECORD, "patch": ""})
    left = Trajectory(item_id=item.id, status=Status.OK)
    found = judged_repository(BENCHMARK, item, left, {"patch.diff": OTHER.encode()}, run)
    assert found.score is not None
    assert (found.score.hard, len(run.orders)) == (1.0, 1)


def test_a_file_of_another_encoding_is_judged_by_its_bytes_and_stored_as_unicode() -> None:
    run = Runs((), ())
    assert isinstance(BENCHMARK, JudgesRepository)
    item = BENCHMARK.item({**RECORD, "patch": ""})
    change = OTHER.encode() + (
        b"diff --git a/NOTES b/NOTES\n--- a/NOTES\n+++ b/NOTES\n"
        b"@@ -1 +1 @@\n-na\xefve sums\n+na\xefve, but right sums\n"
    )
    left = Trajectory(item_id=item.id, status=Status.OK)
    found = judged_repository(BENCHMARK, item, left, {"patch.diff": change}, run)
    assert [order.patch.encode(errors="surrogateescape") for order in run.orders] == [change]
    assert "na\N{REPLACEMENT CHARACTER}ve" in found.model_dump_json()
    # What a judge could not say of it is not asked again of what is stored, which is another change.
    for patch, status in ((change, Status.SANDBOX_ERROR), (OTHER.encode(), Status.JUDGE_ERROR)):
        failed = judged_repository(BENCHMARK, item, left, {"patch.diff": patch}, away)
        assert (failed.trajectory.status, failed.score) == (status, None)


def test_a_change_that_is_too_large_is_not_judged() -> None:
    assert isinstance(BENCHMARK, JudgesRepository)
    item = BENCHMARK.item(RECORD)
    change = OTHER + "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1,20000 @@\n" + "+MORE = 1\n" * 20_000
    left = Trajectory(item_id=item.id, status=Status.OK)
    found = judged_repository(BENCHMARK, item, left, {"patch.diff": change.encode()}, away)
    assert found.score is not None
    assert found.score.feedback.startswith("too_large: ")


def away(item: Item, wanted: RepositoryTests) -> TestedRepository:
    raise SandboxError("the engine went away")
