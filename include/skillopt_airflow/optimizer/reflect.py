"""Reflect: dividing the rollouts of a step into minibatches, and turning each into a patch (paper section 3.3)."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from skillopt_airflow.core.config.training_groups import OptimizerGroup
from skillopt_airflow.core.errors import ModelOutputError, PromptTooLong
from skillopt_airflow.core.gate.item_scores import is_failure
from skillopt_airflow.core.run.state import StepBuffer
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.skill import SkillDocument, without_markers
from skillopt_airflow.core.values.types import Edit, FailurePattern, Note, Patch, Rollout, Score, SourceType, Value
from skillopt_airflow.optimizer.answers import (
    MAX_ENTRIES,
    MAX_SENTENCES_CHARS,
    MAX_SKILL_CHARS,
    ModelAnswer,
    clipped,
    fallback_text,
    flaw_of,
    flaw_of_note,
    join_fallbacks,
    one_line,
)
from skillopt_airflow.optimizer.proposals import ProposedEdit, sift
from skillopt_airflow.optimizer.sections import (
    MIN_ROOM,
    Question,
    ask_fitting,
    budget_section,
    buffer_section,
    json_section,
    load_prompt,
    meta_skill_section,
    prompt_of,
    section,
)
from skillopt_airflow.optimizer.transcripts import (
    NO_EXHIBITS,
    Exhibits,
    ItemNumber,
    item_ids_of,
    numbers_of,
    outcomes_section,
    trajectories_section,
)

Tries = tuple[Rollout, ...]
"""The scored rollouts of one item, the lowest score first."""


class Minibatch(Value):
    """Rollouts with the same outcome for one reflection call; all samples of an item are adjacent."""

    source_type: SourceType
    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def name(self) -> str:
        return f"{self.source_type}-{self.index}"

    @property
    def items(self) -> list[Tries]:
        return [tuple(samples) for _, samples in groupby(self.rollouts, key=_item_id)]

    @property
    def halves(self) -> "list[Minibatch]":
        """The minibatch divided in two; only itself if it has one item."""
        items = self.items
        parts = [part for part in (items[: len(items) // 2], items[len(items) // 2 :]) if part]
        return [
            self.model_copy(update={"rollouts": tuple(one for samples in part for one in samples)}) for part in parts
        ]

    @property
    def repeats(self) -> bool:
        return len(self.items) < len(self.rollouts)


def minibatches(slices: Sequence[Sequence[Rollout]], size: int, seed: str, failure_only: bool) -> list[Minibatch]:
    """Shuffle each slice's items by seed, and divide failures and successes into minibatches of `size` items.

    Failures come first. All scored rollouts of an item are in the same minibatch (see `by_outcome`). Indices continue
    over slices, so another slice doesn't change earlier minibatches. The order of a slice's items doesn't matter.
    """
    cut: list[Minibatch] = []
    used: dict[SourceType, int] = {"failure": 0, "success": 0}
    for rollouts in slices:
        for source_type, group in by_outcome(rollouts).items():
            if failure_only and source_type == "success":
                continue
            random.Random(f"{seed}-{source_type}").shuffle(group)  # noqa: S311 - a shuffle, not a secret
            for start in range(0, len(group), size):
                part = tuple(rollout for samples in group[start : start + size] for rollout in samples)
                cut.append(Minibatch(source_type=source_type, index=used[source_type], rollouts=part))
                used[source_type] += 1
    return cut


def by_outcome(rollouts: Sequence[Rollout]) -> dict[SourceType, list[Tries]]:
    """Return failed and successful items, sorted by id, without unscored rollouts.

    An item with several samples is a failure if any of them failed: a success and a failure are worth comparing.
    """
    scores: defaultdict[str, list[tuple[Score, Rollout]]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.score is not None:
            scores[_item_id(rollout)].append((rollout.score, rollout))
    groups: dict[SourceType, list[Tries]] = {"failure": [], "success": []}
    for _, samples in sorted(scores.items()):
        samples.sort(key=lambda one: (one[0].hard, one[0].soft))
        groups["failure" if is_failure(samples[0][0]) else "success"].append(tuple(rollout for _, rollout in samples))
    return groups


def _item_id(rollout: Rollout) -> str:
    return rollout.trajectory.item_id


_MAX_AS_SCORED = 3
"""Limit of patterns from the scorer's feedback: most feedback is about one item, and later steps read all patterns."""
ReflectStage = Literal["reflect", "reflect_skill_aware", "reflect_rewrite"]


class ReflectContext(Value):
    """The input that all reflection calls of a step share."""

    skill: str
    budget: int | None
    """Limit of edits per answer; None means no limit."""
    room: int
    """Limit of characters per call."""
    buffer: StepBuffer
    meta_skill: str
    """The optimizer's memory of earlier epochs; may be empty."""
    rounds: int
    """Number of answers per analyst: 1 is only a draft, and each additional one corrects the previous answer."""


ItemNumbers = Annotated[list[ItemNumber], Field(default_factory=list, description="Numbers of the items.")]


class NumberedEdit(ProposedEdit):
    items: ItemNumbers


class ProposedPattern(ModelAnswer):
    """A failure pattern as a model writes it."""

    description: str
    items: ItemNumbers


class BriefReflection(ModelAnswer):
    """The answer of a small model, or of one whose first answer was too long."""

    rules: list[str] = Field(description="Rules to add to the skill.")

    @property
    def edits(self) -> list[NumberedEdit]:
        """The rules as edits that append them to the skill."""
        lines = (one_line(rule).removeprefix("- ") for rule in self.rules)
        return [NumberedEdit(op="append", content=f"- {line}", items=[]) for line in lines if line]


class Reflection(ModelAnswer):
    """The answer of a reflection call."""

    reasoning: str = Field(default="", description="The cause of each failure, or success, before any edit.")
    edits: list[NumberedEdit] = Field(default_factory=list)
    failure_patterns: list[ProposedPattern] = Field(default_factory=list)


class SkillAwareReflection(Reflection):
    """The answer of a call that distinguishes defects of the skill from lapses in its execution."""

    notes: list[str] = Field(
        default_factory=list, description="Reminders of instructions of the skill that the target did not follow."
    )


class Rewriting(ModelAnswer):
    """The answer of a call that writes a new body."""

    reasoning: str = Field(default="", description="The cause of each failure, or success, before the new text.")
    body: str = Field(description="The whole new text of the skill before its first protected region.")
    rationale: str = Field(default="", description="What changed and why, in one or two sentences.")
    failure_patterns: list[ProposedPattern] = Field(default_factory=list)


Answer = Reflection | Rewriting | BriefReflection
_ANSWERS: dict[ReflectStage, tuple[type[Answer], type[Answer]]] = {
    "reflect": (Reflection, BriefReflection),
    "reflect_skill_aware": (SkillAwareReflection, BriefReflection),
    "reflect_rewrite": (Rewriting, Rewriting),
}
"""The answer type of each kind of call, and the type to ask for if an answer was cut at the token limit."""


def reflect(
    optimizer: Optimizer,
    context: ReflectContext,
    minibatch: Minibatch,
    rules: OptimizerGroup,
    exhibits: Exhibits = NO_EXHIBITS,
) -> Patch:
    """Ask for the causes of failures or successes and for edits, in a draft and its corrections.

    Unusable parts of an answer are left out and listed in the patch's fallback. If a minibatch is too long for the
    model, its halves get separate calls. If the answer names no failure pattern, the scorer's feedback replaces it.
    """
    analyst = _Analyst(optimizer, context, minibatch, rules, exhibits)
    try:
        patch = analyst.patch()
    except PromptTooLong as error:
        halves = minibatch.halves
        if len(halves) == 1:
            return Patch(fallback=fallback_text(analyst.name, [str(error)]))
        first, second = (reflect(optimizer, context, half, rules, exhibits) for half in halves)
        return Patch(
            edits=first.edits + second.edits,
            failure_patterns=first.failure_patterns + second.failure_patterns,
            notes=first.notes + second.notes,
            fallback=join_fallbacks(first.fallback, second.fallback),
        )
    if patch.failure_patterns or minibatch.source_type == "success":
        return patch
    return patch.model_copy(update={"failure_patterns": _as_scored(minibatch)})


@dataclass(frozen=True)
class _Analyst:
    """One reflection on a minibatch: a draft, and corrections of it."""

    optimizer: Optimizer
    context: ReflectContext
    minibatch: Minibatch
    rules: OptimizerGroup
    exhibits: Exhibits

    @cached_property
    def numbers(self) -> dict[str, int]:
        return numbers_of(self.minibatch.rollouts)

    @property
    def stage(self) -> ReflectStage:
        if self.rules.skill_update_mode == "full_rewrite_minibatch":
            return "reflect_rewrite"
        return "reflect_skill_aware" if self.rules.use_skill_aware_reflection else "reflect"

    @property
    def name(self) -> str:
        return f"{self.stage} {self.minibatch.name}"

    def patch(self) -> Patch:
        """Return the patch of the last usable answer; raise PromptTooLong if the first prompt is too long."""
        # Two calls about halves of a minibatch show more than one call with a shortened prompt.
        least = MIN_ROOM if len(self.minibatch.halves) == 1 else self.context.room
        try:
            answer, cut = self._ask("", None, least)
        except PromptTooLong:
            raise
        except ModelOutputError as error:
            return Patch(fallback=fallback_text(self.name, [str(error)]))
        flaws = ["the answer was cut at the token limit, and a shorter one taken"] if cut else []
        for _ in range(1, self.context.rounds):
            draft = answer
            try:
                answer, _ = self._ask(load_prompt("second_look"), draft, MIN_ROOM)
            except ModelOutputError as error:
                flaws.append(f"the draft stays: {error}")
                break
            if answer == draft:
                break
        patch = self._usable(answer)
        return patch.model_copy(update={"fallback": join_fallbacks(fallback_text(self.name, flaws), patch.fallback)})

    def _ask(self, further: str, draft: Answer | None, least: int) -> tuple[Answer, bool]:
        several = load_prompt("several_samples") if self.minibatch.repeats else ""
        answer_type, shorter = _ANSWERS[self.stage]
        has_brief = shorter is BriefReflection and self.minibatch.source_type == "failure"
        question = Question(
            self.stage,
            load_prompt(self.stage) + several + further,
            partial(self._prompt, "" if draft is None else json_section("draft", draft.model_dump(mode="json"))),
            self.exhibits.labeled_pictures(self.numbers),
            Question("reflect_brief", load_prompt("reflect_brief"), self._brief_prompt) if has_brief else None,
        )
        return ask_fitting(self.optimizer, question, self.context.room, answer_type, shorter, least)

    def _prompt(self, draft: str, room: int) -> str:
        context = self.context
        first = (
            section("skill", context.skill),
            "" if self.stage == "reflect_rewrite" else budget_section(context.budget),
            section("outcome", self.minibatch.source_type),
        )
        last = (buffer_section(context.buffer), draft, meta_skill_section(context.meta_skill))
        left = room - sum(map(len, (*first, *last)))
        return prompt_of(*first, trajectories_section(self.minibatch.rollouts, left, self.exhibits), *last)

    def _brief_prompt(self, room: int) -> str:
        first = section("skill", self.context.skill), budget_section(self.context.budget)
        return prompt_of(*first, outcomes_section(self.minibatch.rollouts, room - sum(map(len, first))))

    def _usable(self, answer: Answer) -> Patch:
        edits, edit_flaws = self._edits(answer)
        patterns, pattern_flaws = _without_flaws(
            "failure pattern",
            () if isinstance(answer, BriefReflection) else answer.failure_patterns,
            lambda pattern: flaw_of(pattern.description, MAX_SENTENCES_CHARS),
        )
        takes_notes = self.rules.skill_aware_appendix_source in ("both", self.minibatch.source_type)
        proposed = answer.notes if isinstance(answer, SkillAwareReflection) and takes_notes else ()
        notes, note_flaws = _without_flaws("note", proposed, flaw_of_note)
        return Patch(
            edits=tuple(edits),
            failure_patterns=tuple(
                FailurePattern(description=pattern.description, item_ids=item_ids_of(self.numbers, pattern.items))
                for pattern in patterns
            ),
            notes=tuple(Note(text=one_line(text), minibatch=self.minibatch.name) for text in notes),
            fallback=fallback_text(self.name, [*edit_flaws, *pattern_flaws, *note_flaws]),
        )

    def _edits(self, answer: Answer) -> tuple[list[Edit], list[str]]:
        """Return the usable edits of an answer, and the flaws of the others."""
        source = {"source_type": self.minibatch.source_type, "minibatches": (self.minibatch.name,)}
        if isinstance(answer, Rewriting):
            # Applying the edit removes the markers and reports it.
            if flaw := flaw_of(without_markers(answer.body), MAX_SKILL_CHARS):
                return [], [f"the body {flaw}"]
            rationale = clipped(answer.rationale, MAX_SENTENCES_CHARS)
            return [Edit(op="rewrite", content=answer.body, rationale=rationale, **source)], []
        kept, flaws = sift(answer.edits, SkillDocument(self.context.skill), self.context.budget)
        edits: list[Edit] = []
        for proposed in kept:
            item_ids = item_ids_of(self.numbers, proposed.items)
            wording, support = proposed.model_dump(exclude={"items"}), max(1, len(item_ids))
            edits.append(Edit(**wording, **source, item_ids=item_ids, support_count=support))
        return edits, flaws


def _as_scored(minibatch: Minibatch) -> tuple[FailurePattern, ...]:
    """Return the scorer's most frequent feedback on failures, with the affected items."""
    about: defaultdict[str, list[str]] = defaultdict(list)
    for rollout in minibatch.rollouts:
        if rollout.score is not None and is_failure(rollout.score) and rollout.score.feedback.strip():
            about[clipped(rollout.score.feedback)].append(rollout.trajectory.item_id)
    frequent = sorted(about.items(), key=lambda entry: -len(entry[1]))[:_MAX_AS_SCORED]
    return tuple(
        FailurePattern(description=words, item_ids=tuple(dict.fromkeys(item_ids))) for words, item_ids in frequent
    )


Entry = TypeVar("Entry")


def _without_flaws(
    kind: str, proposed: Sequence[Entry], flaw_in: Callable[[Entry], str]
) -> tuple[list[Entry], list[str]]:
    """Return the usable ones of the first MAX_ENTRIES entries, and the flaws of the others."""
    entries = [(entry, flaw_in(entry)) for entry in proposed[:MAX_ENTRIES]]
    flaws = [f"a {kind} {flaw}" for _, flaw in entries if flaw]
    if len(proposed) > MAX_ENTRIES:
        flaws.append(f"{len(proposed)} {kind}s, {MAX_ENTRIES} are allowed")
    return [entry for entry, flaw in entries if not flaw], flaws
