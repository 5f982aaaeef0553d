"""The CPU account of a tree of processes, on a folder that looks like /proc."""

import os
from pathlib import Path

import pytest

from bench.cpu_seconds import TICKS, CpuMeter


class Machine:
    """Processes by id; pid 1 is no part of the platform, and whoever is in `counted` is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counted = {10}

    def runs(self, pid: int, parent: int, seconds: float, of_children: float = 0.0, started: int = 5) -> None:
        fields = ["S", str(parent), *["0"] * 9, *(str(int(n * TICKS)) for n in (seconds, 0, of_children, 0))]
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        (place / "stat").write_text(f"{pid} (a (strange) name) {' '.join([*fields, *['0'] * 4, str(started)])} 0\n")

    def ends(self, *pids: int) -> None:
        for pid in pids:
            (self.folder / str(pid) / "stat").unlink()
            (self.folder / str(pid)).rmdir()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "self").mkdir()
    machine = Machine(tmp_path)
    machine.runs(1, 0, 1000, of_children=1000)
    machine.runs(10, 1, 5)
    return machine


@pytest.fixture
def meter(machine: Machine) -> CpuMeter:
    meter = CpuMeter(lambda pid: pid in machine.counted, machine.folder)
    meter.start()
    return meter


def test_only_what_is_used_after_the_start_counts(machine: Machine, meter: CpuMeter) -> None:
    machine.runs(10, 1, 7)
    machine.runs(1, 0, 2000)
    meter.look()
    assert meter.seconds == 2.0


def test_whatever_a_counted_process_starts_counts_and_nothing_else(machine: Machine, meter: CpuMeter) -> None:
    machine.runs(20, 10, 1)
    machine.runs(21, 20, 2)
    machine.runs(30, 1, 50)
    meter.look()
    assert meter.seconds == 3.0


def test_a_child_that_was_waited_for_counts_once(machine: Machine, meter: CpuMeter) -> None:
    machine.runs(20, 10, 1)
    meter.look()
    machine.ends(20)
    machine.runs(10, 1, 5, of_children=1.5)
    meter.look()
    assert meter.seconds == 1.5


def test_an_orphan_stays_counted_and_keeps_what_was_seen_last(machine: Machine, meter: CpuMeter) -> None:
    """As the shim of a container, which the engine starts and leaves to the first process."""
    machine.runs(20, 10, 1)
    meter.look()
    machine.runs(20, 1, 2, of_children=3)
    machine.runs(21, 20, 4)
    meter.look()
    machine.ends(20, 21)
    meter.look()
    assert meter.seconds == 9.0


def test_an_id_that_is_used_again_is_another_process(machine: Machine, meter: CpuMeter) -> None:
    machine.runs(20, 1, 100, started=6)
    meter.look()
    machine.runs(20, 10, 1, started=7)
    meter.look()
    assert meter.seconds == 1.0


def test_it_reads_the_accounts_of_this_machine() -> None:
    meter = CpuMeter(lambda pid: pid == os.getpid())
    meter.start()
    began = os.times()
    sum(number * number for number in range(3_000_000))
    meter.look()
    ended = os.times()
    # The account is in whole ticks.
    assert meter.seconds == pytest.approx(sum(ended[:4]) - sum(began[:4]), abs=3 / TICKS)
    assert meter.seconds > 0
