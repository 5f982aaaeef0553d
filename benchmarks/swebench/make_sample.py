"""Write the sample: bugs in small repositories of the project's own, as SWE-bench's instances.

    python -m benchmarks.swebench.make_sample

repositories/<name> holds a repository as it should be, and bugs.toml what is wrong in each instance: a part of a
file, the tests that show it, and the text of an issue. An instance's tree has the wrong part and lacks those tests.
The same files are written each time.
"""

import ast
import json
import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .instance_folder import git_diff, row, write_instance, write_rows

HERE = Path(__file__).parent
SAMPLE = HERE / "sample"
SOURCES = HERE / "repositories"
NAMES = ("spans", "numerals", "confread", "gridtext", "slots", "lanes")
OWNER = "sample"
CREATED = "2026-01-01T00:00:00Z"


class Bug(NamedTuple):
    """One instance's difference from its repository."""

    repository: str
    number: int
    file: str
    right: str
    wrong: str
    mistake: str
    """What a hasty repair writes in place of the wrong part: it does not resolve the instance."""
    needs: str
    """What keeps from that mistake: run the test, read the function, or keep its signature."""
    tests: tuple[str, ...]
    """Class.test of the tests that show it."""
    problem: str

    @property
    def instance_id(self) -> str:
        """Return the id, as SWE-bench makes it."""
        return f"{OWNER}__{self.repository}-{self.number}"


def main(sample: Path = SAMPLE) -> None:
    """Write all instances and the splits."""
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    for split, bug in in_splits():
        folder = sample / "instances" / bug.instance_id
        write(bug, folder)
        rows[split].append(row(folder, sample))
    for split, found in rows.items():
        write_rows(sample / split, found)


def bugs(repository: str) -> list[Bug]:
    """Return the bugs of a repository, in their order."""
    found = tomllib.loads((SOURCES / repository / "bugs.toml").read_text(encoding="utf-8"))["bug"]
    texts = ("right", "wrong", "mistake", "problem")
    return [
        Bug(**{**bug, "repository": repository, "tests": tuple(bug["tests"]), **{key: bug[key] for key in texts}})
        for bug in found
    ]


def in_splits() -> Iterator[tuple[str, Bug]]:
    """Yield each bug with its split: 10, 6 and 8 instances, each repository in all of them, or in all but one."""
    for place, repository in enumerate(NAMES):
        for index, bug in enumerate(bugs(repository)):
            turn = ("test", "val", "train")[(index + place) % 3]
            yield (turn if index < 3 else "train" if place < 4 else "test"), bug


def write(bug: Bug, folder: Path) -> None:
    """Write a bug's instance."""
    right = sources(bug.repository)
    base = broken(bug, right)
    names = [f"{name} (tests.{module}.{case})" for module, case, name in cases(right)]
    shown = [name for name in names if any(named(name) == test for test in bug.tests)]
    changed = [path for path in sorted(right) if right[path] != base[path]]
    diffs = {path: git_diff(path, base[path], right[path]) for path in changed}
    record = {
        "repo": f"{OWNER}/{bug.repository}",
        "instance_id": bug.instance_id,
        "base_commit": "",
        "patch": diffs.pop(bug.file),
        "test_patch": "".join(diffs.values()),
        "problem_statement": bug.problem,
        "hints_text": "",
        "created_at": CREATED,
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(shown),
        "PASS_TO_PASS": json.dumps([name for name in names if name not in shown]),
        "environment_setup_commit": "",
    }
    run = {"runner": "unittest", "files": sorted({f"tests.{module}" for module, _, _ in cases(right)})}
    write_instance(folder, record, {path: text.encode() for path, text in base.items()}, run)


def sources(repository: str) -> dict[str, str]:
    """Return a repository's files as they should be."""
    folder = SOURCES / repository
    files = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def broken(bug: Bug, right: dict[str, str]) -> dict[str, str]:
    """Return a bug's tree: with the wrong part, and without the tests that show it."""
    names = {test.rpartition(".")[2] for test in bug.tests}
    tree = {path: without_tests(text, names) if is_test(path) else text for path, text in right.items()}
    tree[bug.file] = exchanged(right[bug.file], bug.right, bug.wrong, bug.instance_id)
    return tree


def exchanged(text: str, old: str, new: str, what: str) -> str:
    """Exchange a part that is there once.

    Raises:
        ValueError: it is not
    """
    if text.count(old) != 1:
        raise ValueError(f"{what}: its part is there {text.count(old)} times")
    return text.replace(old, new)


def without_tests(text: str, names: Collection[str]) -> str:
    """Return a test file without these methods, and the blank line in front of each."""
    lines = text.splitlines(keepends=True)
    for node in reversed(list(ast.walk(ast.parse(text)))):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            del lines[node.lineno - 2 : node.end_lineno]
    return "".join(lines)


def is_test(path: str) -> bool:
    """Return whether a path of a repository is a file of tests."""
    return re.fullmatch(r"tests/test_\w+\.py", path) is not None


def cases(files: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield module, class and name of each test."""
    for path in filter(is_test, files):
        for case in ast.parse(files[path]).body:
            if isinstance(case, ast.ClassDef):
                for node in case.body:
                    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                        yield Path(path).stem, case.name, node.name


def named(test: str) -> str:
    """Return Class.test for `test (module.Class)`."""
    name, _, place = test.rstrip(")").partition(" (")
    return f"{place.rpartition('.')[2]}.{name}"


if __name__ == "__main__":
    main()
