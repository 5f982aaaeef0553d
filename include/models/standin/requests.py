"""What the optimizer's requests hold: tagged sections, JSON in most of them."""

import json
import re
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from include.core.errors import ModelError
from include.core.types import EditOp, Message, SourceType

Section = TypeVar("Section")
_EXPECTED = re.compile(r'^expected "(?P<references>.*?)"; answered "', re.DOTALL)


class Received(BaseModel):
    """Base of what is read from a request: keys that the stand-in has no use for may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SeenTrajectory(Received):
    """A scored trajectory as a reflect request shows it."""

    item_id: str
    hard: float
    feedback: str
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> str:
        """The user message with documents and question."""
        return next((message.content for message in self.messages if message.role == "user"), "")

    @property
    def references(self) -> tuple[str, ...]:
        """The answers that the scorer would have taken; empty if the feedback names none."""
        match = _EXPECTED.search(self.feedback)
        return tuple(match["references"].split('" or "')) if match else ()


class BareEdit(Received):
    """What an edit does, without where it came from."""

    op: EditOp
    anchor: str = ""
    content: str = ""


class PooledEdit(BareEdit):
    """An edit of a merge or rank request."""

    index: int
    rationale: str = ""
    support_count: int = 1
    source_type: SourceType = "failure"


class BufferedStep(Received):
    """A former step of the epoch."""

    rejected_edits: tuple[BareEdit, ...] = ()


class ReflectRequest(Received):
    """One minibatch to reflect on."""

    skill: str
    budget: int = Field(ge=0)
    outcome: SourceType
    trajectories: tuple[SeenTrajectory, ...]
    step_buffer: tuple[BufferedStep, ...]


class MergeRequest(Received):
    """Edits of several patches to unite."""

    skill: str
    priority: str
    edits: tuple[PooledEdit, ...]


class RankRequest(Received):
    """Edits to put in order."""

    skill: str
    edits: tuple[PooledEdit, ...]


def parse_reflect(prompt: str) -> ReflectRequest:
    """Raises ModelError on a section that is missing or malformed, as the other two do."""
    return ReflectRequest(
        skill=_skill(prompt),
        budget=_json(prompt, "budget", int),
        outcome="success" if _section(prompt, "outcome").strip() == "success" else "failure",
        trajectories=_json(prompt, "trajectories", tuple[SeenTrajectory, ...]),
        step_buffer=_json(prompt, "step_buffer", tuple[BufferedStep, ...]),
    )


def parse_merge(prompt: str) -> MergeRequest:
    """The sections of a merge request."""
    edits = _json(prompt, "edits", tuple[PooledEdit, ...])
    return MergeRequest(skill=_skill(prompt), priority=_section(prompt, "priority").strip(), edits=edits)


def parse_rank(prompt: str) -> RankRequest:
    """The sections of a rank request; the order is of all edits, so the budget is of no use here."""
    return RankRequest(skill=_skill(prompt), edits=_json(prompt, "edits", tuple[PooledEdit, ...]))


def _skill(prompt: str) -> str:
    """The skill is raw text that may hold tags itself: it ends at the last closing tag."""
    start, end = prompt.find("<skill>"), prompt.rfind("</skill>")
    if start < 0 or end < start:
        raise ModelError("The request has no <skill> section.")
    return prompt[start + len("<skill>") : end].strip("\n")


def _section(prompt: str, tag: str) -> str:
    behind_skill = prompt[max(prompt.rfind("</skill>"), 0) :]
    match = re.search(rf"<{tag}>(.*?)</{tag}>", behind_skill, re.DOTALL)
    if match is None:
        raise ModelError(f"The request has no <{tag}> section after its <skill>.")
    return match[1]


def _json(prompt: str, tag: str, section_type: type[Section]) -> Section:
    try:
        return TypeAdapter(section_type).validate_python(json.loads(_section(prompt, tag)))
    except (json.JSONDecodeError, ValidationError) as error:
        raise ModelError(f"The request's <{tag}> section cannot be read: {error}") from error
