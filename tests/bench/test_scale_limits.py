"""Straight lines through two measured sizes, and the limits that they reach."""

from typing import Any

import pytest

from bench.counted_store import Used
from bench.scale_items import MEASURED, STAGES, Stage, Training
from bench.scale_limits import WORKER_MEBIBYTES, limits_of, line_through, over_items


def training(items: int) -> Training:
    """One whose report takes a megabyte for 100 items beyond 300 MB."""
    peaks = {stage: 300.0 + (items / 100 if stage == "report" else 0) for stage in STAGES}
    return Training({stage: Stage(Used(puts=items), peak) for stage, peak in peaks.items()}, 0, 0)


def test_a_line_goes_through_both_sizes() -> None:
    line = line_through((100, 300), [12.0, 16.0])
    assert [line(100), line(300), line(1100)] == [12.0, 16.0, 32.0]
    assert line.reaches(32.0) == 1100
    puts: Any = over_items([training(items) for items in MEASURED], lambda one: one.stages["gate"].used.puts)
    assert puts(100_000) == pytest.approx(100_000)


def test_the_limit_that_is_nearest_comes_first() -> None:
    trainings = [training(items) for items in MEASURED]
    memory, *others = limits_of(trainings, line_through((10, 200), [0.5, 5.0]))
    assert memory.name.startswith("the memory of `report`")
    assert (memory.needed, memory.limit) == (pytest.approx(1300), WORKER_MEBIBYTES)
    assert f"with {(WORKER_MEBIBYTES - 300) * 100:,} items" in memory.met
    reading, *_ = limits_of(trainings, line_through((10, 200), [2.0, 40.0]))
    assert "DAG file" in reading.name
    assert reading.share > 1
    assert [one.share for one in others] == sorted((one.share for one in others), reverse=True)
