"""Reflect: minibatches of trajectories, cut from the rollouts of a step, become patches (paper section 3.3)."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field

from skillopt_airflow.core.config.training_groups import OptimizerGroup
from skillopt_airflow.core.errors import ModelOutputError, PromptTooLong
from skillopt_airflow.core.gate.item_scores import is_failure
from skillopt_airflow.core.run.state import StepBuffer
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.skill import SkillDocument, without_markers
from skillopt_airflow.core.values.types import Edit, FailurePattern, Note, Patch, Rollout, Score, SourceType, Value
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import (
    MAX_ENTRIES,
    MAX_SENTENCES_CHARS,
    MAX_SKILL_CHARS,
    ModelAnswer,
    clipped,
    flaw_of,
    flaw_of_note,
    joined,
    one_line,
    said,
)
from skillopt_airflow.optimizer.proposals import ProposedEdit, sift
from skillopt_airflow.optimizer.sections import (
    MIN_ROOM,
    Question,
    ask_fitting,
    budget_section,
    buffer_section,
    json_section,
    meta_skill_section,
    prompt_of,
    section,
)
from skillopt_airflow.optimizer.transcripts import (
    NO_EXHIBITS,
    Exhibits,
    ItemNumber,
    named,
    numbers_of,
    outcomes_section,
    trajectories_section,
)

Tries = tuple[Rollout, ...]
"""The scored rollouts of one item, the lowest score first."""


class Minibatch(Value):
    """Rollouts of items of one outcome that one call reflects on; the tries of an item are in a row."""

    source_type: SourceType
    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def name(self) -> str:
        return f"{self.source_type}-{self.index}"

    @property
    def items(self) -> list[Tries]:
        return [tuple(tries) for _, tries in groupby(self.rollouts, key=_item_id)]

    @property
    def halves(self) -> "list[Minibatch]":
        """Its items in two parts; itself if it has one item."""
        items = self.items
        parts = [part for part in (items[: len(items) // 2], items[len(items) // 2 :]) if part]
        return [self.model_copy(update={"rollouts": tuple(one for tries in part for one in tries)}) for part in parts]

    @property
    def repeats(self) -> bool:
        return len(self.items) < len(self.rollouts)


def minibatches(slices: Sequence[Sequence[Rollout]], size: int, seed: str, failure_only: bool) -> list[Minibatch]:
    """Shuffle each slice's items by seed and cut them, `size` in a minibatch, failures and successes apart.

    Failures come first. An item is in one minibatch with all its scored rollouts, see `by_outcome`. Indices run on from
    slice to slice, so a further slice changes nothing about the minibatches before it. The result does not depend on
    the order in which the items of a slice arrive. With `failure_only` successes are left out.
    """
    cut: list[Minibatch] = []
    used: dict[SourceType, int] = {"failure": 0, "success": 0}
    for rollouts in slices:
        for source_type, group in by_outcome(rollouts).items():
            if failure_only and source_type == "success":
                continue
            random.Random(f"{seed}-{source_type}").shuffle(group)  # noqa: S311 - a shuffle, not a secret
            for start in range(0, len(group), size):
                part = tuple(rollout for tries in group[start : start + size] for rollout in tries)
                cut.append(Minibatch(source_type=source_type, index=used[source_type], rollouts=part))
                used[source_type] += 1
    return cut


def by_outcome(rollouts: Sequence[Rollout]) -> dict[SourceType, list[Tries]]:
    """Return the items that failed and those that succeeded, by id; rollouts without a score are left out.

    An item that was tried several times is a failure if the mean of its hard scores is below 1: won and lost, it has
    something to compare. Of equal scores the tries keep their order.
    """
    scores: defaultdict[str, list[tuple[Score, Rollout]]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.score is not None:
            scores[_item_id(rollout)].append((rollout.score, rollout))
    groups: dict[SourceType, list[Tries]] = {"failure": [], "success": []}
    for _, tries in sorted(scores.items()):
        tries.sort(key=lambda one: (one[0].hard, one[0].soft))
        # No score is above 1, so that the mean is below 1 if the lowest is.
        groups["failure" if is_failure(tries[0][0]) else "success"].append(tuple(rollout for _, rollout in tries))
    return groups


def _item_id(rollout: Rollout) -> str:
    return rollout.trajectory.item_id


_MAX_AS_SCORED = 3
"""Patterns in the scorer's words: most feedback is about one item alone, and later steps read all of it."""
ReflectStage = Literal["reflect", "reflect_skill_aware", "reflect_rewrite"]


class ReflectContext(Value):
    """The input that all reflection calls of a step share, besides their trajectories."""

    skill: str
    budget: int | None
    """Most edits of an answer; None is no limit."""
    room: int
    """Most characters of a call."""
    buffer: StepBuffer
    meta_skill: str
    """The optimizer's memory of earlier epochs; may be empty."""
    rounds: int
    """Times that an analyst answers: 1 is a draft alone, each further one corrects what came before."""


ItemNumbers = Annotated[list[ItemNumber], Field(default_factory=list, description="Numbers of the items.")]


class NumberedEdit(ProposedEdit):
    """An edit with the items that it would have helped."""

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
        """The rules, each at the end of the skill."""
        lines = (one_line(rule).removeprefix("- ") for rule in self.rules)
        return [NumberedEdit(op="append", content=f"- {line}", items=[]) for line in lines if line]


class Reflection(ModelAnswer):
    """The answer of a reflection call."""

    reasoning: str = Field(default="", description="The cause of each failure, or success, before any edit.")
    edits: list[NumberedEdit] = Field(default_factory=list)
    failure_patterns: list[ProposedPattern] = Field(default_factory=list)


class SkillAwareReflection(Reflection):
    """The answer of a call that tells defects of the skill from lapses of its execution."""

    notes: list[str] = Field(
        default_factory=list, description="Reminders of what the skill already says and the target did not do."
    )


class Rewriting(ModelAnswer):
    """The answer of a call that writes the skill's body anew."""

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
"""The answer of each kind of call, and the one to ask for if that was cut at the token limit."""


def reflect(
    optimizer: Optimizer,
    context: ReflectContext,
    minibatch: Minibatch,
    rules: OptimizerGroup,
    exhibits: Exhibits = NO_EXHIBITS,
) -> Patch:
    """Ask in a call of the configured kind what went wrong (or right) and what to change, and have that corrected.

    An unusable answer proposes nothing; unusable parts of an answer are left out. The patch's fallback says so.
    If a minibatch is too long for the model, its halves are asked about. If the answer names no pattern of failures,
    the scorer's words take its place.
    """
    analyst = _Analyst(optimizer, context, minibatch, rules, exhibits)
    try:
        patch = analyst.patch()
    except PromptTooLong as error:
        halves = minibatch.halves
        if len(halves) == 1:
            return Patch(fallback=said(analyst.name, [str(error)]))
        first, second = (reflect(optimizer, context, half, rules, exhibits) for half in halves)
        return Patch(
            edits=first.edits + second.edits,
            failure_patterns=first.failure_patterns + second.failure_patterns,
            notes=first.notes + second.notes,
            fallback=joined(first.fallback, second.fallback),
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
        """Return what the last usable answer proposes; raise PromptTooLong if there is none for its prompt's length."""
        # Halves of a minibatch say more than a prompt that is cut down.
        least = MIN_ROOM if len(self.minibatch.halves) == 1 else self.context.room
        try:
            answer, cut = self._ask("", None, least)
        except PromptTooLong:
            raise
        except ModelOutputError as error:
            return Patch(fallback=said(self.name, [str(error)]))
        flaws = ["the answer was cut at the token limit, and a shorter one taken"] if cut else []
        for _ in range(1, self.context.rounds):
            draft = answer
            try:
                answer, _ = self._ask(prompts.load("second_look"), draft, MIN_ROOM)
            except ModelOutputError as error:
                flaws.append(f"the draft stays: {error}")
                break
            if answer == draft:
                break
        patch = self._usable(answer)
        return patch.model_copy(update={"fallback": joined(said(self.name, flaws), patch.fallback)})

    def _ask(self, further: str, draft: Answer | None, least: int) -> tuple[Answer, bool]:
        several = prompts.load("several_tries") if self.minibatch.repeats else ""
        answer_type, shorter = _ANSWERS[self.stage]
        has_brief = shorter is BriefReflection and self.minibatch.source_type == "failure"
        question = Question(
            self.stage,
            prompts.load(self.stage) + several + further,
            partial(self._prompt, "" if draft is None else json_section("draft", draft.model_dump(mode="json"))),
            self.exhibits.labelled(self.numbers),
            Question("reflect_brief", prompts.load("reflect_brief"), self._brief_prompt) if has_brief else None,
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
        if isinstance(answer, Rewriting):
            return self._rewritten(answer)
        takes_notes = self.rules.skill_aware_appendix_source in ("both", self.minibatch.source_type)
        notes = answer.notes if isinstance(answer, SkillAwareReflection) and takes_notes else ()
        named_patterns = answer.failure_patterns if isinstance(answer, Reflection) else ()
        kept, edit_flaws = sift(answer.edits, SkillDocument(self.context.skill), self.context.budget)
        patterns, pattern_flaws = self._patterns(named_patterns)
        kept_notes, note_flaws = _notes(notes, self.minibatch)
        return Patch(
            edits=tuple(map(self._edit, kept)),
            failure_patterns=patterns,
            notes=kept_notes,
            fallback=said(self.name, [*edit_flaws, *pattern_flaws, *note_flaws]),
        )

    def _edit(self, proposed: NumberedEdit) -> Edit:
        item_ids = named(self.numbers, proposed.items)
        return Edit(
            **proposed.model_dump(exclude={"items"}),
            source_type=self.minibatch.source_type,
            minibatches=(self.minibatch.name,),
            item_ids=item_ids,
            support_count=max(1, len(item_ids)),
        )

    def _rewritten(self, answer: Rewriting) -> Patch:
        patterns, flaws = self._patterns(answer.failure_patterns)
        # Applying the edit takes the markers out, and its report says so.
        flaw = flaw_of(without_markers(answer.body), MAX_SKILL_CHARS)
        if flaw:
            return Patch(failure_patterns=patterns, fallback=said(self.name, [f"the body {flaw}", *flaws]))
        edit = Edit(
            op="rewrite",
            content=answer.body,
            rationale=clipped(answer.rationale, MAX_SENTENCES_CHARS),
            source_type=self.minibatch.source_type,
            minibatches=(self.minibatch.name,),
        )
        return Patch(edits=(edit,), failure_patterns=patterns, fallback=said(self.name, flaws))

    def _patterns(self, proposed: Sequence[ProposedPattern]) -> tuple[tuple[FailurePattern, ...], list[str]]:
        kept: list[FailurePattern] = []
        flaws: list[str] = []
        for pattern in proposed[:MAX_ENTRIES]:
            flaw = flaw_of(pattern.description, MAX_SENTENCES_CHARS)
            if flaw:
                flaws.append(f"a failure pattern {flaw}")
                continue
            kept.append(FailurePattern(description=pattern.description, item_ids=named(self.numbers, pattern.items)))
        if len(proposed) > MAX_ENTRIES:
            flaws.append(f"{len(proposed)} failure patterns, {MAX_ENTRIES} are allowed")
        return tuple(kept), flaws


def _as_scored(minibatch: Minibatch) -> tuple[FailurePattern, ...]:
    """Return the scorer's most frequent words on the failures, with the items that they are about."""
    about: defaultdict[str, list[str]] = defaultdict(list)
    for rollout in minibatch.rollouts:
        if rollout.score is not None and is_failure(rollout.score) and rollout.score.feedback.strip():
            about[clipped(rollout.score.feedback)].append(rollout.trajectory.item_id)
    frequent = sorted(about.items(), key=lambda entry: -len(entry[1]))[:_MAX_AS_SCORED]
    return tuple(
        FailurePattern(description=words, item_ids=tuple(dict.fromkeys(item_ids))) for words, item_ids in frequent
    )


def _notes(proposed: Sequence[str], minibatch: Minibatch) -> tuple[tuple[Note, ...], list[str]]:
    kept: list[Note] = []
    flaws: list[str] = []
    for text in proposed[:MAX_ENTRIES]:
        flaw = flaw_of_note(text)
        if flaw:
            flaws.append(f"a note {flaw}")
        else:
            kept.append(Note(text=one_line(text), minibatch=minibatch.name))
    if len(proposed) > MAX_ENTRIES:
        flaws.append(f"{len(proposed)} notes, {MAX_ENTRIES} are allowed")
    return tuple(kept), flaws
