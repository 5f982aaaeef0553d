"""SWE-bench: issues of real repositories; tests in a second container score the target's change."""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.core.values.types import Item, ItemFile, ItemImage, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import identity_at, text_at
from skillopt_airflow.tasks.repository_tests import RepositoryTestRun, RepositoryTests

TREE, REQUIREMENTS = "repo.tar.gz", "requirements.txt"
RUNNERS = ("pytest", "unittest", "django", "sympy")
MAX_LINES = 200
MAX_OUTPUT_CHARS = 10_000
"""Longest output of a command; longer output is cut in the middle, as in mini-swe-agent."""
_TASK = """Resolve this issue in the repository {repo}, whose files lie in {folder}.

<issue>
{problem_statement}
</issue>

Change the source files so that the issue is resolved. What counts is the state of the files at the end: tests that you
do not see judge it, and those of the repository must still pass. Changes of tests and of their configuration do not
count. There is no network, and nothing can be installed; `python` has the repository's packages."""


class SWEBench:
    """Records with SWE-bench's columns; repositories come from published images or from folders.

    A record with a folder has `instance`, its path in the dataset, and `run`, how to run its tests.
    """

    runs_code = True
    text_columns: tuple[str, ...] = ("problem_statement", "repo", "test_patch")
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        return identity_at(record, "instance_id")

    def item(self, record: JsonObject) -> Item:
        """Return an item with the solution and the tests as reference.

        Raises:
            DataError: a key is missing or invalid.
        """
        # Imported here because the sandbox has only this file of the folder.
        from .official import image_of, official_run

        run = run_of(record if "run" in record else {"run": official_run(record)})
        repo = text_at(record, "repo")
        fail_to_pass, pass_to_pass = (_tests(record, key) for key in ("FAIL_TO_PASS", "PASS_TO_PASS"))
        if not fail_to_pass:
            raise DataError("FAIL_TO_PASS: expected at least one test that fails before the issue is resolved")
        excluded = run.get("p2p_excluded")
        left_out = set(excluded) if isinstance(excluded, dict) else set()
        roots = tuple(str(run.get("pythonpath") or ".").split(":"))
        return Item(
            id=self.identity(record),
            public={"problem_statement": text_at(record, "problem_statement"), "repo": repo},
            reference={
                "patch": str(record.get("patch") or ""),
                "test_patch": text_at(record, "test_patch"),
                "fail_to_pass": [*fail_to_pass],
                "pass_to_pass": [test for test in pass_to_pass if test not in left_out],
                "run": run,
            },
            group=repo,
            image=_built(record, roots) if "instance" in record else image_of(record, roots),
        )

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        return (Message(role="system", content=skill), Message(role="user", content=self.task(public)))

    def task(self, public: JsonObject) -> str:
        return _TASK.format(**public, folder="/work")

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        return RepositoryTools(workspace).all()

    def answer(self, response: str) -> str:
        """Return the final message; only the repository's change is scored, see `tests`."""
        return response.strip()

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Not supported, because only tests can score the change. See `score_tests`."""
        raise NotImplementedError(f"item {item.id}: changes of a repository are judged by its tests")

    def tests(self, item: Item, patch: str) -> RepositoryTests | Score:
        """Return the tests for a change, or its score if no part of it counts."""
        # Imported here because the sandbox has only this file of the folder.
        from .scoring import tests_of

        return tests_of(item, patch, run_of(item.reference))

    def score_tests(self, item: Item, patch: str, ran: RepositoryTestRun) -> Score:
        """Return 1 as hard if all required tests pass, by SWE-bench's rule; 0 for an unreliable run."""
        from .scoring import score_of

        return score_of(item, patch, ran, str(run_of(item.reference)["runner"]))


class RepositoryTools:
    """The tools of one item; after `submit` they change nothing."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = Path(workspace.repository).resolve()
        self._submitted = False

    def all(self) -> Sequence[Callable[..., Awaitable[str]]]:
        return (self.shell, self.view, self.edit, self.submit)

    async def shell(self, command: str) -> str:
        """Run a command of bash in the repository's folder; returns what it prints and how it ended.

        Each command is a new shell: nothing but the files is kept from one to the next. It ends after a minute or so.

        Args:
            command: the command line or lines.
        """
        if self._submitted:
            return _OVER
        return shortened(await self._workspace.run_shell(command), MAX_OUTPUT_CHARS)

    async def view(self, path: str, first: int = 1, last: int = MAX_LINES) -> str:
        """Show lines of a text file with their numbers.

        Args:
            path: the file, relative to the repository's folder.
            first: number of the first line, from 1.
            last: number of the last line.
        """
        lines = self._read(path).splitlines()
        last = min(last, first + MAX_LINES - 1, len(lines))
        shown = [f"{number}\t{lines[number - 1]}" for number in range(max(1, first), last + 1)]
        return shortened("\n".join([*shown, f"[{len(lines)} lines in all]"]), MAX_OUTPUT_CHARS)

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file, which must stand there exactly once; an empty text to replace makes a new file.

        Args:
            path: the file, relative to the repository's folder.
            old: the text to replace, with its blanks and line ends.
            new: the text to put in its place.
        """
        if self._submitted:
            return _OVER
        file = self._file(path)
        if not old:
            if file.exists():
                return f"{path} is there already: name the text to replace"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(new, encoding="utf-8", newline="")
            return f"Made {path}."
        content = self._read(path)
        count = content.count(old)
        if count != 1:
            return f"Nothing was changed: the text stands {count} times in {path}, and has to stand there once."
        file.write_text(content.replace(old, new), encoding="utf-8", newline="")
        line = content[: content.index(old)].count("\n") + 1
        return f"Changed {path} at line {line}."

    async def submit(self) -> str:
        """Hand in the repository as it is now; nothing can be changed any more."""
        self._submitted = True
        return "Handed in. Say in one sentence what you changed."

    def _read(self, path: str) -> str:
        with self._file(path).open(encoding="utf-8", newline="") as file:
            return file.read()

    def _file(self, path: str) -> Path:
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root):
            raise DataError(f"{path} is not in the repository; paths are relative to its folder")
        return file


_OVER = "You have handed in already; say in one sentence what you changed."


def _built(record: JsonObject, roots: tuple[str, ...]) -> ItemImage:
    folder = text_at(record, "instance").strip("/")
    return ItemImage(
        tree=ItemFile(name=TREE, path=f"{folder}/{TREE}"),
        requirements=ItemFile(name=REQUIREMENTS, path=f"{folder}/{REQUIREMENTS}"),
        import_roots=roots,
    )


def run_of(record: JsonObject) -> JsonObject:
    """Return `run` of a record or reference: how to run its tests.

    Raises:
        DataError: `run` is missing or invalid.
    """
    run = record.get("run")
    if not isinstance(run, dict) or run.get("runner") not in RUNNERS:
        raise DataError(f"run: expected an object whose runner is one of {', '.join(RUNNERS)}")
    if not isinstance(run.get("files"), list) or not run["files"]:
        raise DataError("run.files: expected a list of at least one file of tests")
    return run


def _tests(record: JsonObject, key: str) -> list[str]:
    """Return a list of tests, which SWE-bench stores as a JSON string."""
    value = record.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"{key}: expected a list of tests, or one as JSON: {error}") from error
    found = _listed(value)
    if not isinstance(value, list) or not all(isinstance(test, str) for test in found):
        raise DataError(f"{key}: expected a list of tests, or one as JSON")
    return [str(test) for test in found]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


BENCHMARK = SWEBench()
