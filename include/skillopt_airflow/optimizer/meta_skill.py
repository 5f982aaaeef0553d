"""Meta skill: the optimizer's memory across epochs about changing this skill (paper section 3.6)."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, Patch, Value
from skillopt_airflow.optimizer.answers import MAX_MEMORY_CHARS, ModelAnswer, check_text, fallback_text
from skillopt_airflow.optimizer.comparison import MAX_ROOM, Comparison, compared_skills, comparison_section
from skillopt_airflow.optimizer.proposals import ProposedEdit, sift
from skillopt_airflow.optimizer.sections import (
    Question,
    ask_fitting,
    bare_edit,
    budget_section,
    json_section,
    load_prompt,
    prompt_of,
    section,
)


class EpochStep(Value):
    """A step's edits, the scores on which the gate decided, and its verdict."""

    step: int
    action: Action
    score_before: float | None
    score_after: float | None
    """None if the candidate wasn't measured."""
    interval: tuple[float, float] | None = None
    """95% confidence interval of the difference."""
    edits: tuple[Edit, ...]


def epoch_steps_section(steps: Sequence[EpochStep]) -> str:
    shown = [
        step.model_dump(mode="json", exclude={"edits"}) | {"edits": [bare_edit(edit) for edit in step.edits]}
        for step in steps
    ]
    return json_section("epoch_steps", shown)


class MetaReflection(ModelAnswer):
    """The answer of a meta_reflect call."""

    edits: list[ProposedEdit] = Field(default_factory=list)


def meta_reflect(optimizer: Optimizer, skill: str, epoch_steps: Sequence[EpochStep], budget: int) -> Patch:
    """Ask for at most `budget` edits; an unusable answer gives none."""
    if not epoch_steps:
        return Patch()
    prompt = prompt_of(section("skill", skill), budget_section(budget), epoch_steps_section(epoch_steps))
    try:
        answer = optimizer.ask("meta_reflect", load_prompt("meta_reflect"), prompt, MetaReflection)
    except ModelOutputError as error:
        return Patch(fallback=fallback_text("meta_reflect", [str(error)]))
    kept, flaws = sift(answer.edits, SkillDocument(skill), budget)
    edits = (Edit(**edit.model_dump(), source_type="failure", minibatches=("meta-reflect",)) for edit in kept)
    return Patch(edits=tuple(edits), fallback=fallback_text("meta_reflect", flaws))


class MemoryAnswer(ModelAnswer):
    """The answer of a meta_skill call."""

    memory: str = Field(description="The whole new memory.")


def meta_skill(
    optimizer: Optimizer,
    memory: str,
    skill: str,
    previous: str,
    comparison: Comparison,
    epoch_steps: Sequence[EpochStep],
    room: int,
) -> tuple[str, str]:
    """Ask for a new memory; return the current one if there is nothing to learn or the answer is unusable.

    `skill` and `previous` are the last skills of this and the previous epoch, `room` is the limit of the call in
    characters. The second return value is a fallback with the answer's flaw, which may be empty.
    """
    if comparison.empty and not epoch_steps:
        return memory, ""
    first = prompt_of(compared_skills(skill, previous), section("memory", memory))
    last = epoch_steps_section(epoch_steps)

    def prompt_in(most: int) -> str:
        left = most - len(first) - len(last)
        return prompt_of(first, "" if comparison.empty else comparison_section(comparison, left), last)

    question = Question("meta_skill", load_prompt("meta_skill"), prompt_in)
    try:
        answer, _ = ask_fitting(optimizer, question, min(room, MAX_ROOM), MemoryAnswer)
        check_text("the memory", answer.memory, MAX_MEMORY_CHARS)
    except ModelOutputError as error:
        return memory, fallback_text("meta_skill", [str(error)])
    return answer.memory.strip(), ""
