"""CPU seconds of all processes of a platform, including ended ones.

A process's account includes children that it has waited for. So the sum over running processes lacks only processes
that ended without such a parent, mostly shims of containers. For these, the last poll counts.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.repeated_looks import polling
from local import processes
from local.engine import OwnEngine
from local.environment import HOME_VARIABLE
from local.home import Home

PROC = Path("/proc")
LOOK_SECONDS = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
Key = tuple[int, int]
"""Process id and start time, because ids are reused."""


@dataclass(frozen=True)
class Account:
    """CPU time of a process and of the children that it has waited for."""

    parent: int
    ticks: int


@dataclass
class CpuMeter:
    """Sums the CPU time of processes selected by `counts` and their descendants.

    Args:
        counts: returns whether to count a process whose parent isn't counted.
        proc: the folder of the processes.
    """

    counts: Callable[[int], bool]
    proc: Path = PROC
    _known: dict[Key, bool] = field(default_factory=dict)
    _seen: Mapping[Key, Account] = field(default_factory=dict)
    _ended: int = 0
    _before: int = 0

    def start(self) -> None:
        self._seen, self._ended = self._accounts(), 0
        self._before = self._total()

    def look(self) -> None:
        """Read the accounts of running processes, and keep those that ended without a counted parent."""
        now = self._accounts()
        ended = {pid: (pid, started) for pid, started in self._seen.keys() - now.keys()}
        living = {pid for pid, _ in now}
        for pid, key in ended.items():
            if self._heir(pid, ended) not in living:
                self._ended += self._seen[key].ticks
        self._seen = now

    @property
    def seconds(self) -> float:
        """CPU seconds from the start to the last poll."""
        return (self._total() - self._before) / TICKS

    def _total(self) -> int:
        return self._ended + sum(account.ticks for account in self._seen.values())

    def _heir(self, pid: int, ended: Mapping[int, Key]) -> int:
        """Return the nearest ancestor that still runs."""
        while pid in ended:
            pid = self._seen[ended[pid]].parent
        return pid

    def _accounts(self) -> dict[Key, Account]:
        # Mostly parents first, so that a child that ends in between is missed, not counted twice.
        pids = sorted(int(entry.name) for entry in self.proc.iterdir() if entry.name.isdecimal())
        read = {pid: account for pid in pids if (account := self._read(pid))}
        keys = {pid: (pid, started) for pid, (started, _) in read.items()}
        parents = {pid: account.parent for pid, (_, account) in read.items()}
        for pid in read:
            self._decide(pid, keys, parents)
        self._known = {key: self._known[key] for key in keys.values()}
        return {keys[pid]: account for pid, (_, account) in read.items() if self._known[keys[pid]]}

    def _decide(self, pid: int, keys: Mapping[int, Key], parents: Mapping[int, int]) -> bool:
        """Return whether a process counts: as before, else like its parent, else by `counts`."""
        key = keys[pid]
        if key not in self._known:
            above = parents[pid]
            self._known[key] = (above in keys and self._decide(above, keys, parents)) or self.counts(pid)
        return self._known[key]

    def _read(self, pid: int) -> tuple[int, Account] | None:
        try:
            fields = (self.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return int(fields[19]), Account(parent=int(fields[1]), ticks=sum(map(int, fields[11:15])))


def of_platform(home: Home) -> Callable[[int], bool]:
    """Return a test for the platform's processes; another's Docker engine counts as a whole."""
    excluded = {process.pid for process in (psutil.Process(), *psutil.Process().parents())}
    database = {process.pid for process in processes.of_postgres(home)}
    foreign_engine = home.read().docker_host != OwnEngine(home.root).url

    def counts(pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            engine = foreign_engine and process.name().startswith(processes.ENGINE_NAMES)
        except psutil.Error:
            return False
        marked = processes.variable(process, HOME_VARIABLE) == str(home.root)
        return pid not in excluded and (engine or marked or pid in database)

    return counts


@contextmanager
def metered(home: Home) -> Iterator[CpuMeter]:
    """Measure the platform's processes until the block ends."""
    meter = CpuMeter(of_platform(home))
    meter.start()
    with polling(meter.look, LOOK_SECONDS):
        yield meter
