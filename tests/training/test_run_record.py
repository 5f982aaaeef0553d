"""The reference that tasks hand on, and the record of a run."""

from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.training.run_record import RunRef


def test_a_reference_says_no_more_than_it_has_to() -> None:
    ref = RunRef(benchmark="searchqa", run="r", storage=StorageGroup())
    said = ref.model_dump(mode="json")
    assert not {"part", "ends", "code"} & said.keys()
    last = ref.model_copy(update={"epoch": 2, "part": 10, "ends": False, "code": "1f"})
    assert RunRef.model_validate(last.model_dump(mode="json")) == last
