"""Meta reflect: edits of a higher level, from the directions that an epoch accepted and rejected."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Edit, Patch
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import said
from skillopt_airflow.optimizer.epoch_steps import EpochStep, epoch_steps_section
from skillopt_airflow.optimizer.model_answer import ModelAnswer
from skillopt_airflow.optimizer.proposals import ProposedEdit, sift
from skillopt_airflow.optimizer.sections import budget_section, prompt_of, section


class MetaReflection(ModelAnswer):
    """The answer of a meta_reflect call."""

    edits: list[ProposedEdit] = Field(default_factory=list)


def meta_reflect(optimizer: Optimizer, skill: str, epoch_steps: Sequence[EpochStep], budget: int) -> Patch:
    """Ask for at most `budget` edits; a flawed answer proposes none, and without steps there is no call."""
    if not epoch_steps:
        return Patch()
    prompt = prompt_of(section("skill", skill), budget_section(budget), epoch_steps_section(epoch_steps))
    try:
        answer = optimizer.ask("meta_reflect", prompts.load("meta_reflect"), prompt, MetaReflection)
    except ModelOutputError as error:
        return Patch(fallback=said("meta_reflect", [str(error)]))
    kept, flaws = sift(answer.edits, SkillDocument(skill), budget)
    edits = (Edit(**edit.model_dump(), source_type="failure", minibatches=("meta-reflect",)) for edit in kept)
    return Patch(edits=tuple(edits), fallback=said("meta_reflect", flaws))
