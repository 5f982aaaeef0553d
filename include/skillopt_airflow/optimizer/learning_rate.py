"""The learning rate as the optimizer's own choice, from what the step's trajectories proposed (autonomous mode)."""

import math
from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.buffer import StepBuffer
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.item_scores import is_failure
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.types import JsonObject, Patch, Score
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import MOST_OF_SENTENCES, ModelAnswer, clipped, said
from skillopt_airflow.optimizer.sections import (
    buffer_section,
    edits_section,
    json_section,
    meta_skill_section,
    prompt_of,
    section,
)


class ChosenRate(Document):
    """The most edits of a step, and the reason; `fallback` says why the rule chose instead, or is empty."""

    rate: int = Field(ge=0)
    reason: str = ""
    fallback: str = ""


class RateAnswer(ModelAnswer):
    """The answer of a learning_rate call."""

    learning_rate: int
    reason: str = Field(default="", description="Why so many, in one or two sentences.")


def learning_rate(
    optimizer: Optimizer,
    skill: str,
    patch: Patch,
    most: int,
    scores: Sequence[Score],
    buffer: StepBuffer,
    meta_skill: str,
) -> ChosenRate:
    """Ask for a rate from 0 to `most`, which a flawed answer gives way to; without edits there is no call.

    `scores` are those of the rollouts that the edits were made of, `buffer` is what the epoch's steps tried so far.
    """
    if not patch.edits:
        return ChosenRate(rate=0, reason="no edits were proposed")
    prompt = prompt_of(
        section("skill", skill),
        section("most", str(most)),
        json_section("scores", _summed(scores)),
        edits_section(patch.edits),
        buffer_section(buffer),
        meta_skill_section(meta_skill),
    )
    try:
        answer = optimizer.ask("learning_rate", prompts.load("learning_rate"), prompt, RateAnswer)
    except ModelOutputError as error:
        return ChosenRate(rate=most, fallback=said("learning_rate", [str(error)]))
    if not 0 <= answer.learning_rate <= most:
        # An answer's number can have more digits than Python prints.
        flaw = f"a rate {'below 0' if answer.learning_rate < 0 else f'above {most}'}"
        return ChosenRate(rate=most, fallback=said("learning_rate", [flaw]))
    return ChosenRate(rate=answer.learning_rate, reason=clipped(answer.reason, MOST_OF_SENTENCES))


def _summed(scores: Sequence[Score]) -> JsonObject:
    """Return how many rollouts there are, of which there is at least one, how many failed, and the two means."""
    return {
        "rollouts": len(scores),
        "failed": sum(map(is_failure, scores)),
        "hard": math.fsum(score.hard for score in scores) / len(scores),
        "soft": math.fsum(score.soft for score in scores) / len(scores),
    }
