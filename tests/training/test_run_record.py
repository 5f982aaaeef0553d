"""The reference that tasks hand on, and the record of a run."""

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.training.run_record import RunRecord, RunRef

MANDATORY = {
    "benchmark": "searchqa",
    "run": "r",
    "created": "2026-11-26T12:00:00+00:00",
    "image": "sha256:1",
    "steps_in_epoch": 5,
    "prices": {"target": None, "optimizer": None},
}


def record(**knobs: object) -> RunRecord:
    config = TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))
    return RunRecord.model_validate({**MANDATORY, "config": config})


def test_a_reference_says_no_more_than_it_has_to() -> None:
    ref = RunRef(benchmark="searchqa", run="r", storage=StorageGroup())
    said = ref.model_dump(mode="json")
    assert not {"part", "ends", "code"} & said.keys()
    last = ref.model_copy(update={"epoch": 2, "part": 10, "ends": False, "code": "1f"})
    assert RunRef.model_validate(last.model_dump(mode="json")) == last


def test_the_schedules_go_over_all_steps() -> None:
    assert record(train__num_epochs=4).total_steps == 20
