"""Write and verify an instance from two commits of a git repository: `make instance`.

Its tests must fail before the fix and pass after it. Needs git, and installs packages into a new environment.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt_airflow.core.errors import DataError

from .instance_folder import write_instance
from .patches import Exclusion, FilePatch, candidate_patch, file_patches
from .resolution import resolve, unreliable
from .run_logs import CaseStatus, LogFormat, worst

SECONDS = 1800
"""Timeout of a test run."""
TAIL = 2000
"""Characters of a failed command's output in an error."""


FILE, EXECUTABLE = "100644", "100755"
"""Modes of a tree's entries."""
PLAIN = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
"""Options of `git diff` that override the user's configuration."""


@dataclass(frozen=True)
class Change:
    """The difference between two commits."""

    patch: str
    test_patch: str
    test_files: Sequence[str]
    """Python test files in the fix."""
    left_out: Mapping[str, Exclusion]
    """Files that can't be part of an instance."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swebench.make_instance", description=__doc__)
    parser.add_argument("--repo", type=Path, default=Path(), help="the repository (default: this folder)")
    parser.add_argument("--base", required=True, help="the commit before the fix")
    parser.add_argument("--fix", required=True, help="the commit with the fix and its tests")
    parser.add_argument("--out", type=Path, required=True, help="folder for the instance's folder")
    parser.add_argument(
        "--requirements", type=Path, help="file of pinned packages; if it has pytest, pytest runs the tests"
    )
    parser.add_argument("--problem", type=Path, help="file with the issue (default: the fix's commit message)")
    parser.add_argument(
        "--python-path", default="", help="import folders, such as src:. (default: src if it exists, and the tree)"
    )
    options = parser.parse_args(arguments)
    given = (options.repo, options.base, options.fix, options.out)
    try:
        run(*given, options.requirements, options.problem, options.python_path)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(
    repository: Path,
    base: str,
    fix: str,
    out: Path,
    requirements_file: Path | None = None,
    problem_file: Path | None = None,
    python_path: str = "",
) -> None:
    """Write the instance's folder and print its counts.

    Args:
        repository: a repository with both commits.
        base: the commit before the fix.
        fix: the commit of the fix and its tests.
        out: the parent of the new folder.
        requirements_file: pinned packages for the tests.
        problem_file: the issue's text, by default the fix's commit message.
        python_path: import folders separated by colons, by default src, if it exists, and the tree.

    Raises:
        DataError: the commits don't make an instance.
    """
    base, fix = (commit(repository, name) for name in (base, fix))
    change = between(repository, base, fix)
    requirements = _text_of(requirements_file) if requirements_file else ""
    problem = _text_of(problem_file) if problem_file else ""
    files, executable = tree_of(repository, base)
    settings = _settings(change, requirements)
    settings["pythonpath"] = python_path or ("src:." if any(path.startswith("src/") for path in files) else ".")
    before, after = _tested(files, change, settings, requirements)
    fail_to_pass = sorted(case for case in after if after[case].passing and not _passed(case, before))
    pass_to_pass = sorted(case for case in after if after[case].passing and _passed(case, before))
    if not fail_to_pass:
        raise DataError("no test fails before the fix and passes with it. Choose a fix whose tests reproduce the bug")
    name = repository.resolve().name.lower()
    message = _git(repository, "log", "-1", "--format=%B%x00%cI", fix)
    text, _, created = message.strip().partition("\0")
    record = {
        "repo": f"local/{name}",
        "instance_id": f"local__{name}-{fix[:8]}",
        "base_commit": base,
        "patch": change.patch,
        "test_patch": change.test_patch,
        "problem_statement": problem if problem_file else text.strip() + "\n",
        "hints_text": "",
        "created_at": created.strip(),
        "version": "",
        "FAIL_TO_PASS": json.dumps(fail_to_pass),
        "PASS_TO_PASS": json.dumps(pass_to_pass),
        "environment_setup_commit": "",
    }
    folder = out / str(record["instance_id"])
    write_instance(folder, record, files, settings, requirements, executable)
    left_out = "".join(f"\nLeft out: {path} ({why})" for path, why in change.left_out.items())
    print(f"Wrote {folder}: FAIL_TO_PASS {len(fail_to_pass)}, PASS_TO_PASS {len(pass_to_pass)}{left_out}")


def _settings(change: Change, requirements: str) -> dict[str, object]:
    """Return how to run the fix's tests: with pytest if it is among the packages."""
    if "pytest" in requirements.lower():
        return {"runner": LogFormat.PYTEST.value, "files": [*change.test_files]}
    modules = [path.removesuffix(".py").replace("/", ".") for path in change.test_files]
    return {"runner": LogFormat.UNITTEST.value, "files": modules}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from error


def commit(repository: Path, name: str) -> str:
    """Return a commit's id.

    Raises:
        DataError: the commit or the repository doesn't exist.
    """
    return _git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").strip()


def between(repository: Path, base: str, fix: str) -> Change:
    """Return the change between two commits.

    Raises:
        DataError: it changes no tests, or only tests.
    """
    diff = _git(repository, "-c", "core.quotePath=false", "diff", *PLAIN, base, fix)
    candidate = candidate_patch(diff)
    judges = [file for file in file_patches(diff) if _affects_tests(file, candidate.left_out)]
    tests = [file.path for file in judges if file.path.endswith(".py") and not file.deleted]
    tests = [path for path in tests if Path(path).name not in ("conftest.py", "__init__.py")]
    if not candidate.text:
        raise DataError(f"{base[:8]} to {fix[:8]}: nothing but tests changes, so there is nothing to resolve")
    if not tests:
        raise DataError(f"{base[:8]} to {fix[:8]}: no file of tests changes, so no test reproduces the bug")
    named = {file.path for file in judges}
    left_out = {path: why for path, why in candidate.left_out.items() if path not in named}
    return Change(candidate.text, "".join(file.text for file in judges), tests, left_out)


def _affects_tests(file: FilePatch, left_out: Mapping[str, Exclusion]) -> bool:
    reason = left_out.get(file.path)
    return reason is not None and reason.of_tests and not file.binary


def tree_of(repository: Path, base: str) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a commit, and the paths of executable ones, without links and submodules."""
    # Not `git archive`, which can exclude files such as tests.
    listed = _git_bytes(repository, "ls-tree", "-r", "-z", base).decode(errors="replace").split("\0")
    rows = [(about.split(), path) for about, _, path in (row.partition("\t") for row in listed if row)]
    plain = [(mode, identity, path) for (mode, _, identity), path in rows if mode in (FILE, EXECUTABLE)]
    packed = io.BytesIO(
        _git_bytes(repository, "cat-file", "--batch", given="\n".join(identity for _, identity, _ in plain))
    )
    files = dict[str, bytes]()
    for _, _, path in plain:
        size = int(packed.readline().split()[-1])
        files[path] = packed.read(size)
        packed.read(1)
    return files, [path for mode, _, path in plain if mode == EXECUTABLE]


def _tested(
    files: Mapping[str, bytes], change: Change, settings: Mapping[str, object], requirements: str
) -> tuple[Mapping[str, CaseStatus], Mapping[str, CaseStatus]]:
    """Run the fix's tests before and after its other changes, in a new environment."""
    with tempfile.TemporaryDirectory(prefix="instance-") as scratch:
        python, tree = Path(scratch, "venv", "bin", "python"), Path(scratch, "tree")
        print("Creating an environment ...", flush=True)
        wants_pip = bool(requirements.strip())
        create = [sys.executable, "-m", "venv", *([] if wants_pip else ["--without-pip"]), str(python.parent.parent)]
        _check_run(create, Path(scratch), "the environment")
        if wants_pip:
            Path(scratch, "requirements.txt").write_text(requirements, encoding="utf-8")
            _check_run([str(python), "-m", "pip", "install", "-q", "-r", "requirements.txt"], Path(scratch), "pip")
        for path, content in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
        _apply(tree, change.test_patch)
        before, _, _ = _run(tree, python, settings)
        _apply(tree, change.patch)
        after, output, status = _run(tree, python, settings)
        fault = unreliable(LogFormat(str(settings["runner"])), output)
        passing = [case for case in after if after[case].passing]
        found = fault or resolve(passing, (), after, status)
        if fault or not passing or not found.resolved:
            raise DataError(f"the tests do not run with the fix: {found.feedback}\n{output[-TAIL:]}")
        return before, after


def _run(tree: Path, python: Path, settings: Mapping[str, object]) -> tuple[dict[str, CaseStatus], str, int]:
    runner, files = LogFormat(str(settings["runner"])), [str(file) for file in _listed(settings["files"])]
    of_pytest = ["pytest", "-rA", "-p", "no:cacheprovider", "--color=no"]
    options = of_pytest if runner is LogFormat.PYTEST else ["unittest", "-v"]
    roots = [str(tree / root) for root in str(settings["pythonpath"]).split(":")]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON", "VIRTUAL"))}
    print(f"Running {' '.join(options + files)} ...", flush=True)
    try:
        done = subprocess.run(
            [str(python), "-m", *options, *files],
            cwd=tree,
            env={**kept, "PYTHONPATH": ":".join(roots), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"the tests ran for more than {SECONDS} s") from error
    return worst(runner, done.stdout), done.stdout, done.returncode


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _passed(case: str, statuses: Mapping[str, CaseStatus]) -> bool:
    return case in statuses and statuses[case].passing


def _apply(tree: Path, patch: str) -> None:
    # Outside a repository, git apply changes plain files.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    _check_run(["git", "apply", "-"], tree, "git apply", patch, env)


def _check_run(
    command: list[str], folder: Path, what: str, given: str = "", env: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(command, cwd=folder, input=given, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(f"{what} failed: {(done.stderr or done.stdout)[-TAIL:].strip()}")


def _git(repository: Path, *arguments: str) -> str:
    return _git_bytes(repository, *arguments).decode(errors="replace")


def _git_bytes(repository: Path, *arguments: str, given: str = "") -> bytes:
    if not repository.is_dir():
        raise DataError(f"{repository}: no such folder")
    done = subprocess.run(["git", *arguments], cwd=repository, input=given.encode(), capture_output=True, check=False)
    if done.returncode:
        raise DataError(f"{repository}: git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
