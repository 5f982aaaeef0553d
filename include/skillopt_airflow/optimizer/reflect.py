"""Reflect: a minibatch of trajectories becomes a patch (paper section 3.3)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from skillopt_airflow.core.buffer import StepBuffer
from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.item_scores import is_failure
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.skill import SkillDocument, without_markers
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Edit, FailurePattern, Note, Patch, Value
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import (
    MOST_ENTRIES,
    MOST_OF_SENTENCES,
    MOST_OF_SKILL,
    clipped,
    flaw_of,
    flaw_of_note,
    joined,
    one_line,
    said,
)
from skillopt_airflow.optimizer.minibatches import Minibatch
from skillopt_airflow.optimizer.model_answer import ModelAnswer
from skillopt_airflow.optimizer.proposals import ProposedEdit, sift
from skillopt_airflow.optimizer.sections import (
    budget_section,
    buffer_section,
    json_section,
    meta_skill_section,
    prompt_of,
    section,
)
from skillopt_airflow.optimizer.transcripts import NO_EXHIBITS, Exhibits, trajectories_section

_MOST_AS_SCORED = 3
"""Patterns in the scorer's words: most feedback is about one item alone, and later steps read all of it."""
ReflectStage = Literal["reflect", "reflect_skill_aware", "reflect_rewrite"]


class ReflectContext(Value):
    """The input that all reflection calls of a step share, besides their trajectories."""

    skill: str
    budget: int | None
    """Most edits of an answer; None is no limit."""
    buffer: StepBuffer
    meta_skill: str
    """The optimizer's memory of earlier epochs; may be empty."""
    rounds: int
    """Times that an analyst answers: 1 is a draft alone, each further one corrects what came before."""


class ProposedPattern(ModelAnswer):
    """A failure pattern as a model writes it."""

    description: str
    item_ids: list[Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(default_factory=list)


class Reflection(ModelAnswer):
    """The answer of a reflection call."""

    failure_patterns: list[ProposedPattern] = Field(default_factory=list)
    edits: list[ProposedEdit] = Field(default_factory=list)


class SkillAwareReflection(Reflection):
    """The answer of a call that tells defects of the skill from lapses of its execution."""

    notes: list[str] = Field(
        default_factory=list, description="Reminders of what the skill already says and the target did not do."
    )


class Rewriting(ModelAnswer):
    """The answer of a call that writes the skill's body anew."""

    failure_patterns: list[ProposedPattern] = Field(default_factory=list)
    body: str = Field(description="The whole new text of the skill before its first protected region.")
    rationale: str = Field(default="", description="What changed and why, in one or two sentences.")


_ANSWERS: dict[ReflectStage, type[Reflection] | type[Rewriting]] = {
    "reflect": Reflection,
    "reflect_skill_aware": SkillAwareReflection,
    "reflect_rewrite": Rewriting,
}


def reflect(
    optimizer: Optimizer,
    context: ReflectContext,
    minibatch: Minibatch,
    rules: OptimizerGroup,
    exhibits: Exhibits = NO_EXHIBITS,
) -> Patch:
    """Ask in a call of the configured kind what went wrong (or right) and what to change, and have that corrected.

    An unusable answer proposes nothing; unusable parts of an answer are left out. The patch's fallback says so.
    Failures of which the answer names no pattern are told in the scorer's words.
    """
    patch = _answered(optimizer, context, minibatch, rules, exhibits)
    if patch.failure_patterns or minibatch.source_type == "success":
        return patch
    return patch.model_copy(update={"failure_patterns": _as_scored(minibatch)})


def _answered(
    optimizer: Optimizer,
    context: ReflectContext,
    minibatch: Minibatch,
    rules: OptimizerGroup,
    exhibits: Exhibits,
) -> Patch:
    """Ask for a draft and have it corrected; where a correction is unusable, the answer before it stays."""
    stage, drafts_fallback = _stage(rules), ""
    where, answer_type = f"{stage} {minibatch.name}", _ANSWERS[stage]
    instructions = prompts.load(stage) + (prompts.load("several_tries") if minibatch.repeats else "")
    shown = prompt_of(
        section("skill", context.skill),
        "" if stage == "reflect_rewrite" else budget_section(context.budget),
        section("outcome", minibatch.source_type),
        trajectories_section(minibatch.rollouts, exhibits),
        buffer_section(context.buffer),
    )
    memory, pictures = meta_skill_section(context.meta_skill), exhibits.labelled()
    try:
        answer = optimizer.ask(stage, instructions, prompt_of(shown, memory), answer_type, pictures)
    except ModelOutputError as error:
        return Patch(fallback=said(where, [str(error)]))
    for _ in range(1, context.rounds):
        draft = answer
        prompt = prompt_of(shown, json_section("draft", draft.model_dump(mode="json")), memory)
        try:
            answer = optimizer.ask(stage, instructions + prompts.load("second_look"), prompt, answer_type, pictures)
        except ModelOutputError as error:
            drafts_fallback = said(where, [f"the draft stays: {error}"])
            break
        if answer == draft:
            break
    patch = _usable(stage, answer, minibatch, context, rules)
    return patch.model_copy(update={"fallback": joined(drafts_fallback, patch.fallback)})


def _usable(
    stage: ReflectStage,
    answer: Reflection | Rewriting,
    minibatch: Minibatch,
    context: ReflectContext,
    rules: OptimizerGroup,
) -> Patch:
    if isinstance(answer, Rewriting):
        return _rewritten(answer, minibatch)
    takes_notes = rules.skill_aware_appendix_source in ("both", minibatch.source_type)
    notes = answer.notes if isinstance(answer, SkillAwareReflection) and takes_notes else ()
    return _patch(stage, answer, notes, minibatch, context)


def _stage(rules: OptimizerGroup) -> ReflectStage:
    if rules.skill_update_mode == "full_rewrite_minibatch":
        return "reflect_rewrite"
    return "reflect_skill_aware" if rules.use_skill_aware_reflection else "reflect"


def _rewritten(answer: Rewriting, minibatch: Minibatch) -> Patch:
    """Return a patch of one edit that replaces the body."""
    patterns, flaws = _patterns(answer.failure_patterns, minibatch)
    # Applying the edit takes the markers out, and its report says so.
    flaw = flaw_of(without_markers(answer.body), MOST_OF_SKILL)
    if flaw:
        fallback = said(f"reflect_rewrite {minibatch.name}", [f"the body {flaw}", *flaws])
        return Patch(failure_patterns=patterns, fallback=fallback)
    edit = Edit(
        op="rewrite",
        content=answer.body,
        rationale=clipped(answer.rationale, MOST_OF_SENTENCES),
        source_type=minibatch.source_type,
        minibatches=(minibatch.name,),
    )
    fallback = said(f"reflect_rewrite {minibatch.name}", flaws)
    return Patch(edits=(edit,), failure_patterns=patterns, fallback=fallback)


def _patch(
    stage: ReflectStage, answer: Reflection, notes: Sequence[str], minibatch: Minibatch, context: ReflectContext
) -> Patch:
    kept, edit_flaws = sift(answer.edits, SkillDocument(context.skill), context.budget)
    patterns, pattern_flaws = _patterns(answer.failure_patterns, minibatch)
    kept_notes, note_flaws = _notes(notes, minibatch)
    return Patch(
        edits=tuple(
            Edit(**edit.model_dump(), source_type=minibatch.source_type, minibatches=(minibatch.name,)) for edit in kept
        ),
        failure_patterns=patterns,
        notes=kept_notes,
        fallback=said(f"{stage} {minibatch.name}", [*edit_flaws, *pattern_flaws, *note_flaws]),
    )


def _patterns(
    proposed: Sequence[ProposedPattern], minibatch: Minibatch
) -> tuple[tuple[FailurePattern, ...], list[str]]:
    """Return the patterns, with those of their items that the minibatch holds, and the answer's flaws."""
    kept: list[FailurePattern] = []
    flaws: list[str] = []
    known = {rollout.trajectory.item_id for rollout in minibatch.rollouts}
    for pattern in proposed[:MOST_ENTRIES]:
        flaw = flaw_of(pattern.description, MOST_OF_SENTENCES)
        if flaw:
            flaws.append(f"a failure pattern {flaw}")
            continue
        item_ids = tuple(item_id for item_id in dict.fromkeys(pattern.item_ids) if item_id in known)
        kept.append(FailurePattern(description=pattern.description, item_ids=item_ids))
    if len(proposed) > MOST_ENTRIES:
        flaws.append(f"{len(proposed)} failure patterns, {MOST_ENTRIES} are allowed")
    return tuple(kept), flaws


def _as_scored(minibatch: Minibatch) -> tuple[FailurePattern, ...]:
    """Return the scorer's most frequent words on the failures, with the items that they are about."""
    about: defaultdict[str, list[str]] = defaultdict(list)
    for rollout in minibatch.rollouts:
        if rollout.score is not None and is_failure(rollout.score) and rollout.score.feedback.strip():
            about[clipped(rollout.score.feedback)].append(rollout.trajectory.item_id)
    frequent = sorted(about.items(), key=lambda entry: -len(entry[1]))[:_MOST_AS_SCORED]
    return tuple(
        FailurePattern(description=words, item_ids=tuple(dict.fromkeys(item_ids))) for words, item_ids in frequent
    )


def _notes(proposed: Sequence[str], minibatch: Minibatch) -> tuple[tuple[Note, ...], list[str]]:
    kept: list[Note] = []
    flaws: list[str] = []
    for text in proposed[:MOST_ENTRIES]:
        flaw = flaw_of_note(text)
        if flaw:
            flaws.append(f"a note {flaw}")
        else:
            kept.append(Note(text=one_line(text), minibatch=minibatch.name))
    if len(proposed) > MOST_ENTRIES:
        flaws.append(f"{len(proposed)} notes, {MOST_ENTRIES} are allowed")
    return tuple(kept), flaws
