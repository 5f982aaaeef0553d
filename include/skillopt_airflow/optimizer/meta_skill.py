"""Meta skill: what the optimizer remembers across epochs about changing this skill (paper section 3.6)."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.types import Value
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import MOST_OF_MEMORY, flaw_of, said
from skillopt_airflow.optimizer.comparison import Comparison, compared_skills, comparison_section
from skillopt_airflow.optimizer.epoch_steps import EpochStep, epoch_steps_section
from skillopt_airflow.optimizer.model_answer import ModelAnswer
from skillopt_airflow.optimizer.sections import prompt_of, section


class Memory(Value):
    """The memory for later optimizer calls; `fallback` says why it is the former one, or is empty."""

    text: str
    fallback: str = ""


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
) -> Memory:
    """Ask for a new memory; the former one stays if nothing can be learned or the answer is unusable.

    `skill` and `previous` are the last skills of this epoch and of the previous one.
    """
    if comparison.empty and not epoch_steps:
        return Memory(text=memory)
    prompt = prompt_of(
        compared_skills(skill, previous),
        section("memory", memory),
        comparison_section(comparison),
        epoch_steps_section(epoch_steps),
    )
    try:
        answer = optimizer.ask("meta_skill", prompts.load("meta_skill"), prompt, MemoryAnswer)
    except ModelOutputError as error:
        return Memory(text=memory, fallback=said("meta_skill", [str(error)]))
    flaw = flaw_of(answer.memory, MOST_OF_MEMORY)
    if flaw:
        return Memory(text=memory, fallback=said("meta_skill", [f"the memory {flaw}"]))
    return Memory(text=answer.memory.strip())
