from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.run.history import StepSeconds
from skillopt_airflow.training.run.timing import StageTiming, step_seconds


def task(stage: str, started: float, ended: float, model: float = 0.0, container: float = 0.0) -> StageTiming:
    return StageTiming(stage=stage, started=started, ended=ended, model=model, container=container)


def test_a_step_is_split_into_model_container_own_and_airflow() -> None:
    rows = [task("rollout", 11, 15, model=2, container=1.5), task("reflect", 16, 18, model=1.5), task("gate", 19, 20)]
    assert step_seconds(rows, 10) == StepSeconds(wall=10, model=3.5, container=1.5, own=2, airflow=3)


def test_of_tasks_side_by_side_the_busiest_counts() -> None:
    rows = [task("rollout", 0, 4, model=1, container=2), task("rollout", 1, 6, model=2, container=2.5)]
    assert step_seconds(rows, 0) == StepSeconds(wall=6, model=2, container=2.5, own=1.5, airflow=0)
    rows = [task("evaluate", 0, 60, model=50, container=5), task("speculate", 0, 60, model=50, container=10)]
    assert step_seconds(rows, 0) == StepSeconds(wall=60, model=50, container=10, own=0, airflow=0)


@pytest.mark.parametrize("previous_end", [0.0, 0.5])
def test_a_gap_inside_a_stage_is_airflows_and_no_part_is_negative(previous_end: float) -> None:
    assert step_seconds([task("rollout", 0, 2), task("rollout", 5, 6)], 0).airflow == 3
    seconds = step_seconds([task("rollout", 0, 1, model=3, container=3)], previous_end)
    assert (seconds.own, seconds.airflow) == (0, 0)


def test_a_step_whose_gate_before_it_was_decided_again_later_has_the_time_of_its_tasks() -> None:
    rows = [task("rollout", 11, 15, model=2), task("gate", 16, 17)]
    assert step_seconds(rows, 100) == StepSeconds(wall=6, model=2, container=0, own=3, airflow=1)


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 60), (0, 60), (60, 120), (60, 120)],
        # The second of two containers is free earlier than the first, and takes its next chunk at once.
        [(0, 60), (0, 55), (60, 120), (55, 115)],
    ],
)
def test_chunks_that_wait_for_a_container_count_after_those_that_had_it(rows: Sequence[tuple[float, float]]) -> None:
    tasks = [task("evaluate", *times, model=50, container=5) for times in rows]
    assert step_seconds(tasks, 0) == StepSeconds(wall=120, model=100, container=10, own=10, airflow=0)


SECONDS = st.integers(0, 100)
TASKS = st.lists(
    st.tuples(st.sampled_from(["rollout", "evaluate", "speculate"]), SECONDS, SECONDS, SECONDS, SECONDS),
    min_size=1,
    max_size=12,
)


@given(TASKS)
def test_the_parts_are_the_wall_time(rows: list[tuple[str, int, int, int, int]]) -> None:
    tasks = [
        task(stage, started, started + model + container + own, model=model, container=container)
        for stage, started, model, container, own in rows
    ]
    seconds = step_seconds(tasks, 0)
    assert seconds.model + seconds.container + seconds.own + seconds.airflow == seconds.wall
    assert seconds.model + seconds.container >= max(one.model + one.container for one in tasks)
