"""What the requests of a step's stages hold."""

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from local.standin.directive import Subject
from local.standin.sections import Sections
from local.standin.spreadsheet import is_workbook_task
from skillopt_airflow.core.types import AnyEditOp, Message, SourceType

_EXPECTED_CHOICE = re.compile(r"^expected (?P<label>[A-Z])\b")
_EXPECTED = re.compile(r'^expected "(?P<references>.*?)"; answered "', re.DOTALL)


class Received(BaseModel):
    """Base of what is read from a request: keys that the stand-in has no use for may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FollowUp(Received):
    """What the target was asked about a trajectory, and what it said."""

    question: str = ""
    answer: str = ""


class SeenTrajectory(Received):
    """A scored trajectory as a reflect request shows it."""

    item_id: str
    hard: float | None = None
    feedback: str = ""
    messages: tuple[Message, ...] = ()
    follow_up: FollowUp | None = None

    @property
    def prompt(self) -> str:
        """The user message with documents and question."""
        return next((message.content for message in self.messages if message.role == "user"), "")

    @property
    def references(self) -> tuple[str, ...]:
        """The answers that the scorer would have taken; empty if the feedback names none."""
        match = _EXPECTED.search(self.feedback)
        return tuple(match["references"].split('" or "')) if match else ()

    @property
    def subject(self) -> Subject:
        """Choices by the feedback, which names a label and not a phrase; workbooks by the task."""
        if self.expected_label:
            return "choices"
        return "workbooks" if is_workbook_task(self.prompt) else "documents"

    @property
    def expected_label(self) -> str:
        """The letter of the right choice; empty if the feedback names none."""
        match = _EXPECTED_CHOICE.match(self.feedback)
        return match["label"] if match else ""


def subject_of(trajectories: Iterable[SeenTrajectory]) -> Subject:
    """What they are about: that of one suffices, for only the feedback on some choices names a label."""
    return next((one.subject for one in trajectories if one.subject != "documents"), "documents")


class BareEdit(Received):
    """What an edit does, without where it came from."""

    op: AnyEditOp
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
    """One minibatch to reflect on; with rewrites there is no budget, which is None as when it is unlimited."""

    skill: str
    budget: int | None
    outcome: SourceType
    trajectories: tuple[SeenTrajectory, ...]
    step_buffer: tuple[BufferedStep, ...]
    meta_skill: str = ""

    @property
    def subject(self) -> Subject:
        """What the minibatch is about."""
        return subject_of(self.trajectories)


class EditsRequest(Received):
    """Edits to merge, to rank, to choose a learning rate for, or to work into the skill.

    `priority` is of merge alone, `most` of learning_rate alone.
    """

    skill: str
    edits: tuple[PooledEdit, ...]
    priority: str = ""
    most: int | None = None
    meta_skill: str = ""


class DeepReflectRequest(Received):
    """Trajectories to ask the target about."""

    skill: str
    trajectories: tuple[SeenTrajectory, ...]


class ConsolidateRequest(Received):
    """Notes of the appendix to make fewer."""

    notes: tuple[str, ...]
    most: int | None


def parse_reflect(prompt: str) -> ReflectRequest:
    """Raises ModelError on a section that is missing or malformed, as the others do."""
    return _reflect_request(prompt, budgeted=True)


def parse_reflect_rewrite(prompt: str) -> ReflectRequest:
    """As reflect, without a budget."""
    return _reflect_request(prompt, budgeted=False)


def parse_merge(prompt: str) -> EditsRequest:
    """The sections of a merge request."""
    sections = Sections(prompt)
    return EditsRequest(
        skill=sections.raw("skill"),
        priority=sections.word("priority"),
        edits=sections.json("edits", tuple[PooledEdit, ...]),
        meta_skill=sections.meta_skill,
    )


def parse_edits(prompt: str) -> EditsRequest:
    """The sections of a rank or rewrite request; a rank's order is of all edits, so its budget is of no use here."""
    sections = Sections(prompt)
    return EditsRequest(
        skill=sections.raw("skill"),
        edits=sections.json("edits", tuple[PooledEdit, ...]),
        meta_skill=sections.meta_skill,
    )


def parse_learning_rate(prompt: str) -> EditsRequest:
    """The sections of a learning_rate request."""
    sections = Sections(prompt)
    return EditsRequest(
        skill=sections.raw("skill"),
        most=sections.limit("most"),
        edits=sections.json("edits", tuple[PooledEdit, ...]),
        meta_skill=sections.meta_skill,
    )


def parse_deep_reflect(prompt: str) -> DeepReflectRequest:
    """The sections of a deep_reflect request."""
    sections = Sections(prompt)
    skill = sections.raw("skill")
    return DeepReflectRequest(skill=skill, trajectories=sections.json("trajectories", tuple[SeenTrajectory, ...]))


def parse_consolidate(prompt: str) -> ConsolidateRequest:
    """The sections of a consolidate request; the notes are united whatever the skill's body says."""
    sections = Sections(prompt)
    sections.raw("skill")
    return ConsolidateRequest(notes=sections.json("notes", tuple[str, ...]), most=sections.limit("most"))


def _reflect_request(prompt: str, *, budgeted: bool) -> ReflectRequest:
    sections = Sections(prompt)
    return ReflectRequest(
        skill=sections.raw("skill"),
        budget=sections.limit("budget") if budgeted else None,
        outcome="success" if sections.word("outcome") == "success" else "failure",
        trajectories=sections.json("trajectories", tuple[SeenTrajectory, ...]),
        step_buffer=sections.json("step_buffer", tuple[BufferedStep, ...]),
        meta_skill=sections.meta_skill,
    )
