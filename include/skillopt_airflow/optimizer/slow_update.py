"""Slow update: guidance for a protected region, from comparing two epochs' last skills (paper section 3.6)."""

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.skill import without_markers
from skillopt_airflow.core.types import Edit, Value
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import MOST_OF_MEMORY, MOST_OF_SENTENCES, ModelAnswer, clipped, flaw_of, said
from skillopt_airflow.optimizer.comparison import MOST_ROOM, Comparison, compared_skills, comparison_section
from skillopt_airflow.optimizer.prompt_room import Question, ask_fitting
from skillopt_airflow.optimizer.sections import prompt_of, section

REGION = "SLOW_UPDATE"


class Guidance(Value):
    """The inside of the region and why; `fallback` says why it is the former one, or is empty."""

    text: str
    reason: str = ""
    fallback: str = ""


class GuidanceAnswer(ModelAnswer):
    """The answer of a slow_update call."""

    guidance: str = Field(description="The whole new inside of the region.")
    reason: str = Field(default="", description="What the comparison showed, in one or two sentences.")


def slow_update(
    optimizer: Optimizer, skill: str, previous: str, guidance: str, comparison: Comparison, room: int
) -> Guidance:
    """Ask for new guidance; the former one stays if nothing can be compared or the answer is unusable.

    Args:
        optimizer: the model to ask.
        skill: the last skill of this epoch.
        previous: that of the previous epoch.
        guidance: the inside of the region so far.
        comparison: the same items under both skills.
        room: the most characters of the call.
    """
    if comparison.empty:
        return Guidance(text=guidance, reason="the comparison holds no item to learn from")
    first = prompt_of(compared_skills(skill, previous), section("guidance", guidance))
    question = Question(
        "slow_update",
        prompts.load("slow_update"),
        lambda most: prompt_of(first, comparison_section(comparison, most - len(first))),
    )
    try:
        answer, _ = ask_fitting(optimizer, question, min(room, MOST_ROOM), GuidanceAnswer)
    except ModelOutputError as error:
        return Guidance(text=guidance, fallback=said("slow_update", [str(error)]))
    flaw = flaw_of(without_markers(answer.guidance), MOST_OF_MEMORY)
    if flaw:
        return Guidance(text=guidance, fallback=said("slow_update", [f"the guidance {flaw}"]))
    return Guidance(text=answer.guidance.strip(), reason=clipped(answer.reason, MOST_OF_SENTENCES))


def guidance_edit(guidance: Guidance) -> Edit:
    """Return the edit that writes the guidance into its region."""
    return Edit(
        op="region", anchor=REGION, content=guidance.text, rationale=guidance.reason, minibatches=("slow-update",)
    )
