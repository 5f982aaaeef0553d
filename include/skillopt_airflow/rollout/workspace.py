"""The folders of one item, in which the target's code runs, one process per program.

If the item has its own image, its repository is copied from there. The git history for the target's patch stays in the
image, which nothing in the container can change.
"""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic import TypeAdapter

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, files_to_score
from skillopt_airflow.rollout.corpus_folder import NO_CORPUS, CorpusFolder
from skillopt_airflow.rollout.gateway_call import post
from skillopt_airflow.tasks.corpus import FoundDocument, Ranking
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.repository_tests import MAX_PATCH_BYTES, PATCH_FILE

ITEM = Path("/opt/item")
WORK = Path("/work")
REPOSITORY_SECONDS = 120
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PASSED_VARIABLES = ("PATH", "PYTHONPATH")
"""Variables that the target's code inherits."""
CODE_VARIABLES = {
    "LANG": "C.UTF-8",
    # Keep the output from before a timeout.
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    # numpy would start one thread per CPU of the host, and threads count towards the process limit.
    "OPENBLAS_NUM_THREADS": "1",
}

MAX_FOUND = 5
"""Results of a search in the item's documents."""
_RESULTS = TypeAdapter(list[FoundDocument])

MAX_OUTPUT_BYTES = 20_000
HALF = MAX_OUTPUT_BYTES // 2
CHUNK_BYTES = 65536
LAST_OUTPUT_SECONDS = 0.5
REAP_SECONDS = 5.0


@dataclass(frozen=True)
class Repository:
    """The target's working copy, and the image's folder that it was copied from."""

    folder: Path
    item: Path

    @classmethod
    def open_copy(cls, item: Path = ITEM, work: Path = WORK) -> "Repository | None":
        """Copy the image's repository, if there is one. Raises OSError if it doesn't fit into the working folder."""
        if not (item / "tree").is_dir():
            return None
        for source, target in ((item / "tree", work), (item / "git", work / ".git")):
            target.mkdir(exist_ok=True)
            done = subprocess.run(
                ["cp", "-r", "--no-dereference", "--preserve=mode,timestamps", f"{source}/.", str(target)],
                capture_output=True,
                check=False,
                timeout=REPOSITORY_SECONDS,
            )
            # Ignore the exit status: cp can't set the times of the folder, which belongs to another user.
            if not (target / ".").is_dir() or b"No space" in done.stderr:
                raise OSError(f"the repository does not fit into {work} (sandbox.output_mb): {done.stderr[-300:]!r}")
        return cls(work, item)

    def environment(self, home: str) -> dict[str, str]:
        """Return the environment of a command: the repository's packages, and none of this program's variables."""
        roots = json.loads((self.item / "item.json").read_text())["import_roots"]
        return CODE_VARIABLES | {
            "PATH": f"{self.item / 'venv' / 'bin'}:{SYSTEM_PATH}",
            "PYTHONPATH": ":".join(str(self.folder / root) for root in roots),
            "VIRTUAL_ENV": str(self.item / "venv"),
            "HOME": home,
            "GIT_PAGER": "cat",
            "PAGER": "cat",
        }

    def patch(self, temp: Path) -> bytes:
        """Return the target's changes as a git diff, including new files, cut after the maximum length.

        Files that git can't add are left out, such as a nested repository. Git's temporary files are in `temp`. Raises
        OSError if git fails, for example because the disk is full.
        """
        with tempfile.TemporaryDirectory(dir=temp, ignore_cleanup_errors=True) as scratch:
            env = {
                "PATH": SYSTEM_PATH,
                "HOME": scratch,
                "GIT_DIR": str(self.item / "git"),
                "GIT_WORK_TREE": str(self.folder),
                "GIT_INDEX_FILE": str(Path(scratch, "index")),
                "GIT_OBJECT_DIRECTORY": str(Path(scratch, "objects")),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.item / "git" / "objects"),
            }
            Path(scratch, "objects").mkdir()
            self._git(["read-tree", "HEAD"], env)
            self._git(["add", "--all", "--ignore-errors"], env, allowed_status=1)
            options = ["--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "HEAD"]
            with tempfile.TemporaryFile(dir=scratch) as out:
                self._git(["diff", *options], env, out.fileno())
                out.seek(0)
                return out.read(MAX_PATCH_BYTES + 1)

    def _git(
        self, command: list[str], env: dict[str, str], out: int = subprocess.DEVNULL, allowed_status: int = 0
    ) -> None:
        done = subprocess.run(
            # Git would add a nested repository as a submodule.
            ["git", "-c", "core.quotePath=false", "-c", "advice.addEmbeddedRepo=false", *command],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            timeout=REPOSITORY_SECONDS,
        )
        if done.returncode != 0 and (done.returncode != allowed_status or b"No space left" in done.stderr):
            raise OSError(f"git {command[0]}: {done.stderr.decode(errors='replace')[-300:].strip()}")


class SearchUnavailable(Exception):
    """The run's search doesn't answer, which isn't the target's fault."""


class WebSearch:
    """The gateway's search, for one item; `patience` is the timeout of a search in seconds."""

    def __init__(self, gateway: str, patience: float) -> None:
        self._gateway, self._patience = gateway, patience
        self.failure = ""
        """Reason of a failure; empty without one."""
        self.results: list[FoundDocument] = []
        """All results so far."""

    async def search(self, query: str) -> Sequence[FoundDocument]:
        """Return the first results of a query. Raises SearchUnavailable, or DataError if the query is invalid."""
        try:
            answer = await post(self._gateway, "/search", json.dumps({"query": query}).encode(), self._patience)
            document: JsonObject = json.loads(answer.body)
        except (OSError, ValueError) as error:
            raise self._fail(f"the gateway does not answer: {type(error).__name__}") from error
        if answer.status != 200:
            why = str(document.get("error", answer.status))
            raise DataError(why) if answer.status in (400, 429) else self._fail(why)
        results = _RESULTS.validate_python(document["results"])
        self.results += results
        return results

    def _fail(self, why: str) -> SearchUnavailable:
        self.failure = why
        return SearchUnavailable(why)


@dataclass
class Output:
    """The beginning and the end of a program's output."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = HALF - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        del self.tail[:-HALF]

    @property
    def text(self) -> str:
        """The output as a string, with the number of missing bytes."""
        missing = self.total - len(self.head) - len(self.tail)
        if not missing:
            return (self.head + self.tail).decode(errors="replace")
        mark = f"\n[{missing} bytes left out]\n"
        return self.head.decode(errors="replace") + mark + self.tail.decode(errors="replace")


async def execute(command: Sequence[str], cwd: str, env: Mapping[str, str], timeout: float) -> str:
    """Run a program, kill the rest of its process group, and return its output and exit status. Raises OSError.

    It's killed after `timeout` wall seconds. Processes that left the group live until the container ends.
    """
    # asyncio's subprocesses need a thread, which may hit the process limit, and wait until all holders of the pipe
    # have closed it, which may never happen.
    process = subprocess.Popen(  # noqa: ASYNC220, S603, RUF100
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=0,
    )
    output, eof = Output(), asyncio.Event()
    loop = asyncio.get_running_loop()
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    loop.add_reader(pipe, _read, pipe, output, eof)
    try:
        in_time = await _wait(process, timeout)
        await _kill_group(process)
        with suppress(TimeoutError):
            await asyncio.wait_for(eof.wait(), LAST_OUTPUT_SECONDS)
    finally:
        loop.remove_reader(pipe)
        process.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return f"{output.text}\n{_end(process.returncode, timeout, in_time=in_time)}".lstrip("\n")


def _read(pipe: int, output: Output, eof: asyncio.Event) -> None:
    try:
        chunk = os.read(pipe, CHUNK_BYTES)
    except BlockingIOError:
        return
    if chunk:
        output.add(chunk)
    else:
        eof.set()
        asyncio.get_running_loop().remove_reader(pipe)


async def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> bool:
    """Return whether the program ended in time. Doesn't reap it, so that its process ID isn't reused."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), timeout)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return True


async def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill and reap the group, since zombies of a fork bomb count towards the process limit."""
    deadline = time.monotonic() + REAP_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        if process.poll() is not None and not _reap_orphans(process.pid):
            break
        await asyncio.sleep(0.01)


def _reap_orphans(group: int) -> bool:
    """Reap orphans. Return whether more may follow, as for a container's first process."""
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
        return True
    return os.getpid() == 1


def _end(status: int | None, timeout: float, *, in_time: bool) -> str:
    if not in_time:
        return f"[killed: it was not done after {timeout:g} s]"
    if status is not None and status < 0:
        return f"[killed by signal {-status}]"
    return f"[exit status {status}]"


class ItemFolders:
    """A `Workspace` with the item's files and a folder for the target's files."""

    def __init__(
        self,
        inputs: Path,
        outputs: Path,
        code_timeout: float,
        *,
        corpus: CorpusFolder = NO_CORPUS,
        web: WebSearch | None = None,
        sealed: Mapping[str, bytes] = MappingProxyType({}),
        repository: Repository | None = None,
    ) -> None:
        self.inputs = str(inputs)
        self.outputs = str(outputs)
        self.corpus = corpus
        self.sealed = sealed
        self._code_timeout = code_timeout
        self._web = web
        self._repository = repository

    def input_names(self) -> Sequence[str]:
        folder = Path(self.inputs)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def read_input(self, name: str) -> bytes:
        if name not in self.input_names():
            raise FileNotFoundError(f"there is no file {name!r}; there are: {', '.join(self.input_names()) or 'none'}")
        return Path(self.inputs, name).read_bytes()

    async def search(self, query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
        if self._web is not None:
            return await self._web.search(query)
        ranking = Ranking(f"{one.title} {one.text}" for one in documents)
        return [documents[place] for place in ranking.best(query, MAX_FOUND)]

    async def open_page(self, address: str, documents: Sequence[FoundDocument]) -> str:
        known = documents if self._web is None else self._web.results
        page = next((one for one in known if one.url == address.strip()), None)
        if page is None:
            raise DataError("there is no such page; open one of those that a search found, by its address")
        return page.text

    async def run_python(self, code: str) -> str:
        """Run a program in the outputs folder. Return up to 20 KB of its output, and its exit status."""
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                program = Path(scratch) / "program.py"
                program.write_bytes(code.encode(errors="replace"))
                command = [sys.executable, str(program)]
                env = CODE_VARIABLES | folder_variables(self, scratch)
                return await execute(command, self.outputs, env, self._code_timeout)
        except OSError as error:
            return f"[the program could not be started: {error}]"

    @property
    def repository(self) -> str:
        return "" if self._repository is None else str(self._repository.folder)

    async def run_shell(self, command: str) -> str:
        if self._repository is None:
            return "[there is no repository]"
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                line = ["bash", "-c", command]
                return await execute(line, self.repository, self._repository.environment(scratch), self._code_timeout)
        except (OSError, ValueError) as error:
            return f"[the command could not be started: {error}]"

    def agent_variables(self) -> dict[str, str]:
        """Return the variables with which an agent's commands find the repository's packages, if any."""
        if self._repository is None:
            return {}
        variables = self._repository.environment("")
        names = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS")
        # The agent itself is on the image's path.
        path = f"{variables['VIRTUAL_ENV']}/bin:{os.environ.get('PATH', os.defpath)}"
        return {**{name: variables[name] for name in names}, "PATH": path}

    def write_patch(self) -> None:
        """Write the target's changes of the repository to the outputs folder. Raises OSError if git fails."""
        if self._repository is not None:
            outputs = Path(self.outputs)
            # Not in the folder for temporary files, which is small and may be full.
            (outputs / PATCH_FILE).write_bytes(self._repository.patch(outputs))


def folder_variables(workspace: Workspace, home: str) -> dict[str, str]:
    """Return the variables with the item's folders, and those that the target's code inherits."""
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    corpus = {"CORPUS": workspace.corpus.folder} if workspace.corpus.folder else {}
    return passed | corpus | {"INPUTS": workspace.inputs, "OUTPUTS": workspace.outputs, "HOME": home}


def has_output(workspace: Workspace) -> bool:
    """Return whether there is something to score even without an answer."""
    return bool(workspace.repository or output_files(workspace.outputs))


def output_files(outputs: str) -> tuple[str, ...]:
    """Return the sorted names of the regular files that a scorer can get. The host checks them again."""
    try:
        with os.scandir(outputs) as entries:
            regular = [entry.name for entry in entries if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)]
    except OSError:
        return ()
    return files_to_score(regular)
