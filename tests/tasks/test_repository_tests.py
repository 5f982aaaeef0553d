import random

import pytest

from skillopt_airflow.tasks.repository_tests import Canaries, Runner


def drawn(runner: Runner = "pytest", files: tuple[str, ...] = ("tests/test_a.py",)) -> Canaries:
    return Canaries.draw(runner, files, random.Random(7))


@pytest.mark.parametrize(
    ("runner", "files", "folder"),
    [
        ("pytest", ("tests/test_a.py", "other/tests/test_b.py"), "tests/"),
        ("pytest", ("test_a.py",), ""),
        ("unittest", ("tests.test_a",), "tests/"),
        ("django", ("admin_views",), "tests/"),
        ("sympy", ("sympy/core/tests/test_basic.py",), "sympy/core/tests/"),
    ],
)
def test_canaries_lie_beside_the_tests_under_names_that_differ_each_time(
    runner: Runner, files: tuple[str, ...], folder: str
) -> None:
    found = drawn(runner, files)
    other = Canaries.draw(runner, files, random.Random(8))
    assert found.first.startswith(folder)
    assert found.first in found.contents
    assert found.last in found.contents
    assert not set(found.contents) & set(other.contents)
    for content in found.contents.values():
        compile(content, "canary", "exec")


def test_their_tests_have_the_results_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn()
    space: dict[str, object] = {}
    for content in found.contents.values():
        exec(content, space)
    for name in found.passing:
        space[name]()  # type: ignore[operator]
    with pytest.raises(AssertionError):
        space[found.failing]()  # type: ignore[operator]


def test_only_exactly_these_results_hold() -> None:
    found = drawn()
    first, last = found.passing
    right = {
        f"{found.first}::{first}": "PASSED",
        f"{found.last}::{last}": "PASSED",
        f"{found.last}::{found.failing}": "FAILED",
    }
    assert found.confirm(right)
    assert found.confirm({**right, "tests/test_a.py::test_a": "FAILED"})
    for test in right:
        assert not found.confirm({name: status for name, status in right.items() if name != test})
        assert not found.confirm({**right, test: "ERROR"})
    assert not found.confirm({**right, f"{found.last}::{found.failing}": "PASSED"})


@pytest.mark.parametrize(("status", "without"), [("PASSED", 0), ("FAILED", 1), ("ERROR", 1)])
def test_the_exit_status_is_what_it_were_without_them(status: str, without: int) -> None:
    found = drawn()
    statuses = {f"{found.last}::{found.failing}": "FAILED", "tests/test_a.py::test_a": status}
    assert found.without(statuses, 1) == ({"tests/test_a.py::test_a": status}, without)
    assert found.without({}, 2) == ({}, 2)


def test_sympys_runner_ends_the_line_of_the_last_test_of_a_file_in_its_own_way():
    canaries = Canaries.draw("sympy", ("sympy/core/tests/test_basic.py",), random.Random(1))
    for path in (canaries.first, canaries.last):
        last = canaries.contents[path].split("def ")[-1]
        assert not any(last.startswith(name) for name in (*canaries.passing, canaries.failing))
