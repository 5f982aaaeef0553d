"""The rule by rows 1 to 17 of the facts of SWE-bench, and what a run must show to be believed."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.swebench.patches import candidate_patch
from benchmarks.swebench.resolution import Outcome, Verdict, resolve, unjudged, unreliable
from benchmarks.swebench.run_logs import CaseStatus, LogFormat, parsed, worst

RULE = [
    ("all pass", ["a"], ["b"], "PASSED a\nPASSED b", 0, Outcome.RESOLVED),
    ("one is lost", ["a"], ["b"], "PASSED a\nFAILED b", 1, Outcome.UNRESOLVED),
    ("one is still failing", ["a", "c"], ["b"], "PASSED a\nFAILED c\nPASSED b", 1, Outcome.PARTIAL),
    ("expected failure and skip", ["a"], ["b"], "XFAIL a\nSKIPPED b", 0, Outcome.RESOLVED),
    ("no failure explains the exit", ["a"], [], "PASSED a", 1, Outcome.FORGED),
    ("no status at all", ["a"], ["b"], "", 2, Outcome.UNRESOLVED),
]
CUT = "t.py::x[log(photon"
LAST = {
    LogFormat.PYTEST: "=== short test summary info ===\n{}\n=== 1 passed in 0.12s ===\n",
    LogFormat.UNITTEST: "{}\n------\nRan 1 test in 0.001s\n\nOK\n",
    LogFormat.SYMPY: "{}\n==== tests finished: 1 passed, in 0.10 seconds ====\n",
}
PASS = {LogFormat.PYTEST: "PASSED t.py::a", LogFormat.UNITTEST: "test_a (m.T) ... ok", LogFormat.SYMPY: "test_a ok"}


@pytest.mark.parametrize(("name", "f2p", "p2p", "log", "status", "outcome"), RULE, ids=[row[0] for row in RULE])
def test_the_rule(name: str, f2p: list[str], p2p: list[str], log: str, status: int, outcome: Outcome):
    verdict = resolve(f2p, p2p, parsed(LogFormat.PYTEST, log), status)
    assert verdict.outcome is outcome
    assert verdict.resolved == (outcome is Outcome.RESOLVED) == (verdict.soft == 1.0)
    assert verdict.reason == ("" if verdict.resolved else outcome)
    assert verdict.feedback.startswith(outcome)


def test_an_id_that_was_cut_stands_for_all_that_begin_so():
    whole = "PASSED t.py::x[log(photon / m**2 s)]\n"
    for log_format in (LogFormat.PYTEST, LogFormat.PYTEST_V2):
        assert resolve([CUT], [], worst(log_format, whole), 0).resolved
    both = whole + "FAILED t.py::x[log(photon / s)] - no\n"
    for log_format in (LogFormat.PYTEST, LogFormat.PYTEST_V2):
        assert not resolve([CUT], [], worst(log_format, both), 1).resolved


def test_the_two_ways_in_which_unittest_names_a_test_are_one():
    for listed in ("test_a (m.T)", "test_a (m.T.test_a)"):
        for written in ("test_a (m.T)", "test_a (m.T.test_a)"):
            for log_format in (LogFormat.UNITTEST, LogFormat.DJANGO):
                assert resolve([listed], [], worst(log_format, f"{written} ... ok"), 0).resolved


def test_soft_is_the_share_that_is_fixed_if_nothing_is_lost():
    some = {"a": CaseStatus.PASSED, "c": CaseStatus.FAILED, "b": CaseStatus.PASSED}
    assert resolve(["a", "c"], ["b"], some, 1).soft == 0.5
    assert resolve(["a", "c"], ["b"], {**some, "b": CaseStatus.ERROR}, 1).soft == 0.0
    feedback = resolve(["a", "c"], ["b"], {**some, "b": CaseStatus.ERROR}, 1).feedback
    assert feedback.startswith("unresolved: 1 of 2 tests of the issue pass. Still failing: c. ")
    assert feedback.endswith(": b.")


def test_without_a_patch_that_counts_nothing_runs():
    edited = "--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert unjudged(candidate_patch("")) == Verdict(outcome=Outcome.EMPTY)
    only_tests = unjudged(candidate_patch(edited.replace("f.py", "conftest.py")))
    assert only_tests
    assert (only_tests.outcome, only_tests.detail) == (Outcome.EDITS_TESTS, "conftest.py")
    assert unjudged(candidate_patch(edited)) is None


@pytest.mark.parametrize("log_format", LAST)
def test_a_run_is_believed_with_its_last_line_and_not_without(log_format: LogFormat):
    # A row of numbers that a test prints is read in no time.
    rows = f"{' '.join(['1024'] * 60)}\n{', '.join(['1024'] * 60)}\n"
    assert unreliable(log_format, rows + LAST[log_format].format(PASS[log_format])) is None
    cut = unreliable(log_format, PASS[log_format])
    assert cut
    assert cut.outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize("log_format", LAST)
def test_more_passes_than_the_runner_counted_are_forged(log_format: LogFormat):
    second = PASS[log_format].replace("::a", "::b").replace("_a", "_b")
    forged = unreliable(log_format, LAST[log_format].format(f"{PASS[log_format]}\n{second}"))
    assert forged
    assert forged.outcome is Outcome.FORGED


@pytest.mark.nightly
def test_a_pass_that_a_test_printed_is_not_one_of_the_summary(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(
        "def test_a():\n    print('\\nPASSED test_it.py::test_b')\n\n\ndef test_b():\n    assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_it.py", "-k", "test_a"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert worst(LogFormat.PYTEST, run.stdout)["test_it.py::test_b"] is CaseStatus.PASSED
    forged = unreliable(LogFormat.PYTEST, run.stdout)
    assert forged
    assert "summary does not name test_it.py::test_b" in forged.feedback
    honest = subprocess.run([*command[:-1], "test_b"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert unreliable(LogFormat.PYTEST, honest.stdout) is None


statuses = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(list(CaseStatus)))
names = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)


@given(names.filter(bool), names, statuses, st.integers(0, 2))
def test_only_a_run_in_which_all_of_both_lists_pass_resolves(
    f2p: list[str], p2p: list[str], found: dict[str, CaseStatus], exit_status: int
):
    verdict = resolve(f2p, p2p, found, exit_status)
    kept = all(case in found and (found[case].passing or found[case] is CaseStatus.SKIPPED) for case in p2p)
    fixed = [case for case in f2p if case in found and found[case].passing]
    believed = exit_status == 0 or not found or any(status.failing for status in found.values())
    assert verdict.resolved == (believed and kept and fixed == f2p)
    assert verdict.soft == (len(fixed) / len(f2p) if believed and kept else 0.0)
    assert set(verdict.fixed) | set(verdict.failing) == (set(f2p) if believed else set())
