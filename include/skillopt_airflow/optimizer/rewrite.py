"""Rewriting the skill's body from selected edits (rewrite_from_suggestions), and consolidating its appendix."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.run.state import StepBuffer
from skillopt_airflow.core.values.edits import apply_edits, consolidated_edit, note_edits, notes_of
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.skill import SkillDocument, without_markers
from skillopt_airflow.core.values.types import Edit, Note, Patch
from skillopt_airflow.optimizer.answers import (
    MAX_SENTENCES_CHARS,
    MAX_SKILL_CHARS,
    ModelAnswer,
    check_text,
    clipped,
    fallback_text,
    flaw_of_note,
    one_line,
)
from skillopt_airflow.optimizer.proposals import unite
from skillopt_airflow.optimizer.sections import (
    buffer_section,
    edits_section,
    json_section,
    load_prompt,
    prompt_of,
    section,
)


class UnitedNote(ModelAnswer):
    """A note as a model writes it."""

    text: str
    sources: list[int] = Field(min_length=1, description="Indices of the notes that this one unites.")


class ConsolidatedNotes(ModelAnswer):
    """The answer of a consolidate call."""

    notes: list[UnitedNote]


def consolidate(optimizer: Optimizer, skill: str, notes: Sequence[Note], most: int) -> tuple[Sequence[Note], str]:
    """Ask for `most` notes that say the same; return them and a fallback with the flaws of the answer.

    No note is lost: notes that the answer omits stay unchanged, and all do if the answer doesn't reduce their number.
    """
    prompt = prompt_of(
        section("skill", skill), json_section("notes", [note.text for note in notes]), section("most", str(most))
    )
    try:
        answer = optimizer.ask("consolidate", load_prompt("consolidate"), prompt, ConsolidatedNotes)
    except ModelOutputError as error:
        return notes, fallback_text("consolidate", [str(error)])
    united, flaws = _united(answer.notes, notes)
    if len(united) > most:
        flaws.append(f"{len(united)} notes are left, {most} are allowed")
    return united if len(united) < len(notes) else notes, fallback_text("consolidate", flaws)


def appendix_patch(optimizer: Optimizer, skill: SkillDocument, notes: Sequence[Note], most: int) -> Patch:
    """Return the new notes as edits of the appendix.

    It is consolidated if it would have more than `most`; 0 means no limit.
    """
    edits = note_edits(skill, notes)
    if not edits or not 0 < most < len(notes_of(apply_edits(skill, edits)[0])):
        return Patch(edits=edits)
    present = (Note(text=text, minibatch="appendix") for text in notes_of(skill))
    united, fallback = consolidate(optimizer, skill.text, (*present, *notes), most)
    return Patch(edits=(consolidated_edit(skill, united),), fallback=fallback)


def _united(answer: Sequence[UnitedNote], notes: Sequence[Note]) -> tuple[list[Note], list[str]]:
    """Return the answer's notes, then those that it omits, and its flaws."""
    united: list[Note] = []
    flaws: list[str] = []
    used: set[int] = set()
    for proposed in answer:
        # A source counts once; two notes from one source would increase the number.
        sources = [index for index in dict.fromkeys(proposed.sources) if 0 <= index < len(notes) and index not in used]
        flaw = flaw_of_note(proposed.text) if sources else "has no separate source"
        if flaw:
            flaws.append(f"a note {flaw}")
            continue
        used.update(sources)
        minibatches = dict.fromkeys(name for index in sources for name in notes[index].minibatch.split(", "))
        united.append(Note(text=one_line(proposed.text), minibatch=", ".join(minibatches)))
    left_out = [note for index, note in enumerate(notes) if index not in used]
    if left_out:
        flaws.append(f"not in the answer, so kept: {len(left_out)}")
    return [*united, *left_out], flaws


class RewrittenBody(ModelAnswer):
    """The answer of a call that writes a new body from edits or from several bodies."""

    body: str = Field(description="The whole new text of the skill before its first protected region.")


def rewrite(optimizer: Optimizer, skill: str, patch: Patch, buffer: StepBuffer) -> Patch:
    """Replace all edits of the patch by one that rewrites the body.

    `buffer` has the earlier attempts of the epoch. If the answer is unusable, the edits stay, to be applied one by one,
    and the patch's fallback gives the cause.
    """
    if not patch.edits:
        return patch
    prompt = prompt_of(section("skill", skill), edits_section(patch.edits), buffer_section(buffer))
    try:
        body = optimizer.ask("rewrite", load_prompt("rewrite"), prompt, RewrittenBody).body
        # Applying the edit removes the markers and reports it.
        check_text("the body", without_markers(body), MAX_SKILL_CHARS)
    except ModelOutputError as error:
        return patch.also(fallback_text("rewrite", [str(error)]))
    reasons = " ".join(edit.rationale for edit in patch.edits if edit.rationale)
    wording = Edit(op="rewrite", content=body, rationale=clipped(reasons, MAX_SENTENCES_CHARS))
    support = max(edit.support_count for edit in patch.edits)
    edit = unite(wording, patch.edits).model_copy(update={"support_count": support})
    return patch.model_copy(update={"edits": (edit,)})
