"""A test run that judges a change to a repository, and the canaries by which it shows that it ran.

The code under test runs in the process of the tests, and can print what it likes, patch the runner or end it. So tests
of random names run along: each of them has a result that is known beforehand, and a run that does not report exactly
these proves nothing. One fails, so that a runner which passes everything is found out, and one is the last.
"""

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.values.types import Value

PATCH_FILE = "patch.diff"
MAX_PATCH_BYTES = 200_000
"""Limit of a change; what is larger is not judged."""

Runner = Literal["pytest", "unittest", "django", "sympy"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class RunEnd(StrEnum):
    """The end of the judge's container with a change."""

    RAN = "ran"
    NOT_APPLIED = "not_applied"
    """The change does not fit the tree."""
    TIMEOUT = "timeout"
    KILLED = "killed"
    """The kernel ended the tests, most often for their memory."""


class RepositoryTests(Value):
    """A change and the tests that judge it."""

    patch: str
    """Bytes that are not UTF-8 are in it as surrogates, as by PEP 383."""
    touched: tuple[str, ...]
    """Paths that the change may change, by its headers."""
    test_patch: str
    """Change of the tests, applied after the candidate's, to files as they were before it."""
    restored: tuple[str, ...] = ()
    """Files that are put back to what the tree has, or has not, before the tests' own change."""
    runner: Runner = "pytest"
    files: tuple[str, ...] = Field(min_length=1)
    """What the runner is given: paths of files, or labels of Django's tests."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class Canaries(Value):
    """Two files of tests: the first has one that passes, the last one that passes and one that fails."""

    first: str
    """Path of the file that runs first."""
    last: str
    passing: tuple[str, str]
    """Names of the tests that pass."""
    failing: str
    contents: dict[str, str]
    """By path; files below the tree that are not there before."""
    labels: tuple[str, str]
    """What the runner is given for the first and the last."""

    @classmethod
    def drawn(cls, runner: Runner, files: tuple[str, ...], chance: random.Random) -> "Canaries":
        one, two, three = (_word(chance) for _ in range(3))
        folders = [_folder(runner, file) for file in (files[0], files[-1])]
        modules = _word(chance), _word(chance)
        # SymPy's runner ends the line of a file's last test in its own way, and SWE-bench does not read that.
        last = [{f"test_{_word(chance)}": True} if runner == "sympy" else {} for _ in range(2)]
        sources = (
            _source(runner, chance, {f"test_{one}": True} | last[0]),
            _source(runner, chance, {f"test_{two}": True, f"test_{three}": False} | last[1]),
        )
        contents: dict[str, str] = {}
        places, labels = [], []
        for folder, module, source in zip(folders, modules, sources, strict=True):
            place, label, extra = _placed(runner, folder, module)
            contents |= {place: source, **extra}
            places.append(place)
            labels.append(label)
        return cls(
            first=places[0],
            last=places[1],
            passing=(f"test_{one}", f"test_{two}"),
            failing=f"test_{three}",
            contents=contents,
            labels=(labels[0], labels[1]),
        )

    def held(self, statuses: Mapping[str, str]) -> bool:
        """Return whether exactly the results that must be are among those of a run, by test."""
        found = {name: _of(name, statuses) for name in (*self.passing, self.failing)}
        return all(found[name] == {"PASSED"} for name in self.passing) and found[self.failing] == {"FAILED"}

    def without(self, statuses: Mapping[str, str], exit_status: int) -> tuple[dict[str, str], int]:
        """Return the results of the other tests, and the exit status that their run would have had."""
        names = (*self.passing, self.failing)
        others = {test: status for test, status in statuses.items() if not any(name in test for name in names)}
        failed = any(status in ("FAILED", "ERROR") for status in others.values())
        return others, int(failed) if exit_status == 1 else exit_status


class TestedRepository(Value):
    """The outcome of a run of tests."""

    __test__ = False

    end: RunEnd
    output: str = ""
    """Standard output and errors of the tests; of a change that does not fit, what git says."""
    exit_status: int = 0
    canaries: Canaries


def _of(name: str, statuses: Mapping[str, str]) -> set[str]:
    return {str(status) for test, status in statuses.items() if name in test}


def _word(chance: random.Random) -> str:
    return "".join(chance.choice(_LETTERS) for _ in range(12))


def _folder(runner: Runner, file: str) -> str:
    if runner == "django":
        return "tests"
    path = file.partition("::")[0]
    if path.endswith(".py"):
        return path.rpartition("/")[0]
    return path.rstrip("/") if runner != "unittest" else "/".join(path.split(".")[:-1])


def _placed(runner: Runner, folder: str, module: str) -> tuple[str, str, dict[str, str]]:
    """Return the path of a file, what the runner is given for it, and files beside it that the runner wants."""
    if runner == "django":
        return f"tests/{module}/tests.py", module, {f"tests/{module}/__init__.py": ""}
    path = f"{folder}/test_{module}.py".lstrip("/")
    return path, path, {}


def _source(runner: Runner, chance: random.Random, tests: Mapping[str, bool]) -> str:
    lines, in_class = [], runner in ("unittest", "django")
    if in_class:
        lines += ["import unittest", "", "", f"class {_word(chance).title()}(unittest.TestCase):"]
    for name, passes in tests.items():
        left, right = chance.randrange(10**6), chance.randrange(10**6)
        said = left + right + (0 if passes else 1 + chance.randrange(1000))
        values = [left, right]
        if in_class:
            lines += [f"    def {name}(self):", f"        self.assertEqual(sum({values}), {said})", ""]
        else:
            lines += [f"def {name}():", f"    assert sum({values}) == {said}", ""]
    return "\n".join(lines) + "\n"
