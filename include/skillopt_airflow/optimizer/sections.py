"""The user message of an optimizer call, in tagged sections that show the model where data begins and ends.

Calls fit into the model's context, and are repeated if the answer is cut off. One of the sections is the guidance of
the benchmark's author.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.config.training_groups import GradientGroup
from skillopt_airflow.core.errors import AnswerCut, PromptTooLong
from skillopt_airflow.core.run.budget import Prices
from skillopt_airflow.core.run.state import BufferEntry, StepBuffer
from skillopt_airflow.core.values.model_protocols import Optimizer, Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Edit, JsonObject

MAX_CHARS = 200_000
"""About 50,000 tokens of English; longer prompts cost attention and money."""
CHARS_PER_TOKEN = 1.5
"""English has about four; a lower number leaves room for other languages and for the answer."""
MIN_ROOM = 4_000
"""Prompts aren't shortened below this number of characters."""


def load_prompt(stage: str) -> str:
    """Return the instructions of a stage, prompts/<stage>.md."""
    return files(__package__).joinpath("prompts", f"{stage}.md").read_text(encoding="utf-8")


def prompt_room(gradient: GradientGroup, prices: Prices) -> int:
    """Return the maximum number of characters of a prompt, by the model's context if the price table has it."""
    price = prices.get("optimizer")
    if gradient.prompt_chars is not None:
        return gradient.prompt_chars
    if price is None or price.context is None:
        return MAX_CHARS
    return min(MAX_CHARS, int(price.context * CHARS_PER_TOKEN))


class Question(NamedTuple):
    """A call whose prompt can be shortened."""

    stage: str
    instructions: str
    prompt_in: Callable[[int], str]
    """Returns a prompt of about the given number of characters."""
    pictures: Pictures = NO_PICTURES
    brief: "Question | None" = None
    """The call to make if the answer was cut; None repeats this call with a request for less."""


def ask_fitting(
    optimizer: Optimizer,
    question: Question,
    room: int,
    answer_type: type[Output],
    shorter: type[Output] | None = None,
    least: int = MIN_ROOM,
) -> tuple[Output, bool]:
    """Ask in `room` characters, and halve them each time the provider rejects the prompt for its length.

    If the answer is cut at the token limit, ask once more, with the schema `shorter` if there is one. Return the
    answer, and whether it is such a second one.

    Raises:
        PromptTooLong: the prompt was rejected, and half of its room is less than `least`.
        ModelOutputError: the answer doesn't fit its schema, or was cut twice.
    """
    cut = False
    while True:
        instructions = question.instructions
        prompt = question.prompt_in(room - len(instructions))
        try:
            schema = shorter if cut and shorter is not None else answer_type
            return optimizer.ask(question.stage, instructions, prompt, schema, question.pictures), cut
        except PromptTooLong:
            room = min(room, len(instructions) + len(prompt)) // 2
            if room < least:
                raise
        except AnswerCut:
            if cut:
                raise
            less = question._replace(instructions=instructions + load_prompt("shorter"))
            cut, question = True, less if question.brief is None else question.brief


def prompt_of(*sections: str) -> str:
    return "\n\n".join(part for part in sections if part)


def section(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def json_section(tag: str, value: object) -> str:
    """Put JSON between tags, with `<` escaped, so data can't close the section."""
    return section(tag, json.dumps(value, ensure_ascii=False, indent=1).replace("<", "\\u003c"))


def budget_section(budget: int | None) -> str:
    """Show the maximum number of edits in an answer; None means no limit."""
    return section("budget", "unlimited" if budget is None else str(budget))


def edits_section(edits: Sequence[Edit]) -> str:
    fields = {"op", "anchor", "content", "rationale", "support_count", "source_type"}
    shown = [edit.model_dump(mode="json", include=fields) for edit in edits]
    return json_section("edits", [{"index": index} | edit for index, edit in enumerate(shown)])


def buffer_section(buffer: StepBuffer) -> str:
    """Show failure patterns and edits of the epoch's earlier steps, without empty fields."""
    return json_section("step_buffer", [_shown_entry(entry) for entry in buffer.entries])


def meta_skill_section(meta_skill: str) -> str:
    """Show the optimizer's memory of earlier epochs; empty if there is none."""
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


class GuidedOptimizer:
    """An `Optimizer` that adds the benchmark's guidance to the prompt.

    `guidance` has texts by stage; `reflect` and `merge` apply to all their variants.
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
