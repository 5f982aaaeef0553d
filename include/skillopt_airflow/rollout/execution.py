"""Running an untrusted program with limits on time and output, and ending its whole process group."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

MAX_OUTPUT_BYTES = 20_000
HALF = MAX_OUTPUT_BYTES // 2
CHUNK_BYTES = 65536
LAST_WORDS_SECONDS = 0.5
REAP_SECONDS = 5.0


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
        cwd: its working folder.
        env: its whole environment.
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
