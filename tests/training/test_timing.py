import pytest

from include.training.timing import StageTiming, StepSeconds, step_seconds


def task(stage: str, started: float, ended: float, model: float = 0.0, container: float = 0.0) -> StageTiming:
    return StageTiming(stage=stage, started=started, ended=ended, model=model, container=container)


def test_a_step_is_split_into_model_container_own_and_airflow() -> None:
    rows = [task("rollout", 11, 15, model=2, container=1.5), task("reflect", 16, 18, model=1.5), task("gate", 19, 20)]
    assert step_seconds(rows, 10) == StepSeconds(wall=10, model=3.5, container=1.5, own=2, airflow=3)


def test_of_tasks_side_by_side_the_busiest_counts() -> None:
    rows = [task("rollout", 0, 4, model=1, container=2), task("rollout", 1, 6, model=2, container=2.5)]
    assert step_seconds(rows, 0) == StepSeconds(wall=6, model=2, container=2.5, own=1.5, airflow=0)


def test_a_gap_inside_a_stage_is_airflows() -> None:
    assert step_seconds([task("rollout", 0, 2), task("rollout", 5, 6)], 0).airflow == 3


@pytest.mark.parametrize("previous_end", [0.0, 0.5])
def test_no_part_is_negative(previous_end: float) -> None:
    seconds = step_seconds([task("rollout", 0, 1, model=3, container=3)], previous_end)
    assert seconds.own == 0
    assert seconds.airflow == 0
