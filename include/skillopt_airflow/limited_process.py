"""Functions that read files of strangers, in a process with limits: little memory, no environment, killed if late.

`python -m skillopt_airflow.limited_process MODULE:FUNCTION MEGABYTES SECONDS` is that process. It answers requests on
standard input, one after the other. Request and answer are a line of JSON and as many bytes as it names.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import BoundedSemaphore, Lock, Timer
from typing import IO, Any, NamedTuple, Self
from weakref import finalize

from skillopt_airflow.core.errors import DataError, ProcessLost

AT_ONCE = 2
"""Calls of one worker at the same time, for each may take all of its memory."""
WRITTEN_BYTES = 1024 * 1024
"""Limit of any one file that the process writes, its error output among them."""
ANSWER_BYTES = 64 * 1024 * 1024
HEADER_BYTES = 64 * 1024
PACKAGES = str(Path(__file__).parents[1])
_turns = BoundedSemaphore(AT_ONCE)


class Limits(NamedTuple):
    """What a process may use."""

    megabytes: int
    """Address space, libraries included."""
    cpu_seconds: int
    """Of each call."""
    wall_seconds: float
    """Of each call, with the start of the process if it has to be started."""


class LimitedProcess:
    """A process that calls one function, `(content: bytes, *arguments: str) -> bytes`, as often as it is asked.

    It is started by the first call, and again by the call after one that it did not survive.
    """

    def __init__(
        self, function: str, limits: Limits, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Describe the process.

        Args:
            function: `module:name`, the module within this package.
            limits: what it may use.
            folder: its working folder.
            env: its variables, besides the few that Python needs; it gets none of this process's.
        """
        self._limits = limits
        self._command = [sys.executable, "-P", "-m", "skillopt_airflow.limited_process", function]
        self._command += [str(limits.megabytes), str(limits.cpu_seconds)]
        # -P keeps the working folder off the import path.
        self._env = {"PATH": os.defpath, "PYTHONPATH": PACKAGES, "LANG": "C.UTF-8", **(env or {})}
        self._folder = folder
        self._lock = Lock()
        self._errors: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end()
        self._process = None

    def call(self, content: bytes, *arguments: str) -> bytes:
        """Return the function's result.

        Raises:
            DataError: the function raised it.
            ProcessLost: the process did not survive the call, or cannot start.
        """
        with self._lock, _turns:
            if self._process is None:
                self._start()
            process = self._process
            assert process is not None
            timer = Timer(self._limits.wall_seconds, process.kill)
            timer.start()
            try:
                return self._answer(process, content, arguments)
            except (OSError, ValueError, LookupError, TypeError) as error:
                late = not timer.is_alive()
                raise self._lost(process, late=late) from error
            finally:
                timer.cancel()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the process has ended
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell reads it
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=self._folder,
                env=self._env,
            )
        except OSError as error:
            self._errors.close()
            raise ProcessLost(f"a process with limits cannot start: {error}", None, "") from error
        self._end = finalize(self, _ended, self._process, self._errors)

    def _answer(self, process: "subprocess.Popen[bytes]", content: bytes, arguments: tuple[str, ...]) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, {"arguments": arguments}, content)
        header, body = _received(process.stdout, ANSWER_BYTES)
        if header["refused"]:
            raise DataError(header["refused"])
        return body

    def _lost(self, process: "subprocess.Popen[bytes]", *, late: bool) -> ProcessLost:
        """End what is left of the process, and return what is known of its end."""
        try:
            # A process that has closed its output is about to end by itself, and its status says why.
            status = process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        assert self._errors is not None
        self._errors.seek(0)
        said = self._errors.read()[-500:].decode(errors="replace")
        self.close()
        if late:
            return ProcessLost(f"it took more than {self._limits.wall_seconds:g} s", None, said)
        limits = f"{self._limits.cpu_seconds} s of a processor and {self._limits.megabytes} MB"
        return ProcessLost(f"it takes more than {limits}, or is damaged (exit status {status})", status, said)


def _ended(process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            # It may not have read all of its input.
            with suppress(OSError):
                stream.close()


def _send(stream: IO[bytes], header: dict[str, Any], content: bytes) -> None:
    stream.write(json.dumps({**header, "bytes": len(content)}).encode() + b"\n")
    stream.write(content)
    stream.flush()


def _received(stream: IO[bytes], most: int) -> tuple[dict[str, Any], bytes]:
    """Return a header and its content; raise some error of parsing if the other side ended or sent anything else."""
    header = json.loads(stream.readline(HEADER_BYTES))
    if not 0 <= header["bytes"] <= most:
        raise ValueError(f"{header['bytes']} bytes")
    content = stream.read(header["bytes"])
    if len(content) < header["bytes"]:
        raise ValueError("it ended within an answer")
    return header, content


def _limit(megabytes: int) -> None:
    """Lower this process's limits, for good; root is not bound by that of processes."""
    for which, most in (
        (resource.RLIMIT_AS, megabytes * 1024 * 1024),
        (resource.RLIMIT_FSIZE, WRITTEN_BYTES),
        (resource.RLIMIT_CORE, 0),
        # Counts what the user runs already, so none is left.
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(which, (most, most))


def main() -> None:
    """Answer requests until standard input ends."""
    named, megabytes, seconds = sys.argv[1:]
    module, _, name = named.partition(":")
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    # What a library prints is no part of an answer.
    sys.stdout = sys.stderr
    function = getattr(import_module(module), name)
    _limit(int(megabytes))
    while line := requests.readline():
        header = json.loads(line)
        content = requests.read(header["bytes"])
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + 1 + int(seconds)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
        try:
            _send(answers, {"refused": ""}, function(content, *header["arguments"]))
        except DataError as error:
            _send(answers, {"refused": str(error)}, b"")


if __name__ == "__main__":
    main()
