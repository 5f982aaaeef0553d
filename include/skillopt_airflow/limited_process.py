"""Functions that read untrusted files, in a process with limits for memory and time and an empty environment.

The process is `python -m skillopt_airflow.limited_process MODULE:FUNCTION MEGABYTES SECONDS`. It reads requests from
standard input, one at a time. Requests and answers are a line of JSON, followed by the number of bytes that it names.
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

MAX_CONCURRENT = 2
"""Concurrent calls per worker, each of which may use the whole memory limit."""
MAX_FILE_BYTES = 1024 * 1024
"""Limit of each file that the process writes, and of its error output."""
ANSWER_BYTES = 64 * 1024 * 1024
HEADER_BYTES = 64 * 1024
PACKAGES = str(Path(__file__).parents[1])
_turns = BoundedSemaphore(MAX_CONCURRENT)


class Limits(NamedTuple):
    megabytes: int
    """Address space, including libraries."""
    cpu_seconds: int
    """Per call."""
    wall_seconds: float
    """Per call, including the start of the process."""


class LimitedProcess:
    """A process that calls one function, `(content: bytes, *arguments: str) -> bytes`, any number of times.

    The first call starts it, and so does the next call after a crash.
    """

    def __init__(
        self, function: str, limits: Limits, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Describe the process.

        Args:
            function: `module:name`, the module within this package.
            env: its variables, in addition to those that Python needs. It inherits none.
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
        self._finalize: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._finalize()
        self._process = None

    def call(self, content: bytes, *arguments: str) -> bytes:
        """Return the function's result.

        Raises:
            DataError: from the function.
            ProcessLost: the process can't start, or ended during the call.
        """
        with self._lock, _turns:
            process = self._process or self._start()
            timer = Timer(self._limits.wall_seconds, process.kill)
            timer.start()
            try:
                return self._answer(process, content, arguments)
            except (OSError, ValueError, LookupError, TypeError) as error:
                late = not timer.is_alive()
                raise self._end_process(process, late=late) from error
            finally:
                timer.cancel()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is read after the process has ended
        try:
            self._process = subprocess.Popen(  # noqa: S603 - without a shell
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
        self._finalize = finalize(self, _kill, self._process, self._errors)
        return self._process

    def _answer(self, process: "subprocess.Popen[bytes]", content: bytes, arguments: tuple[str, ...]) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, {"arguments": arguments}, content)
        header, body = _receive(process.stdout, ANSWER_BYTES)
        if header["refused"]:
            raise DataError(header["refused"])
        return body

    def _end_process(self, process: "subprocess.Popen[bytes]", *, late: bool) -> ProcessLost:
        """End the process, and return an error with its status and error output."""
        try:
            # After closing its output, the process ends by itself, and its status shows the reason.
            status = process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        assert self._errors is not None
        self._errors.seek(0)
        output = self._errors.read()[-500:].decode(errors="replace")
        self.close()
        if late:
            return ProcessLost(f"it took more than {self._limits.wall_seconds:g} s", None, output)
        limits = f"{self._limits.cpu_seconds} s of CPU time or {self._limits.megabytes} MB"
        return ProcessLost(f"it takes more than {limits}, or is damaged (exit status {status})", status, output)


def _kill(process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            # Closing flushes unsent input, which fails now.
            with suppress(OSError):
                stream.close()


def _send(stream: IO[bytes], header: dict[str, Any], content: bytes) -> None:
    stream.write(json.dumps({**header, "bytes": len(content)}).encode() + b"\n")
    stream.write(content)
    stream.flush()


def _receive(stream: IO[bytes], most: int) -> tuple[dict[str, Any], bytes]:
    """Return a header and its content. Raises a parsing error if the other side ended or sent anything else."""
    header = json.loads(stream.readline(HEADER_BYTES))
    if not 0 <= header["bytes"] <= most:
        raise ValueError(f"{header['bytes']} bytes")
    content = stream.read(header["bytes"])
    if len(content) < header["bytes"]:
        raise ValueError("it ended within an answer")
    return header, content


def _limit(megabytes: int) -> None:
    """Lower this process's limits permanently. The limit of processes doesn't apply to root."""
    for which, most in (
        (resource.RLIMIT_AS, megabytes * 1024 * 1024),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        # It counts all of the user's processes, so 0 allows no new ones.
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(which, (most, most))


def main() -> None:
    """Answer requests until standard input ends."""
    named, megabytes, seconds = sys.argv[1:]
    module, _, name = named.partition(":")
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    # Libraries may print to standard output, which must not become part of an answer.
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
