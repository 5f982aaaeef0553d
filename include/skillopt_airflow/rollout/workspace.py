"""The folders of one item, in which code that the target wrote runs, each program in its own process."""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from skillopt_airflow.core.types import FILE_NAME, MAX_FILES
from skillopt_airflow.rollout.execution import executed

PASSED_VARIABLES = ("PATH", "PYTHONPATH")
"""Variables that code inherits: the places of programs and packages."""


class ItemFolders:
    """A `Workspace` with the item's files and the folder for the target's own."""

    def __init__(
        self, inputs: Path, outputs: Path, code_timeout: float, sealed: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        self.inputs = str(inputs)
        self.outputs = str(outputs)
        self.sealed = sealed
        self._code_timeout = code_timeout

    def input_names(self) -> Sequence[str]:
        """Return the names of the item's files; none where it has no folder of files."""
        folder = Path(self.inputs)
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def read_input(self, name: str) -> bytes:
        """Return a file's content; what is no name of one, such as a path, raises FileNotFoundError."""
        if name not in self.input_names():
            raise FileNotFoundError(f"there is no file {name!r}; there are: {', '.join(self.input_names()) or 'none'}")
        return Path(self.inputs, name).read_bytes()

    async def run_python(self, code: str) -> str:
        """Run a program in the outputs folder; return up to 20 KB of what it printed, and how it ended.

        It finds the two folders in the environment variables INPUTS and OUTPUTS, and nothing else of this process's but
        where programs and packages lie. It ends with its whole process group when `code_timeout` is over.
        """
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                program = Path(scratch) / "program.py"
                program.write_bytes(code.encode(errors="replace"))
                command = [sys.executable, str(program)]
                return await executed(command, self.outputs, self._environment(scratch), self._code_timeout)
        except OSError as error:
            return f"[the program could not be started: {error}]"

    def _environment(self, home: str) -> dict[str, str]:
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        return passed | {
            "INPUTS": self.inputs,
            "OUTPUTS": self.outputs,
            "HOME": home,
            "LANG": "C.UTF-8",
            # Output from before the time limit must not be lost in a buffer.
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # numpy would start a thread for each of the host's processors, and threads count as processes.
            "OPENBLAS_NUM_THREADS": "1",
        }


def files_left(outputs: str) -> tuple[str, ...]:
    """Return the sorted names of the plain files in a folder that a scorer can get; the host checks them again."""
    try:
        with os.scandir(outputs) as entries:
            plain = [entry.name for entry in entries if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)]
    except OSError:
        return ()
    return tuple(sorted(name for name in plain if re.fullmatch(FILE_NAME, name)))[:MAX_FILES]
