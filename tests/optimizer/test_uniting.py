from typing import Any

from skillopt_airflow.core.types import Edit, SourceType
from skillopt_airflow.optimizer.uniting import without_duplicates


def edit(content: str, source_type: SourceType = "failure", *minibatches: str, **fields: Any) -> Edit:
    return Edit(op="append", content=content, source_type=source_type, minibatches=minibatches, **fields)


def test_duplicates_are_one_level_of_merging_however_many_there_are() -> None:
    edits = [edit("x", "success", f"success-{index}") for index in range(4)] + [edit("y", "failure", "failure-0")]
    assert without_duplicates(edits) == (
        edit("y", "failure", "failure-0", merge_level=1),
        edit("x", "success", *(f"success-{index}" for index in range(4)), support_count=4, merge_level=1),
    )
    # Of equal texts other operations and anchors are different edits.
    edits = [
        Edit(op="replace", anchor="a", content="x"),
        Edit(op="replace", anchor="b", content="x"),
        Edit(op="insert_after", anchor="a", content="x"),
    ]
    assert len(without_duplicates(edits)) == 3
