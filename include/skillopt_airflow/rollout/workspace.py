"""The folders of one item, in which code that the target wrote runs, each program in its own process."""

import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.found_document import FoundDocument
from skillopt_airflow.core.protocols import Corpus, Workspace
from skillopt_airflow.core.repository_tests import PATCH_FILE
from skillopt_airflow.core.types import files_to_score
from skillopt_airflow.rollout.corpus_folder import NO_CORPUS, CorpusFolder
from skillopt_airflow.rollout.execution import executed
from skillopt_airflow.rollout.item_search import WebSearch, best_documents
from skillopt_airflow.rollout.repository import Repository

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
        """Return the names of the item's files; none where it has no folder of files."""
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
        """Return the text of a page, or of the item's document with this address."""
        if self._web is not None:
            return await self._web.open_page(address)
        found = next((one for one in documents if one.url == address.strip()), None)
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
        """Folder of the repository; empty if the item has none."""
        return "" if self._repository is None else str(self._repository.folder)

    async def run_shell(self, command: str) -> str:
        """Run a command of bash in the repository, as `run_python` runs programs, with the repository's packages."""
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
    """Return the environment variable that leads a program to the documents, if there are some."""
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
