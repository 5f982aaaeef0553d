"""Run logs against the answers that the parsers of swebench 5.0.2 gave on the same texts, recorded by running them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.swebench.run_logs import CaseStatus, LogFormat, parsed, worst

LOGS = {
    "pytest": (
        "============================= test session starts ==============================\n"
        "collected 7 items\n"
        "\n"
        "tests/test_a.py .sFxE                                                    [100%]\n"
        "\n"
        "=========================== short test summary info ============================\n"
        "PASSED tests/test_a.py::test_one\n"
        "PASSED tests/test_a.py::test_p[log(photon / m**2 s)]\n"
        "PASSED tests/test_a.py::test_p[a-b]\n"
        "SKIPPED [1] tests/test_a.py:12: needs network\n"
        "XFAIL tests/test_a.py::test_known - reason: later\n"
        "XPASS tests/test_a.py::test_better\n"
        "ERROR tests/test_a.py::test_fixture - RuntimeError: no - way\n"
        "FAILED tests/test_a.py::test_two - AssertionError: 1 - 2\n"
        "FAILED tests/test_a.py::test_path[/tmp/x/y.txt]\n"
        "PASSED tests/test_a.py::test_path[/usr/share/data.json]\n"
        "PASSED tests/test_a.py::test_path[//host/share]\n"
        "PASSED\n"
        "============ 2 failed, 5 passed, 1 skipped, 1 xfailed, 1 error in 0.12s ============\n"
    ),
    "pytest_v2": (
        "\u001b[32mPASSED\u001b[0m tests/test_a.py::\u001b[1mtest_one[a b]\u001b[0m\n"
        "\u001b[31mFAILED\u001b[0m tests/test_a.py::test_two[x - y] - AssertionError: no\n"
        "tests/old.py::test_three PASSED\n"
        "tests/old.py::test_four[a b] FAILED\n"
        "SKIPPED [2] tests/x.py:1: no\n"
        "ERROR tests/e.py\n"
    ),
    "matplotlib": ("PASSED lib/t.py::test_b[MouseButton.LEFT]\nFAILED lib/t.py::test_b[MouseButton.RIGHT] - x\n"),
    "seaborn": (
        "tests/t.py::test_a PASSED [ 10%]\n"
        "PASSED tests/t.py::test_b\n"
        "FAILED tests/t.py::test_c - x\n"
        "SKIPPED [1] a:1: b\n"
    ),
    "django": (
        "test_foo (m.T) ... ok\n"
        "test_bar (m.T) ... FAIL\n"
        "A docstring's line. ... ok\n"
        "test_skip (m.T) ... skipped 'no database'\n"
        "test_err (m.T) ... ERROR\n"
        "test_noise (m.T) ... Testing against Django installed in '/testbed' with up to 2 processes (1 silenced).\n"
        "ok\n"
        "test_late (m.T) ... printed\n"
        "ok\n"
        "======================================================================\n"
        "FAIL: test_bar (m.T)\n"
        "ERROR: test_err (m.T)\n"
        "  Applying sites.0002_alter_domain_unique...test_no_migrations (m.M) ... ok\n"
        "test_v (m.T) --version is equivalent to version ... ok\n"
    ),
    "sympy": (
        "test_one ok\n"
        "test_two F\n"
        "test_three E\n"
        "test_four f\n"
        "test_five s\n"
        "________________________________________________________________________________\n"
        "____________ sympy/core/tests/test_x.py:test_two ____________\n"
        "  tests finished: 1 passed, 1 failed, 1 exceptions, in 0.10 seconds\n"
    ),
}
PYTEST = {
    "tests/test_a.py::test_one": "PASSED",
    "tests/test_a.py::test_p[log(photon": "PASSED",
    "tests/test_a.py::test_p[a-b]": "PASSED",
    "tests/test_a.py::test_known": "XFAIL",
    "tests/test_a.py::test_fixture": "ERROR",
    "tests/test_a.py::test_two": "FAILED",
    "tests/test_a.py::test_path[/tmp/x/y.txt]": "FAILED",
    "tests/test_a.py::test_path[/usr/share/data.json]": "PASSED",
    "tests/test_a.py::test_path[//host/share]": "PASSED",
}
SHORTENED = {re.sub(r"\[/\w.*(/\w+\.\w+)\]", r"[\1]", case): status for case, status in PYTEST.items()}
RECORDED: dict[str, tuple[str, dict[str, str]]] = {
    "pytest": ("pytest", PYTEST),
    "pytest_options": ("pytest", SHORTENED),
    "pytest_v2": (
        "pytest_v2",
        {
            "tests/test_a.py::test_one[a b]": "PASSED",
            "tests/test_a.py::test_two[x": "FAILED",
            "tests/old.py::test_three": "PASSED",
            "tests/old.py::test_four[a b]": "FAILED",
            "tests/e.py": "ERROR",
        },
    ),
    "matplotlib": ("matplotlib", {"lib/t.py::test_b[1]": "PASSED", "lib/t.py::test_b[3]": "FAILED"}),
    "seaborn": (
        "seaborn",
        {"tests/t.py::test_a": "PASSED", "tests/t.py::test_b": "PASSED", "tests/t.py::test_c": "FAILED"},
    ),
    "django": (
        "django",
        {
            "test_foo (m.T)": "PASSED",
            "test_bar (m.T)": "FAILED",
            "A docstring's line.": "PASSED",
            "test_skip (m.T)": "SKIPPED",
            "test_err (m.T)": "ERROR",
            "test_noise (m.T)": "PASSED",
            "test_late (m.T)": "PASSED",
            "test_bar": "FAILED",
            "test_err": "ERROR",
            "test_no_migrations (m.M)": "PASSED",
            "--version is equivalent to version": "PASSED",
            "test_v (m.T) --version is equivalent to version": "PASSED",
        },
    ),
    "sympy": (
        "sympy",
        {
            "sympy/core/tests/test_x.py:test_two": "FAILED",
            "test_one": "PASSED",
            "test_two": "FAILED",
            "test_three": "ERROR",
        },
    ),
}
"""By the package's parser: the log above that it read, and its answer. Its version: 5.0.2."""

SUITE = '''
import unittest


class T(unittest.TestCase):
    def test_a(self):
        pass

    def test_b(self):
        """A docstring."""
        self.fail("no")

    def test_c(self):
        raise ValueError

    @unittest.skip("no network")
    def test_d(self):
        pass

    @unittest.expectedFailure
    def test_e(self):
        self.fail("known")

    @unittest.expectedFailure
    def test_f(self):
        pass

    def test_g(self):
        for number in range(2):
            with self.subTest(number=number):
                self.assertEqual(number, 0)

    def test_h(self):
        print("hello", flush=True)


class U(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError

    def test_a(self):
        pass
'''


@pytest.mark.parametrize("name", RECORDED)
def test_the_answers_are_those_of_the_package(name: str):
    log, answer = RECORDED[name]
    assert parsed(LogFormat(name), LOGS[log]) == answer


def test_unittest_is_read_as_this_python_writes_it(tmp_path: Path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "unittest", "-v", "test_suite"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert worst(LogFormat.UNITTEST, run.stdout + run.stderr) == {
        "test_a (test_suite.T)": "PASSED",
        "test_b (test_suite.T)": "FAILED",
        "test_c (test_suite.T)": "ERROR",
        "test_d (test_suite.T)": "SKIPPED",
        "test_e (test_suite.T)": "XFAIL",
        "test_f (test_suite.T)": "FAILED",
        "test_g (test_suite.T)": "FAILED",
        "test_h (test_suite.T)": "PASSED",
        "setUpClass (test_suite.U)": "ERROR",
    }


def test_a_pass_that_is_printed_late_takes_no_failure_back():
    text = "FAILED t.py::a - no\nPASSED t.py::a\n"
    assert parsed(LogFormat.PYTEST, text) == {"t.py::a": "PASSED"}
    assert worst(LogFormat.PYTEST, text) == {"t.py::a": "FAILED"}


@pytest.mark.parametrize("log_format", [LogFormat.PYTEST, LogFormat.PYTEST_V2])
def test_a_test_with_a_failed_subtest_failed_whatever_pytest_says_of_it(log_format: LogFormat) -> None:
    text = """
PASSED test_a.py::T::test_ok
PASSED test_a.py::T::test_y
SUBFAILED[a message - with a dash] (i=0, text='x') test_a.py::T::test_y
SUBFAILED(i=1) test_a.py::T::test_z - AssertionError: 1 != 2
PASSED test_a.py::T::test_z
"""
    failed = dict.fromkeys(("test_a.py::T::test_y", "test_a.py::T::test_z"), CaseStatus.FAILED)
    assert worst(log_format, text) == {"test_a.py::T::test_ok": CaseStatus.PASSED, **failed}


@pytest.mark.parametrize(
    ("log_format", "noise"),
    [
        (LogFormat.DJANGO, " ... Internal Server Error: /"),
        (LogFormat.DJANGO, " ... System check identified no issues (0 silenced) "),
        (LogFormat.SYMPY, " "),
        (LogFormat.SYMPY, "_ a.py:"),
        (LogFormat.PYTEST_OPTIONS, "PASSED a["),
        (LogFormat.UNITTEST, "test_a (m.T) ... "),
        (LogFormat.PYTEST_V2, "SUBFAILED a::b "),
    ],
)
def test_megabytes_of_noise_are_read_in_their_time(log_format: LogFormat, noise: str) -> None:
    """Were the time for a line to grow with its square, this would take hours."""
    assert isinstance(worst(log_format, "PASSED " + noise * (3_000_000 // len(noise))), dict)


cases = st.dictionaries(
    st.sampled_from([f"tests/{file}.py::test_{name}" for file in "ab" for name in ("x", "y", "z[1]", "z[a-b]")]),
    st.sampled_from(list(CaseStatus)),
    max_size=8,
)


@given(cases)
def test_what_pytest_writes_is_read_back(statuses: dict[str, CaseStatus]):
    lines = [
        f"{status.value} {case}" + (" - why" if status is CaseStatus.FAILED else "")
        for case, status in statuses.items()
    ]
    for log_format in (LogFormat.PYTEST, LogFormat.PYTEST_V2):
        assert parsed(log_format, "\n".join(["=== header ===", *lines])) == statuses


@given(st.sampled_from(LogFormat), st.text(), st.text())
def test_any_text_is_read_and_more_of_it_never_makes_a_test_pass(log_format: LogFormat, text: str, more: str):
    before, after = worst(log_format, text), worst(log_format, f"{text}\n{more}")
    if log_format is LogFormat.PYTEST:
        assert all(not after[case].passing for case, status in before.items() if not status.passing)
    assert set(parsed(log_format, text)) == set(before)
