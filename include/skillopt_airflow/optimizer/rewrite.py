"""Rewrite: the optimizer writes the skill's body anew from the selected edits (rewrite_from_suggestions)."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.buffer import StepBuffer
from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.skill import without_markers
from skillopt_airflow.core.types import Edit, Patch
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import (
    MOST_OF_SENTENCES,
    MOST_OF_SKILL,
    ModelAnswer,
    clipped,
    flaw_of,
    joined,
    said,
)
from skillopt_airflow.optimizer.proposals import unite
from skillopt_airflow.optimizer.sections import buffer_section, edits_section, prompt_of, section


class RewrittenBody(ModelAnswer):
    """The answer of a call that writes the body anew, from edits or from several bodies."""

    body: str = Field(description="The whole new text of the skill before its first protected region.")


def rewrite(optimizer: Optimizer, skill: str, patch: Patch, buffer: StepBuffer) -> Patch:
    """Replace all edits of the patch by one that rewrites the body; without edits there is no call.

    `buffer` is what the epoch's steps tried so far. An unusable answer leaves the edits as they are, to be applied one
    by one, and the patch's fallback says so.
    """
    if not patch.edits:
        return patch
    prompt = prompt_of(section("skill", skill), edits_section(patch.edits), buffer_section(buffer))
    try:
        body = optimizer.ask("rewrite", prompts.load("rewrite"), prompt, RewrittenBody).body
    except ModelOutputError as error:
        return _as_edits(patch, str(error))
    # Applying the edit takes the markers out, and its report says so.
    flaw = flaw_of(without_markers(body), MOST_OF_SKILL)
    return (
        _as_edits(patch, f"the body {flaw}") if flaw else patch.model_copy(update={"edits": (_of(body, patch.edits),)})
    )


def _as_edits(patch: Patch, reason: str) -> Patch:
    return patch.model_copy(update={"fallback": joined(patch.fallback, said("rewrite", [reason]))})


def _of(body: str, edits: Sequence[Edit]) -> Edit:
    reasons = " ".join(edit.rationale for edit in edits if edit.rationale)
    wording = Edit(op="rewrite", content=body, rationale=clipped(reasons, MOST_OF_SENTENCES))
    return unite(wording, edits).model_copy(update={"support_count": max(edit.support_count for edit in edits)})
