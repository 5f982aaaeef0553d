"""The user message of an optimizer call: tagged sections, so that a model sees where data begins and ends.

It fits into the model's context, and is asked again where the answer was cut off. One of the sections is the guidance
of the benchmark's author.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.config.training_groups import GradientGroup
from skillopt_airflow.core.errors import AnswerCut, PromptTooLong
from skillopt_airflow.core.run.budget import Prices
from skillopt_airflow.core.run.state import BufferEntry, StepBuffer
from skillopt_airflow.core.values.model_protocols import Optimizer, Output
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Edit, JsonObject
from skillopt_airflow.optimizer import prompts

MAX_CHARS = 200_000
"""About 50,000 tokens of English: an analyst's attention and its price are limits, too."""
CHARS_PER_TOKEN = 1.5
"""English has four; fewer leave room for other languages and scripts, and for the answer."""
MIN_ROOM = 4_000
"""Characters below which a prompt isn't made shorter."""


def prompt_room(gradient: GradientGroup, prices: Prices) -> int:
    """Return the most characters of a prompt, by the optimizer's context as far as its price comes with that."""
    price = prices.get("optimizer")
    if gradient.prompt_chars is not None:
        return gradient.prompt_chars
    if price is None or price.context is None:
        return MAX_CHARS
    return min(MAX_CHARS, int(price.context * CHARS_PER_TOKEN))


class Question(NamedTuple):
    """A call whose prompt can be made shorter."""

    stage: str
    instructions: str
    prompt_in: Callable[[int], str]
    """Makes a prompt of about as many characters."""
    pictures: Pictures = NO_PICTURES
    brief: "Question | None" = None
    """The call that takes its place when its answer was cut; the same one, asked for less, when None."""

    @property
    def when_cut(self) -> "Question":
        less = self._replace(instructions=self.instructions + prompts.load("shorter"))
        return less if self.brief is None else self.brief


def ask_fitting(
    optimizer: Optimizer,
    question: Question,
    room: int,
    answer_type: type[Output],
    shorter: type[Output] | None = None,
    least: int = MIN_ROOM,
) -> tuple[Output, bool]:
    """Ask in `room` characters, in half of them each time that the provider refuses the prompt for its length.

    An answer that is cut at the token limit is asked for once more, by the `shorter` schema if there is one.

    Returns:
        The answer, and whether it was asked for again because it was cut.

    Raises:
        PromptTooLong: the prompt is refused, and half of its room is less than `least`.
        ModelOutputError: the answer stayed outside its schema, or was cut twice.
    """
    cut = False
    while True:
        told = question.instructions
        prompt = question.prompt_in(room - len(told))
        try:
            wanted = shorter if cut and shorter is not None else answer_type
            return optimizer.ask(question.stage, told, prompt, wanted, question.pictures), cut
        except PromptTooLong:
            room = min(room, len(told) + len(prompt)) // 2
            if room < least:
                raise
        except AnswerCut:
            if cut:
                raise
            cut, question = True, question.when_cut


def prompt_of(*sections: str) -> str:
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
