"""Selecting the best edits of a step, and their number in autonomous mode (paper section 3.4)."""

import math
from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.gate.item_scores import is_failure
from skillopt_airflow.core.run.state import StepBuffer
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.types import Edit, JsonObject, Patch, Score
from skillopt_airflow.optimizer.answers import MAX_SENTENCES_CHARS, ModelAnswer, clipped, fallback_text
from skillopt_airflow.optimizer.sections import (
    budget_section,
    buffer_section,
    edits_section,
    json_section,
    load_prompt,
    meta_skill_section,
    prompt_of,
    section,
)


class Ranking(ModelAnswer):
    """The answer of a rank call."""

    reasoning: str = Field(default="", description="How the edits compare by the criteria, in a few sentences.")
    order: list[int] = Field(description="Indices of all edits, the best first.")


def select(optimizer: Optimizer, skill: str, patch: Patch, budget: int | None, meta_skill: str) -> Patch:
    """Select the `budget` best edits of the patch, best first, without a call if there are no more than that.

    None means no limit. At most one rewrite of the whole body is selected.
    """
    most = len(patch.edits) if budget is None else budget
    if any(edit.op == "rewrite" for edit in patch.edits):
        most = min(most, 1)
    if len(patch.edits) <= most:
        return patch
    if most == 0:
        return patch.model_copy(update={"edits": ()})
    prompt = prompt_of(
        section("skill", skill), budget_section(most), edits_section(patch.edits), meta_skill_section(meta_skill)
    )
    try:
        answer = optimizer.ask("rank", load_prompt("rank"), prompt, Ranking)
        if not any(0 <= index < len(patch.edits) for index in answer.order):
            raise ModelOutputError("the answer names none of the edits")
    except ModelOutputError as error:
        by_support = sorted(patch.edits, key=lambda edit: -edit.support_count)
        chosen = patch.model_copy(update={"edits": tuple(by_support[:most])})
        return chosen.also(fallback_text("rank", [str(error)]))
    return patch.model_copy(update={"edits": _in_order(patch.edits, answer.order)[:most]})


def _in_order(edits: Sequence[Edit], order: Sequence[int]) -> tuple[Edit, ...]:
    """Sort edits by the answer, ignoring unknown and repeated indices; edits that it omits follow in their order."""
    known = {index: None for index in order if 0 <= index < len(edits)}
    left_out = [index for index in range(len(edits)) if index not in known]
    return tuple(edits[index] for index in (*known, *left_out))


class ChosenRate(Document):
    """The maximum number of edits of a step. If the answer was unusable, `fallback` gives the cause."""

    rate: int = Field(ge=0)
    reason: str = ""
    fallback: str = ""


class RateAnswer(ModelAnswer):
    """The answer of a learning_rate call."""

    learning_rate: int
    reason: str = Field(default="", description="Why this number, in one or two sentences.")


def learning_rate(
    optimizer: Optimizer,
    skill: str,
    patch: Patch,
    most: int,
    scores: Sequence[Score],
    buffer: StepBuffer,
    meta_skill: str,
) -> ChosenRate:
    """Ask for a rate from 0 to `most`; `most` replaces an invalid answer.

    `scores` are those of the rollouts behind the edits, `buffer` has the earlier attempts of the epoch.
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
        answer = optimizer.ask("learning_rate", load_prompt("learning_rate"), prompt, RateAnswer)
        if not 0 <= answer.learning_rate <= most:
            # The number can have more digits than Python prints.
            raise ModelOutputError(f"a rate {'below 0' if answer.learning_rate < 0 else f'above {most}'}")
    except ModelOutputError as error:
        return ChosenRate(rate=most, fallback=fallback_text("learning_rate", [str(error)]))
    return ChosenRate(rate=answer.learning_rate, reason=clipped(answer.reason, MAX_SENTENCES_CHARS))


def _summed(scores: Sequence[Score]) -> JsonObject:
    """Return a summary of at least one rollout's scores."""
    return {
        "rollouts": len(scores),
        "failed": sum(map(is_failure, scores)),
        "hard": math.fsum(score.hard for score in scores) / len(scores),
        "soft": math.fsum(score.soft for score in scores) / len(scores),
    }
