"""The training without Airflow goes through the tasks of the DAGs, each behind all that it waits for there."""

import re
from itertools import pairwise

import pytest
from airflow.sdk import DAG

from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

NOT_IN_THE_LOOP = {"publication.approve", "skip_unused_steps"}


@pytest.fixture(scope="module")
def training() -> Training:
    """A run with all that an epoch's end may have, published."""
    training = Training.of(
        train__num_epochs=2,
        train__steps_per_epoch=1,
        optimizer__use_meta_reflect=True,
        evaluation__val_limit=None,
        evaluation__test_limit=60,
        reports=True,
    )
    training()
    training.publish("run")
    return training


def of_moments(training: Training, folder: str) -> list[str]:
    """The tasks below a folder of the run, in the order in which they were carried out."""
    return [re.sub(r"-\d+$", "", name.rpartition("/")[2]) for name in training.order if name.startswith(folder)]


def of_run(training: Training) -> list[str]:
    """The tasks of the run's DAG; those of a moment stand for the task that runs the part of the epoch."""
    parts = {"steps/step_0001": "epoch_01", "steps/step_0002": "epoch_02"}
    parts |= {"slow_update/epoch_02": "epoch_02", "meta_reflect/epoch_02": "epoch_02"}
    parts |= {"slow_update/epoch_01": "epoch_01", "meta_reflect/epoch_01": "epoch_01"}
    found = [parts.get(name.rpartition("/")[0], name.replace("/", ".")) for name in training.order]
    return list(dict.fromkeys(found))


def upstream(dag: DAG, name: str) -> set[str]:
    """All tasks that a task waits for."""
    found: set[str] = dag.task_dict[name].get_flat_relative_ids(upstream=True)
    return found - NOT_IN_THE_LOOP


def check(dag: DAG, order: list[str], beside: tuple[str, ...] = ()) -> None:
    """Each task comes behind all that it waits for in the DAG, where all but those beside are one chain."""
    assert set(order) == set(dag.task_dict) - NOT_IN_THE_LOOP
    for place, name in enumerate(order):
        assert upstream(dag, name) <= set(order[:place]), name
    for before, name in pairwise(name for name in order if name not in beside):
        assert before in upstream(dag, name), (before, name)


def test_a_run(training: Training) -> None:
    check(train_dag("searchqa", training.config), of_run(training), beside=("plan_seed_test", "test_seed"))


def test_an_epoch(training: Training) -> None:
    first, *step = of_moments(training, "steps/step_0002")
    assert first == "plan"
    order = ["plan", *(f"step_01.{name}" for name in dict.fromkeys(step))]
    for kind in ("slow_update", "meta_reflect"):
        order += [f"{kind}.{name}" for name in of_moments(training, f"{kind}/epoch_02")]
    beside = ("step_01.speculate", "slow_update.speculate", "meta_reflect.speculate")
    check(epoch_dag("searchqa", training.config), order, beside)
