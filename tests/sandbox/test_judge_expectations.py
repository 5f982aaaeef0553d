"""Tests of the kinds that repositories have, with other expectations: each that held fails then."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.resolution import unmoved
from skillopt_airflow.core.run_logs import CaseStatus, LogFormat, parsed
from skillopt_airflow.sandbox import judge_expectations
from skillopt_airflow.sandbox.judge_expectations import altered

SUITE = '''
import asyncio
import unittest

import pytest

DATA = {"a": [1, 2.5], "b": "x" "y"}


def test_number(): assert len("four") == 4


def test_left():
    assert -4 == -len("four"), "a reason"


def test_text():
    """Its one line."""
    assert "Größe".lower() == "größe"; assert 1e300 == float(
        "1e300"
    )


def test_nested():
    assert DATA == {"a": [1, 2.5], "b": "xy"}


@pytest.mark.parametrize(("given", "found"), [("a b", 3), ("", 0)])
def test_each(given, found):
    assert len(given) == found


def test_choice():
    assert 3 == (3 if DATA else 4)


def test_empty():
    assert [] == list("")


def test_raises():
    with pytest.raises(ValueError, match="invalid"):
        int("x")


def test_raises_by_call():
    pytest.raises((ValueError, TypeError), int, "x")


def test_truth():
    for number in (1, 2):
        assert number  # Nothing else is asked.


def test_in_loops():
    for number in (1, 2):
        with open(__file__) as file:
            assert file.read(number) == "\\n"[:number] + "i" * (number - 1)


class TestInClass:
    def test_it(self):
        if DATA:
            assert DATA["b"] == "xy"

    class TestInner:
        def test_it(self):
            assert sum([1, 2]) == 3


class Old(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(DATA["a"][0], 1, "first")

    def test_raises(self):
        with self.assertRaises(KeyError):
            DATA["c"]
        self.assertRaises(KeyError, DATA.__getitem__, "c")

    def test_in(self):
        self.assertIn("a", DATA)


class Coroutines(unittest.IsolatedAsyncioTestCase):
    async def test_waits(self):
        self.assertEqual(await asyncio.sleep(0, 3), 3)'''
KEPT = """
import pytest


def test_one_line(): pass


def test_leaves():
    if len("ab") == 2:
        return
    assert 1 == 2


@pytest.mark.xfail
def test_known():
    assert 1 == 2


def helper():
    assert 1 == 1


def test_helps():
    def inner():
        return 1

    assert inner() == 1
"""


def statuses(folder: Path, text: str) -> dict[str, CaseStatus]:
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-rA", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly"]
    run = subprocess.run([*command, "test_it.py"], cwd=folder, capture_output=True, text=True, check=False)
    return parsed(LogFormat.PYTEST_V2, run.stdout)


def test_every_test_that_passed_fails(tmp_path: Path) -> None:
    before = statuses(tmp_path, SUITE)
    assert len(before) == 18
    assert set(before.values()) == {CaseStatus.PASSED}
    for seed in range(2):
        text, functions = altered(SUITE, random.Random(seed))
        assert {name for name, changed in functions.items() if not changed} == set()
        assert len(functions) == 17
        after = statuses(tmp_path, text)
        assert after.keys() == before.keys()
        assert set(after.values()) == {CaseStatus.FAILED}, text


def test_what_may_end_early_is_kept_and_counts_for_nothing(tmp_path: Path) -> None:
    text, functions = altered(KEPT, random.Random(1))
    assert functions == {"test_one_line": False, "test_leaves": False, "test_known": True, "test_helps": True}
    names = {flag: [f"test_it.{name}" for name, found in functions.items() if found is flag] for flag in (True, False)}
    after = statuses(tmp_path, text)
    assert after == {
        "test_it.py::test_one_line": "PASSED",
        "test_it.py::test_leaves": "PASSED",
        "test_it.py::test_known": "XFAIL",
        "test_it.py::test_helps": "FAILED",
    }
    assert not unmoved(after, names[True], names[False])
    passed = dict.fromkeys(after, CaseStatus.PASSED)
    assert unmoved(passed, names[True], names[False]) == {"test_it.py::test_known", "test_it.py::test_helps"}


def test_one_seed_makes_the_same_change_and_others_another() -> None:
    assert altered(SUITE, random.Random(5)) == altered(SUITE, random.Random(5))
    assert altered(SUITE, random.Random(5)) != altered(SUITE, random.Random(6))


@pytest.mark.parametrize("text", ["def test_a(:\n", "def test_a():\n    print 'old'\n", "\ufeff", "\udce9 = 1"])
def test_what_python_does_not_read_stays(text: str) -> None:
    assert altered(text, random.Random(0)) == (text, {})


def test_the_program_prints_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    # Python warns of the first line.
    text = "NUMBER = 1if 1 else 2\n\n\ndef test_a():\n    assert NUMBER\n\n\ndef test_b(): pass\n"
    (tmp_path / "tests" / "test_it.py").write_text(text)
    order = {"altered": 1, "restored": ["tests/test_it.py", "tests/data.json", "tests/test_gone.py"]}
    (tmp_path / "order.json").write_text(json.dumps(order))
    program = tmp_path / "program.py"
    program.write_text(Path(judge_expectations.__file__).read_text().replace('Path("/work")', "HERE"))
    run = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert json.loads(run.stdout) == {"altered": ["tests.test_it.test_a"], "kept": ["tests.test_it.test_b"]}
    assert (tmp_path / "tests" / "test_it.py").read_text().count("assert") == 2


def test_lines_end_as_they_did() -> None:
    text = "def test_a():\r\n\tassert 1 == 1\r\n\r\ndef test_b():\r\n\tassert 1\r\n"
    found, _ = altered(text, random.Random(0))
    assert found.count("\r\n") == text.count("\r\n")
    assert found.splitlines()[-1].startswith("\tassert ")


values = st.recursive(
    st.integers(0, 10**20) | st.floats(0, 1e300) | st.text() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, st.integers(0, 100))
def test_any_value_becomes_one_that_is_not_equal(value: object, seed: int) -> None:
    text, _ = altered(f"def test_a():\n    assert value == {value!r}\n", random.Random(seed))
    space: dict[str, object] = {"value": value}
    exec(text, space)
    with pytest.raises(AssertionError):
        space["test_a"]()  # type: ignore[operator]
