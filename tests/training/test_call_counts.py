import pytest

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Output
from skillopt_airflow.core.types import Edit, Patch, SourceType
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.training.call_counts import most_merges


class Refusing:
    """An optimizer that counts what it is asked and never answers."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        self.stages.append(stage)
        raise ModelOutputError("no answer")


def merges(failures: int, successes: int, merge_batch_size: int) -> int:
    kinds: list[SourceType] = ["failure"] * failures + ["success"] * successes
    patches = [
        Patch(edits=(Edit(op="append", content=f"rule {index}", source_type=kind, minibatches=(f"{kind}-{index}",)),))
        for index, kind in enumerate(kinds)
    ]
    optimizer = Refusing()
    aggregate(optimizer, "# Skill\n", patches, merge_batch_size, 1, "")
    return len(optimizer.stages)


@pytest.mark.parametrize("merge_batch_size", [2, 3, 8])
@pytest.mark.parametrize("patches", [0, 1, 2, 3, 6, 9, 18])
def test_most_merges_is_the_exact_maximum_of_what_aggregate_asks(patches: int, merge_batch_size: int) -> None:
    asked = [merges(failures, patches - failures, merge_batch_size) for failures in range(patches + 1)]
    assert most_merges(patches, merge_batch_size, failure_only=False) == max(asked)
    assert most_merges(patches, merge_batch_size, failure_only=True) == asked[-1]
