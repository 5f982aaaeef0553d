"""The folders of one item, in which code that the target wrote runs, each program in its own process.

If the item has an image of its own, its repository is copied from there. The history that the target's difference is
taken against stays in the image, which nothing in the container can change.
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
from skillopt_airflow.rollout.gateway_call import posted
from skillopt_airflow.tasks.corpus import FoundDocument, Ranking
from skillopt_airflow.tasks.protocols import Corpus, Workspace
from skillopt_airflow.tasks.repository_tests import MAX_PATCH_BYTES, PATCH_FILE

ITEM = Path("/opt/item")
WORK = Path("/work")
REPOSITORY_SECONDS = 120
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

MAX_FOUND = 5
"""Of an item's own documents."""
_RESULTS = TypeAdapter(list[FoundDocument])

MAX_OUTPUT_BYTES = 20_000
HALF = MAX_OUTPUT_BYTES // 2
CHUNK_BYTES = 65536
LAST_WORDS_SECONDS = 0.5
REAP_SECONDS = 5.0


@dataclass(frozen=True)
class Repository:
    """The folder that the target works in, and what it was copied from."""

    folder: Path
    item: Path

    @classmethod
    def opened(cls, item: Path = ITEM, work: Path = WORK) -> "Repository | None":
        """Return the copy, which is made now, of the image's repository; None if the image has none.

        Raises:
            OSError: it does not fit into the working folder.
        """
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
            # The folder itself is another user's, who alone may set its times.
            if not (target / ".").is_dir() or b"No space" in done.stderr:
                raise OSError(f"the repository does not fit into {work} (sandbox.output_mb): {done.stderr[-300:]!r}")
        return cls(work, item)

    def environment(self, home: str) -> dict[str, str]:
        """Return the variables of a command: the repository's own packages, and nothing of this program's."""
        roots = json.loads((self.item / "item.json").read_text())["import_roots"]
        return {
            "PATH": f"{self.item / 'venv' / 'bin'}:{SYSTEM_PATH}",
            "PYTHONPATH": ":".join(str(self.folder / root) for root in roots),
            "VIRTUAL_ENV": str(self.item / "venv"),
            "HOME": home,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GIT_PAGER": "cat",
            "PAGER": "cat",
        }

    def difference(self, room: Path) -> bytes:
        """Return the work as a diff by git, new files included; of a larger one than may count only its beginning.

        What git cannot take is left out, such as a repository that the target made in a folder of this one.

        Args:
            room: folder in which git's own files lie meanwhile.

        Raises:
            OSError: git fails, such as for want of space.
        """
        with tempfile.TemporaryDirectory(dir=room, ignore_cleanup_errors=True) as scratch:
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
            self._git(["add", "--all", "--ignore-errors"], env, left_out=1)
            options = ["--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "HEAD"]
            with tempfile.TemporaryFile(dir=scratch) as out:
                self._git(["diff", *options], env, out.fileno())
                out.seek(0)
                return out.read(MAX_PATCH_BYTES + 1)

    def _git(self, command: list[str], env: dict[str, str], out: int = subprocess.DEVNULL, left_out: int = 0) -> None:
        """Run git; its exit status `left_out` says that it could not take everything."""
        done = subprocess.run(
            # A folder with a history of its own would be taken for a link to that.
            ["git", "-c", "core.quotePath=false", "-c", "advice.addEmbeddedRepo=false", *command],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            timeout=REPOSITORY_SECONDS,
        )
        if done.returncode != 0 and (done.returncode != left_out or b"No space left" in done.stderr):
            raise OSError(f"git {command[0]}: {done.stderr.decode(errors='replace')[-300:].strip()}")


class SearchLost(Exception):
    """The run's search does not answer, which is not the target's doing."""


class WebSearch:
    """The run's search behind the gateway, for one item.

    Args:
        gateway: path of the gateway's unix socket, or its address.
        patience: seconds after which no answer can come.
    """

    def __init__(self, gateway: str, patience: float) -> None:
        self._gateway, self._patience = gateway, patience
        self.lost = ""
        """Why the search did not answer; empty as long as it does."""
        self.found: list[FoundDocument] = []
        """All results so far."""

    async def search(self, query: str) -> Sequence[FoundDocument]:
        """Return the first results of a query; raise SearchLost, or DataError if the query is of no use."""
        results = _RESULTS.validate_python((await self._asked({"query": query}))["results"])
        self.found += results
        return results

    async def _asked(self, body: JsonObject) -> JsonObject:
        try:
            answer = await posted(self._gateway, "/search", json.dumps(body).encode(), self._patience)
            document: JsonObject = json.loads(answer.body)
        except (OSError, TimeoutError, ValueError) as error:
            raise self._lose(f"the gateway does not answer: {type(error).__name__}") from error
        if answer.status == 200:
            return document
        why = str(document.get("error", answer.status))
        raise DataError(why) if answer.status in (400, 429) else self._lose(why)

    def _lose(self, why: str) -> SearchLost:
        self.lost = why
        return SearchLost(why)


def best_documents(query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
    """Return the documents that go best with a query, by BM25 of title and text."""
    ranking = Ranking(f"{one.title} {one.text}" for one in documents)
    return [documents[place] for place in ranking.best(query, MAX_FOUND)]


@dataclass
class Output:
    """The beginning and the end of what a program printed."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, chunk: bytes) -> None:
        """Keep what still fits at the beginning, and the last of the rest."""
        self.total += len(chunk)
        room = HALF - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        del self.tail[:-HALF]

    @property
    def text(self) -> str:
        """The output as text, with a note on how much is missing."""
        missing = self.total - len(self.head) - len(self.tail)
        if not missing:
            return (self.head + self.tail).decode(errors="replace")
        mark = f"\n[{missing} bytes left out]\n"
        return self.head.decode(errors="replace") + mark + self.tail.decode(errors="replace")


async def executed(command: Sequence[str], cwd: str, env: Mapping[str, str], timeout: float) -> str:
    """Run a program and return what it printed and how it ended; nothing of its process group is left.

    What it moved to another group lives until the container ends.

    Args:
        command: the program and its arguments; its standard input is empty.
        timeout: wall seconds after which it is killed.

    Raises:
        OSError: it could not be started.
    """
    # asyncio's own subprocesses wait in a thread, which may not start when the process limit is reached, and until
    # every holder of the pipe is gone, which may never happen.
    process = subprocess.Popen(  # noqa: ASYNC220, S603, RUF100
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=0,
    )
    output, silent = Output(), asyncio.Event()
    loop = asyncio.get_running_loop()
    pipe = process.stdout.fileno() if process.stdout else -1
    os.set_blocking(pipe, False)
    loop.add_reader(pipe, _read, pipe, output, silent)
    try:
        in_time = await _ended(process, timeout)
        await _kill_group(process)
        with suppress(TimeoutError):
            await asyncio.wait_for(silent.wait(), LAST_WORDS_SECONDS)
    finally:
        loop.remove_reader(pipe)
        if process.stdout:
            process.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return f"{output.text}\n{_end(process.returncode, timeout, in_time=in_time)}".lstrip("\n")


def _read(pipe: int, output: Output, silent: asyncio.Event) -> None:
    try:
        chunk = os.read(pipe, CHUNK_BYTES)
    except BlockingIOError:
        return
    if chunk:
        output.add(chunk)
    else:
        silent.set()
        asyncio.get_running_loop().remove_reader(pipe)


async def _ended(process: "subprocess.Popen[bytes]", timeout: float) -> bool:
    """Return whether the program ended in time; it is not reaped yet, so that its process id stays its own."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, over.set)
    try:
        await asyncio.wait_for(over.wait(), timeout)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return True


async def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill and reap the group; the rest of a fork bomb would count as processes until someone did."""
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
    """Reap processes whose parent is gone; return whether more may follow, as for a container's first process."""
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


PASSED_VARIABLES = ("PATH", "PYTHONPATH")
"""Variables that code inherits: the places of programs and packages."""


class ItemFolders:
    """A `Workspace` with the item's files and the folder for the target's own."""

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
        """Return a file's content; what is no name of one, such as a path, raises FileNotFoundError."""
        if name not in self.input_names():
            raise FileNotFoundError(f"there is no file {name!r}; there are: {', '.join(self.input_names()) or 'none'}")
        return Path(self.inputs, name).read_bytes()

    async def search(self, query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
        """Return what the run's search finds; where it has none, the best of the item's documents."""
        return best_documents(query, documents) if self._web is None else await self._web.search(query)

    async def open_page(self, address: str, documents: Sequence[FoundDocument]) -> str:
        """Return the text of what a search found at this address; where the run has none, of the item's document."""
        known = documents if self._web is None else self._web.found
        found = next((one for one in known if one.url == address.strip()), None)
        if found is None:
            raise DataError("there is no such page; open one of those that a search found, by its address")
        return found.text

    async def run_python(self, code: str) -> str:
        """Run a program in the outputs folder; return up to 20 KB of what it printed, and how it ended.

        It finds the folders in the environment variables INPUTS, OUTPUTS and, if there is one, CORPUS, and nothing
        else of this process's but where programs and packages lie. It ends with its whole process group when
        `code_timeout` is over.
        """
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                program = Path(scratch) / "program.py"
                program.write_bytes(code.encode(errors="replace"))
                command = [sys.executable, str(program)]
                return await executed(command, self.outputs, self._environment(scratch), self._code_timeout)
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
                return await executed(line, self.repository, self._repository.environment(scratch), self._code_timeout)
        except (OSError, ValueError) as error:
            return f"[the command could not be started: {error}]"

    def agent_variables(self) -> dict[str, str]:
        """Return the variables by which an agent's commands find the repository's packages; none without one."""
        if self._repository is None:
            return {}
        wanted = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS")
        found = self._repository.environment("")
        # The agent's own program is on the image's path.
        path = f"{found['VIRTUAL_ENV']}/bin:{os.environ.get('PATH', os.defpath)}"
        return {**{name: found[name] for name in wanted}, "PATH": path}

    def keep_difference(self) -> None:
        """Write what the target changed in the repository into the outputs.

        Raises:
            OSError: git fails.
        """
        if self._repository is not None:
            outputs = Path(self.outputs)
            # The folder for temporary files is small, and the target may have filled it.
            (outputs / PATCH_FILE).write_bytes(self._repository.difference(outputs))

    def _environment(self, home: str) -> dict[str, str]:
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        return passed | {
            "INPUTS": self.inputs,
            "OUTPUTS": self.outputs,
            **corpus_variable(self.corpus),
            "HOME": home,
            "LANG": "C.UTF-8",
            # Output from before the time limit must not be lost in a buffer.
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # numpy would start a thread for each of the host's processors, and threads count as processes.
            "OPENBLAS_NUM_THREADS": "1",
        }


def corpus_variable(corpus: Corpus) -> dict[str, str]:
    return {"CORPUS": corpus.folder} if corpus.folder else {}


def answered_by_files(workspace: Workspace) -> bool:
    """Return whether the target left something to score, whatever it says."""
    return bool(workspace.repository or files_left(workspace.outputs))


def files_left(outputs: str) -> tuple[str, ...]:
    """Return the sorted names of the plain files in a folder that a scorer can get; the host checks them again."""
    try:
        with os.scandir(outputs) as entries:
            plain = [entry.name for entry in entries if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)]
    except OSError:
        return ()
    return files_to_score(plain)
