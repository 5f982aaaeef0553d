"""The user message of an optimizer call: tagged sections, so that a model sees where data begins and ends.

One of them is the guidance of the benchmark's author.
"""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Optimizer, Output
from skillopt_airflow.core.state import BufferEntry, StepBuffer
from skillopt_airflow.core.types import Edit, JsonObject


def prompt_of(*sections: str) -> str:
    """Join the sections into one message; empty ones are left out."""
    return "\n\n".join(part for part in sections if part)


def section(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def json_section(tag: str, value: object) -> str:
    """Put JSON between tags; `<` is escaped inside, so that data cannot close the section."""
    return section(tag, json.dumps(value, ensure_ascii=False, indent=1).replace("<", "\\u003c"))


def budget_section(budget: int | None) -> str:
    """Show the most edits that an answer may hold; None is no limit."""
    return section("budget", "unlimited" if budget is None else str(budget))


def edits_section(edits: Sequence[Edit]) -> str:
    return json_section("edits", [{"index": index} | _shown(edit) for index, edit in enumerate(edits)])


def buffer_section(buffer: StepBuffer) -> str:
    """Show what failed in the epoch's steps, in how many items, and what they tried; empty fields are left out."""
    return json_section("step_buffer", [_shown_entry(entry) for entry in buffer.entries])


def meta_skill_section(meta_skill: str) -> str:
    """Show the optimizer's memory of earlier epochs; no section while there is none."""
    return section("meta_skill", meta_skill) if meta_skill.strip() else ""


def bare_edit(edit: Edit) -> JsonObject:
    return edit.model_dump(mode="json", include={"op", "anchor", "content"})


def _shown_entry(entry: BufferEntry) -> JsonObject:
    tried = {
        "accepted_edits": entry.accepted_edits,
        "rejected_edits": entry.rejected_edits,
        "undecided_edits": entry.undecided_edits,
    }
    shown = entry.model_dump(mode="json", exclude={*tried, "failure_patterns"}, exclude_none=True)
    patterns: list[JsonValue] = [
        {"description": pattern.description, "items": len(pattern.item_ids)} for pattern in entry.failure_patterns
    ]
    edits = {name: [bare_edit(edit) for edit in edits] for name, edits in tried.items() if edits}
    return shown | {"failure_patterns": patterns} | edits


def _shown(edit: Edit) -> JsonObject:
    fields = {"op", "anchor", "content", "rationale", "support_count", "source_type"}
    return edit.model_dump(mode="json", include=fields)


class GuidedOptimizer:
    """An `Optimizer` that adds the benchmark's guidance on a stage to the prompt.

    Args:
        optimizer: the one to ask.
        guidance: texts by stage; that of `reflect` is for every kind of reflection on a minibatch, that of `merge` for
            every kind of merge.
    """

    def __init__(self, optimizer: Optimizer, guidance: Mapping[str, str]) -> None:
        self._optimizer = optimizer
        self._guidance = guidance

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        kind = stage.partition("_")[0]
        text = self._guidance.get(kind if kind in ("reflect", "merge") else stage)
        guided = prompt if text is None else prompt_of(prompt, section("benchmark_guidance", text))
        return self._optimizer.ask(stage, instructions, guided, output_type, pictures)
