"""Tests that score a change to a repository, and the canaries that prove that they ran.

The code under test runs in the process of the tests, so it can print anything, patch the runner or end it. Canaries are
tests with random names and known results, and a run counts only if it reports exactly these results. One canary
fails, which exposes a runner that passes everything, and one runs last.
"""

import random
from collections.abc import Mapping
from enum import StrEnum
from string import ascii_lowercase
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.values.types import Value

PATCH_FILE = "patch.diff"
MAX_PATCH_BYTES = 200_000
"""Larger changes aren't tested."""

Runner = Literal["pytest", "unittest", "django", "sympy"]


class RunEnd(StrEnum):
    """The way in which the tests' container ended."""

    RAN = "ran"
    NOT_APPLIED = "not_applied"
    """The change doesn't apply to the tree."""
    TIMEOUT = "timeout"
    KILLED = "killed"
    """The kernel killed the tests, mostly for their memory."""


class RepositoryTests(Value):
    """A change and the tests that score it."""

    patch: str
    """Invalid UTF-8 bytes are surrogates (PEP 383)."""
    touched: tuple[str, ...]
    test_patch: str
    """Change of the tests, applied after the target's change, to the original test files."""
    restored: tuple[str, ...] = ()
    """Files that get their state in the tree back before the test patch is applied; some are absent there."""
    runner: Runner = "pytest"
    files: tuple[str, ...] = Field(min_length=1)
    """Arguments of the runner: paths of files, or labels of Django tests."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class Canaries(Value):
    """Two test files: the first has a passing test, the last has a passing and a failing one."""

    first: str
    last: str
    passing: tuple[str, str]
    failing: str
    contents: dict[str, str]
    """Contents of new files by path below the tree."""
    labels: tuple[str, str]
    """The runner's arguments for the first and the last file."""

    @classmethod
    def draw(cls, runner: Runner, files: tuple[str, ...], chance: random.Random) -> "Canaries":
        one, two, three = (_word(chance) for _ in range(3))
        modules = _word(chance), _word(chance)
        # SWE-bench can't parse the line of a file's last test by SymPy's runner.
        ends = [{f"test_{_word(chance)}": True} if runner == "sympy" else {} for _ in range(2)]
        sources = (
            _source(runner, chance, {f"test_{one}": True} | ends[0]),
            _source(runner, chance, {f"test_{two}": True, f"test_{three}": False} | ends[1]),
        )
        first, label, extra = _placed(runner, files[0], modules[0])
        last, last_label, last_extra = _placed(runner, files[-1], modules[1])
        return cls(
            first=first,
            last=last,
            passing=(f"test_{one}", f"test_{two}"),
            failing=f"test_{three}",
            contents={first: sources[0], **extra, last: sources[1], **last_extra},
            labels=(label, last_label),
        )

    def confirm(self, statuses: Mapping[str, str]) -> bool:
        """Return whether a run's results by test include exactly the canaries' known results."""
        expected = {**dict.fromkeys(self.passing, "PASSED"), self.failing: "FAILED"}
        return all(
            {str(status) for test, status in statuses.items() if name in test} == {known}
            for name, known in expected.items()
        )

    def without(self, statuses: Mapping[str, str], exit_status: int) -> tuple[dict[str, str], int]:
        """Return the results of the other tests, and the exit status of a run of only these."""
        names = (*self.passing, self.failing)
        others = {test: status for test, status in statuses.items() if not any(name in test for name in names)}
        failed = any(status in ("FAILED", "ERROR") for status in others.values())
        return others, int(failed) if exit_status == 1 else exit_status


class RepositoryTestRun(Value):
    """The outcome of a test run."""

    end: RunEnd
    output: str = ""
    """Standard output and errors of the tests, or of git if the change doesn't apply."""
    exit_status: int = 0
    canaries: Canaries


def _word(chance: random.Random) -> str:
    return "".join(chance.choice(ascii_lowercase) for _ in range(12))


def _placed(runner: Runner, neighbor: str, module: str) -> tuple[str, str, dict[str, str]]:
    """Return a path next to another argument, the runner's argument for it, and additional files that it needs."""
    if runner == "django":
        return f"tests/{module}/tests.py", module, {f"tests/{module}/__init__.py": ""}
    folder = neighbor.partition("::")[0]
    if folder.endswith(".py"):
        folder = folder.rpartition("/")[0]
    elif runner == "unittest":
        folder = "/".join(folder.split(".")[:-1])
    path = f"{folder.rstrip('/')}/test_{module}.py".lstrip("/")
    return path, path, {}


def _source(runner: Runner, chance: random.Random, tests: Mapping[str, bool]) -> str:
    lines, in_class = [], runner in ("unittest", "django")
    if in_class:
        lines += ["import unittest", "", "", f"class {_word(chance).title()}(unittest.TestCase):"]
    for name, passes in tests.items():
        left, right = chance.randrange(10**6), chance.randrange(10**6)
        total = left + right + (0 if passes else 1 + chance.randrange(1000))
        if in_class:
            lines += [f"    def {name}(self):", f"        self.assertEqual(sum([{left}, {right}]), {total})", ""]
        else:
            lines += [f"def {name}():", f"    assert sum([{left}, {right}]) == {total}", ""]
    return "\n".join(lines) + "\n"
