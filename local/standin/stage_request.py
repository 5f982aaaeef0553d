"""The request of an optimizer's stage, read from its tagged sections."""

import json

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt_airflow.core.buffer import BufferEntry
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import Edit
from skillopt_airflow.optimizer.epoch_steps import EpochStep
from skillopt_airflow.optimizer.transcripts import FollowUp

RAW = ("skill", "guidance", "memory")
"""Sections of plain text, which may hold tags itself; a section of JSON has none."""
WORDS = ("outcome", "priority")
MEMORY = "<meta_skill>\n"


class SeenTrajectory(BaseModel):
    """A scored trajectory, as far as the stand-in looks at it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    item_id: str
    follow_up: FollowUp | None = None


class ListedEdit(Edit):
    """An edit with the index by which an answer refers to it."""

    index: int


class ComparedGroups(BaseModel):
    """Items that the present skill gets wrong; a group that is not shown is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    regressed: tuple[SeenTrajectory, ...] = ()
    persistent_failure: tuple[SeenTrajectory, ...] = ()


class StageRequest(BaseModel):
    """The sections of a request; one that the stage does not have keeps its default. No limit is None."""

    model_config = ConfigDict(frozen=True)

    skill: str = ""
    budget: int | None = None
    outcome: str = "failure"
    trajectories: tuple[SeenTrajectory, ...] = ()
    step_buffer: tuple[BufferEntry, ...] = ()
    edits: tuple[ListedEdit, ...] = ()
    priority: str = ""
    most: int | None = None
    notes: tuple[str, ...] = ()
    guidance: str = ""
    memory: str = ""
    comparison: ComparedGroups = ComparedGroups()
    epoch_steps: tuple[EpochStep, ...] = ()
    references: tuple[str, ...] = ()
    paths: tuple[tuple[str, ...], ...] = ()
    answer: str = ""
    meta_skill: str = ""
    drafted: bool = False
    """Whether the request shows an answer that is to be corrected."""

    @classmethod
    def read(cls, prompt: str, tags: str) -> "StageRequest":
        """Read the sections with these tags, in this order, and the memory, which comes last, if there is one."""
        rest, _, memory = prompt.rpartition(MEMORY) if prompt.rstrip().endswith("</meta_skill>") else (prompt, "", "")
        found: dict[str, object] = {"meta_skill": memory.rstrip().removesuffix("</meta_skill>").strip()}
        for tag in tags.split():
            # Plain text ends at the last closing tag of its name, and what is asked for next stands behind it.
            start, end = rest.find(f"<{tag}>"), rest.rfind(f"</{tag}>")
            if start < 0 or end < start:
                raise ModelError(f"The request has no <{tag}> section.")
            text = rest[start + len(tag) + 2 : end].strip("\n")
            rest = rest[end:] if tag in RAW else rest
            try:
                found[tag] = text if tag in (*RAW, *WORDS) else None if text == "unlimited" else json.loads(text)
            except ValueError as error:
                raise ModelError(f"The request's <{tag}> section cannot be read: {error}") from error
        try:
            return cls.model_validate(found | {"drafted": "<draft>" in rest})
        except ValidationError as error:
            raise ModelError(f"The request cannot be read: {error}") from error
