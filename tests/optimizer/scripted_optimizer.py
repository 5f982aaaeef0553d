"""An optimizer that gives the answers it was handed."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.values.model_protocols import Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Rollout, Score, Status, Trajectory


class ScriptedOptimizer:
    """Answers from a queue; an exception in it is raised, and so is StopIteration where it is empty."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers: Iterator[dict[str, Any] | Exception] = iter(answers)
        self.calls: list[tuple[str, str]] = []
        self.instructions: list[str] = []

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        assert instructions.strip()
        self.instructions.append(instructions)
        self.calls.append((stage, prompt))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return output_type.model_validate(answer)


class AnsweringOptimizer:
    """Answers by a function of stage and prompt, from any thread."""

    def __init__(self, answer: Callable[[str, str], dict[str, Any]]) -> None:
        self._answer = answer
        self.stages: list[str] = []
        self.prompts: list[str] = []

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        self.stages.append(stage)
        self.prompts.append(prompt)
        return output_type.model_validate(self._answer(stage, prompt))


def unusable(text: str = "no valid answer") -> ModelOutputError:
    return ModelOutputError(text)


def section(prompt: str, tag: str) -> str:
    """The text of a prompt's section."""
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", prompt, re.DOTALL)
    assert found
    return found[1]


def json_section(prompt: str, tag: str) -> Any:
    return json.loads(section(prompt, tag))


def rollout(item_id: str, hard: float | None = 0.0, feedback: str | None = None, **trajectory: Any) -> Rollout:
    """A rollout with this hard score; None for one that failed. The feedback names the item unless it is given."""
    status = Status.TIMEOUT if hard is None else Status.OK
    said = f"feedback on {item_id}" if feedback is None else feedback
    score = None if hard is None else Score(hard=hard, soft=hard, feedback=said)
    return Rollout(trajectory=Trajectory(item_id=item_id, status=status, **trajectory), score=score)
