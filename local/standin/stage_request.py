"""The request of an optimizer's stage, read from its tagged sections."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from skillopt_airflow.core.buffer import BufferEntry
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import Edit, SourceType
from skillopt_airflow.optimizer.epoch_steps import EpochStep
from skillopt_airflow.optimizer.transcripts import FollowUp

Parsed = TypeVar("Parsed")


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


@dataclass(frozen=True)
class StageRequest:
    """The sections of a request; one that the stage does not have keeps its default. No limit is None."""

    skill: str = ""
    budget: int | None = None
    outcome: SourceType = "failure"
    trajectories: tuple[SeenTrajectory, ...] = ()
    step_buffer: tuple[BufferEntry, ...] = ()
    edits: tuple[ListedEdit, ...] = ()
    priority: str = ""
    most: int | None = None
    notes: tuple[str, ...] = ()
    guidance: str = ""
    memory: str = ""
    comparison: ComparedGroups = field(default_factory=ComparedGroups)
    epoch_steps: tuple[EpochStep, ...] = ()
    meta_skill: str = ""
    drafted: bool = False
    """Whether the request shows an answer that is to be corrected."""

    @classmethod
    def read(cls, prompt: str, tags: str) -> "StageRequest":
        """Read the sections with these tags, in this order, and the memory and the draft if there are such."""
        sections = Sections(prompt)
        found = {tag: _READERS[tag](sections, tag) for tag in tags.split()}
        return cls(**found, meta_skill=sections.meta_skill, drafted=sections.holds("draft"))


class Sections:
    """A request's sections, read from the front.

    Raw text may hold tags itself, so it ends at the last closing tag of its name; JSON has none. The memory, which
    every stage may get and which comes last, is in `meta_skill`.

    The methods raise ModelError on a section that is missing or malformed.
    """

    def __init__(self, prompt: str) -> None:
        self._behind = ""
        self._rest, self.meta_skill = _without_memory(prompt)

    def raw(self, tag: str) -> str:
        """Read plain text; what is asked for next stands behind it."""
        start, end = self._rest.find(f"<{tag}>"), self._rest.rfind(f"</{tag}>")
        if start < 0 or end < start:
            raise ModelError(f"The request has no <{tag}> section{self._behind}.")
        text = self._rest[start + len(tag) + 2 : end].strip("\n")
        self._rest, self._behind = self._rest[end:], f" after its <{tag}>"
        return text

    def word(self, tag: str) -> str:
        """Read a short text without tags."""
        match = re.search(rf"<{tag}>(.*?)</{tag}>", self._rest, re.DOTALL)
        if match is None:
            raise ModelError(f"The request has no <{tag}> section{self._behind}.")
        return match[1].strip()

    def holds(self, tag: str) -> bool:
        """Return whether there is such a section behind the raw text that was read last."""
        return f"<{tag}>" in self._rest

    def json(self, tag: str, section_type: type[Parsed]) -> Parsed:
        """Read a value of the type."""
        try:
            return TypeAdapter(section_type).validate_python(json.loads(self.word(tag)))
        except (json.JSONDecodeError, ValidationError) as error:
            raise ModelError(f"The request's <{tag}> section cannot be read: {error}") from error

    def limit(self, tag: str) -> int | None:
        """Read a number of at least 0, or None for `unlimited`."""
        word = self.word(tag)
        if word == "unlimited":
            return None
        if not re.fullmatch(r"[0-9]{1,9}", word):
            raise ModelError(f"The request's <{tag}> section cannot be read: expected a number or unlimited")
        return int(word)


def _without_memory(prompt: str) -> tuple[str, str]:
    """Split the memory off; it is there if its tag is the last that closes."""
    end = prompt.rfind("</")
    start = prompt.rfind("<meta_skill>", 0, max(end, 0))
    if start < 0 or not prompt.startswith("</meta_skill>", end):
        return prompt, ""
    return prompt[:start], prompt[start + len("<meta_skill>") : end].strip()


def _of_type(section_type: type[Any]) -> Callable[[Sections, str], Any]:
    return lambda sections, tag: sections.json(tag, section_type)


_READERS: Mapping[str, Callable[[Sections, str], Any]] = {
    **dict.fromkeys(("skill", "guidance", "memory"), Sections.raw),
    **dict.fromkeys(("budget", "most"), Sections.limit),
    "priority": Sections.word,
    "outcome": lambda sections, tag: "success" if sections.word(tag) == "success" else "failure",
    "trajectories": _of_type(tuple[SeenTrajectory, ...]),
    "step_buffer": _of_type(tuple[BufferEntry, ...]),
    "edits": _of_type(tuple[ListedEdit, ...]),
    "notes": _of_type(tuple[str, ...]),
    "comparison": _of_type(ComparedGroups),
    "epoch_steps": _of_type(tuple[EpochStep, ...]),
}
