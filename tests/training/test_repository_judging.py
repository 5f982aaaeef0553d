"""Judging a change by its tests; the runs themselves are made up."""

import random
from typing import Any

import pytest

from benchmarks.swebench.scoring import ELSEWHERE
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.repository_tests import Canaries, RepositoryTests, RunEnd, TestedRepository
from skillopt_airflow.core.types import Item, Rollout, Status, Trajectory
from skillopt_airflow.training.repository_judging import judged_repository
from tests.sandbox.small_repository import GOLD, RECORD, added

BENCHMARK = benchmarks.load("swebench")
OTHER = GOLD.replace("+    return sum(amounts)", "+    return sum(list(amounts))")
FIXED, STAYED = "tests/test_sums.py::test_all_the_amounts", "tests/test_sums.py::test_none"


class Runs:
    """Runs in which all tests pass."""

    def __init__(self) -> None:
        self.orders: list[RepositoryTests] = []

    def __call__(self, item: Item, wanted: RepositoryTests) -> TestedRepository:
        self.orders.append(wanted)
        canaries = Canaries.drawn("pytest", wanted.files, random.Random(0))
        passed = (f"{canaries.first}::{canaries.passing[0]}", f"{canaries.last}::{canaries.passing[1]}", FIXED, STAYED)
        lines = [f"PASSED {one}" for one in passed] + [f"FAILED {canaries.last}::{canaries.failing} - assert 1 == 2"]
        text = "\n".join(["=== short test summary info ===", *lines, "=== 1 failed, 4 passed in 0.01s ===", ""])
        return TestedRepository(end=RunEnd.RAN, output=text, exit_status=1, canaries=canaries)


def judged(change: bytes, run: Any, recorded: str = "") -> Rollout:
    item = BENCHMARK.item({**RECORD, "patch": recorded})
    left = Trajectory(item_id=item.id, status=Status.OK)
    return judged_repository(BENCHMARK, item, left, {"patch.diff": change}, run)


@pytest.mark.parametrize(
    ("change", "recorded", "told"),
    [
        (OTHER, GOLD, ""),
        (OTHER, "", ""),
        (added("ledger/more.py", "MORE = 1"), GOLD, ELSEWHERE),
        (OTHER + added("ledger/more.py", "MORE = 1"), GOLD, ""),
    ],
    ids=["same file", "nothing recorded", "another file", "both"],
)
def test_the_tests_run_once_and_the_feedback_notes_a_fix_elsewhere(change: str, recorded: str, told: str) -> None:
    run = Runs()
    found = judged(change.encode(), run, recorded)
    assert found.score.feedback == f"resolved: 1 of 1 tests of the issue pass. {told}".strip()
    assert (found.score.hard, found.score.soft, len(run.orders)) == (1.0, 1.0, 1)


def test_a_file_of_another_encoding_is_judged_by_its_bytes_and_stored_as_unicode() -> None:
    run = Runs()
    change = OTHER.encode() + (
        b"diff --git a/NOTES b/NOTES\n--- a/NOTES\n+++ b/NOTES\n"
        b"@@ -1 +1 @@\n-na\xefve sums\n+na\xefve, but right sums\n"
    )
    found = judged(change, run)
    assert [order.patch.encode(errors="surrogateescape") for order in run.orders] == [change]
    assert "na\N{REPLACEMENT CHARACTER}ve" in found.model_dump_json()
    # What a judge could not say of it is not asked again of what is stored, which is another change.
    for patch, status in ((change, Status.SANDBOX_ERROR), (OTHER.encode(), Status.JUDGE_ERROR)):
        failed = judged(patch, away)
        assert (failed.trajectory.status, failed.score) == (status, None)


def test_a_change_that_is_too_large_is_not_judged() -> None:
    change = OTHER + "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1,20000 @@\n" + "+MORE = 1\n" * 20_000
    found = judged(change.encode(), away)
    assert found.score.feedback.startswith("too_large: ")


def away(item: Item, wanted: RepositoryTests) -> TestedRepository:
    raise SandboxError("the engine went away")
