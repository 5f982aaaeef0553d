"""Reflect: minibatches of trajectories become patches (paper section 3.3)."""

import random
from collections.abc import Sequence

from pydantic import BaseModel, Field

from include.core.buffer import StepBuffer
from include.core.errors import ModelOutputError
from include.core.ports import Optimizer
from include.core.scoring import is_failure
from include.core.types import Edit, EditOp, FailurePattern, JsonObject, Patch, Rollout, SourceType, Value
from include.optimizer import prompts
from include.optimizer.sections import buffer_section, json_section, section


class Minibatch(Value):
    """Rollouts of one outcome that one call reflects on."""

    source_type: SourceType
    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def name(self) -> str:
        """Its name in keys and in the provenance of edits."""
        return f"{self.source_type}-{self.index}"


class ProposedEdit(BaseModel):
    """An edit as a model writes it."""

    op: EditOp
    anchor: str = Field(default="", description="Text copied from the skill; not needed for append.")
    content: str = Field(default="", description="The new text; not needed for delete.")
    rationale: str = Field(default="", description="Why this helps on unseen items, in one sentence.")


class ProposedPattern(BaseModel):
    """A failure pattern as a model writes it."""

    description: str
    item_ids: list[str] = Field(default_factory=list)


class Reflection(BaseModel):
    """The answer of a reflection call."""

    failure_patterns: list[ProposedPattern] = Field(default_factory=list)
    edits: list[ProposedEdit] = Field(default_factory=list)


def minibatches(rollouts: Sequence[Rollout], size: int, seed: str) -> list[Minibatch]:
    """Scored rollouts, failures and successes apart, each shuffled by seed and cut; failures first.

    The result does not depend on the order in which the rollouts arrive.
    """
    scored = sorted((r for r in rollouts if r.score is not None), key=lambda r: r.trajectory.item_id)
    groups: dict[SourceType, list[Rollout]] = {"failure": [], "success": []}
    for rollout in scored:
        if rollout.score is not None:
            groups["failure" if is_failure(rollout.score) else "success"].append(rollout)
    cut: list[Minibatch] = []
    for source_type, group in groups.items():
        random.Random(f"{seed}-{source_type}").shuffle(group)  # noqa: S311 - a shuffle, not a secret
        slices = [tuple(group[start : start + size]) for start in range(0, len(group), size)]
        cut += [Minibatch(source_type=source_type, index=i, rollouts=part) for i, part in enumerate(slices)]
    return cut


def most_minibatches(batch_size: int, size: int) -> int:
    """How many minibatches a batch can come to, whichever way it splits into failures and successes."""
    return min(batch_size, (batch_size - 2) // size + 2)


def reflect(optimizer: Optimizer, skill: str, minibatch: Minibatch, budget: int, buffer: StepBuffer) -> Patch:
    """One call: what went wrong (or right) and at most `budget` edits; an unusable answer proposes nothing."""
    prompt = "\n\n".join(
        (
            section("skill", skill),
            section("budget", str(budget)),
            section("outcome", minibatch.source_type),
            json_section("trajectories", [_shown(rollout) for rollout in minibatch.rollouts]),
            buffer_section(buffer),
        )
    )
    try:
        answer = optimizer.ask("reflect", prompts.load("reflect"), prompt, Reflection)
    except ModelOutputError as error:
        return Patch(fallback=f"reflect {minibatch.name}: {error}")
    return Patch(
        edits=tuple(
            Edit(**proposed.model_dump(), source_type=minibatch.source_type, minibatches=(minibatch.name,))
            for proposed in answer.edits[:budget]
        ),
        failure_patterns=tuple(
            FailurePattern(description=pattern.description, item_ids=tuple(pattern.item_ids))
            for pattern in answer.failure_patterns
        ),
    )


def _shown(rollout: Rollout) -> JsonObject:
    score = rollout.score
    messages = [m.model_dump() for m in rollout.trajectory.messages if m.role != "system"]
    return {
        "item_id": rollout.trajectory.item_id,
        "hard": score.hard if score else None,
        "soft": score.soft if score else None,
        "feedback": score.feedback if score else "",
        "answer": rollout.trajectory.answer,
        "messages": list(messages),
    }
