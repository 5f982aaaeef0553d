"""The user message of an optimizer call: tagged sections, so that a model sees where data begins and ends."""

import json
from collections.abc import Sequence

from include.core.buffer import StepBuffer
from include.core.types import Edit, JsonObject


def section(tag: str, text: str) -> str:
    """Plain text between tags."""
    return f"<{tag}>\n{text}\n</{tag}>"


def json_section(tag: str, value: object) -> str:
    """JSON between tags; `<` is escaped inside, so that data cannot close the section."""
    return section(tag, json.dumps(value, ensure_ascii=False, indent=1).replace("<", "\\u003c"))


def edits_section(edits: Sequence[Edit]) -> str:
    """The edits with the indices by which an answer refers to them."""
    return json_section("edits", [{"index": index} | _shown(edit) for index, edit in enumerate(edits)])


def buffer_section(buffer: StepBuffer) -> str:
    """What the epoch has seen and tried."""
    entries: list[JsonObject] = []
    for entry in buffer.entries:
        shown = entry.model_dump(mode="json", exclude={"rejected_edits"})
        rejected = [edit.model_dump(mode="json", include={"op", "anchor", "content"}) for edit in entry.rejected_edits]
        entries.append(shown | {"rejected_edits": rejected})
    return json_section("step_buffer", entries)


def _shown(edit: Edit) -> JsonObject:
    fields = {"op", "anchor", "content", "rationale", "support_count", "source_type"}
    return edit.model_dump(mode="json", include=fields)
