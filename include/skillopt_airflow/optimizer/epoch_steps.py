"""An epoch's steps as the optimizer is shown them at its end."""

from collections.abc import Sequence

from skillopt_airflow.core.gate import Action
from skillopt_airflow.core.types import Edit, Value
from skillopt_airflow.optimizer.sections import bare_edit, json_section


class EpochStep(Value):
    """A step: what it tried, the scores before and after where they decided, and the gate's verdict."""

    step: int
    action: Action
    score_before: float | None
    score_after: float | None
    """None if the candidate could not be measured."""
    interval: tuple[float, float] | None = None
    """95% interval of the difference."""
    edits: tuple[Edit, ...]


def epoch_steps_section(steps: Sequence[EpochStep]) -> str:
    """Show the steps in their order."""
    shown = [
        step.model_dump(mode="json", exclude={"edits"}) | {"edits": [bare_edit(edit) for edit in step.edits]}
        for step in steps
    ]
    return json_section("epoch_steps", shown)
