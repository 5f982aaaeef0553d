"""Requests of optimizer stages, parsed from tagged sections."""

import json
import re
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.types import Edit
from skillopt_airflow.optimizer.meta_skill import EpochStep

RAW = ("skill", "guidance", "memory")
"""Sections of plain text, which can contain tags; JSON sections can't."""
QUOTING = ("trajectories", "comparison")
"""Sections of items with their conversations."""
WORDS = ("outcome", "priority")
MEMORY = "<meta_skill>\n"


class SeenItem(BaseModel):
    """An item in a section."""

    model_config = ConfigDict(frozen=True)

    number: int
    text: str
    group: str = ""
    """Group of the item in a comparison."""

    @property
    def explained(self) -> bool:
        return "~~~ follow-up answer\n" in self.text


class BufferedStep(BaseModel):
    """A step of the step buffer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rejected_edits: tuple[Edit, ...] = ()


class ListedEdit(Edit):
    """An edit with its index for answers."""

    index: int


class StageRequest(BaseModel):
    """The sections of a request; missing sections have defaults, and None means no limit."""

    model_config = ConfigDict(frozen=True)

    skill: str = ""
    budget: int | None = None
    outcome: str = "failure"
    trajectories: tuple[SeenItem, ...] = ()
    step_buffer: tuple[BufferedStep, ...] = ()
    edits: tuple[ListedEdit, ...] = ()
    priority: str = ""
    most: int | None = None
    notes: tuple[str, ...] = ()
    guidance: str = ""
    memory: str = ""
    comparison: tuple[SeenItem, ...] = ()
    epoch_steps: tuple[EpochStep, ...] = ()
    references: tuple[str, ...] = ()
    paths: tuple[tuple[str, ...], ...] = ()
    answer: str = ""
    meta_skill: str = ""
    drafted: bool = False
    """True if the request contains a draft to correct."""

    @classmethod
    def read(cls, prompt: str, tags: str) -> "StageRequest":
        """Parse the sections with these tags, in this order, and the memory at the end if it exists."""
        rest, _, memory = prompt.rpartition(MEMORY) if prompt.rstrip().endswith("</meta_skill>") else (prompt, "", "")
        found: dict[str, object] = {"meta_skill": memory.rstrip().removesuffix("</meta_skill>").strip()}
        for tag in tags.split():
            # Plain text ends at its last closing tag; the next section follows.
            start, end = rest.find(f"<{tag}>"), rest.rfind(f"</{tag}>")
            if start < 0 or end < start:
                raise ModelError(f"The request has no <{tag}> section.")
            text = rest[start + len(tag) + 2 : end].strip("\n")
            rest = rest[end:] if tag in RAW else rest
            try:
                found[tag] = _value(tag, text)
            except ValueError as error:
                raise ModelError(f"The request's <{tag}> section cannot be read: {error}") from error
        try:
            return cls.model_validate(found | {"drafted": "<draft>" in rest})
        except ValidationError as error:
            raise ModelError(f"The request cannot be read: {error}") from error


def _value(tag: str, text: str) -> object:
    if tag in QUOTING:
        return tuple(_items(text))
    return text if tag in (*RAW, *WORDS) else None if text == "unlimited" else json.loads(text)


def _items(text: str) -> Iterator[SeenItem]:
    """Yield the items of a section; an item with several samples repeats its number."""
    group = ""
    for part in re.split(r"^(?=## Item \d+\b|# [A-Z])", text, flags=re.MULTILINE):
        if found := re.match(r"## Item (\d+)", part):
            yield SeenItem(number=int(found[1]), text=part, group=group)
        elif part.startswith("# "):
            group = part.partition("(")[0].removeprefix("# ").strip().lower()
