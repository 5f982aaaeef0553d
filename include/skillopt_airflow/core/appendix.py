"""The notes of skill-aware reflection, as lines of the skill's protected appendix."""

import re
from collections.abc import Iterable, Sequence

from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Edit, Note

_BULLET = "- "
_BULLETS = re.compile(r"(?:[-*+•]\s+)*")
"""What a model may write before a note, which gets a bullet here."""


def notes_enter(rules: OptimizerGroup) -> bool:
    """Return whether notes enter the skill without asking the gate."""
    return rules.use_skill_aware_reflection


def notes_of(document: SkillDocument) -> tuple[str, ...]:
    """Return the notes in the appendix, which are its lines that start with "- ", in order."""
    return tuple(line.removeprefix(_BULLET).strip() for line in _lines(document) if _is_note(line))


def note_edits(document: SkillDocument, notes: Sequence[Note]) -> tuple[Edit, ...]:
    """Return an edit for each new note; each adds one line, whose origin is thus the note's own minibatch.

    They are to be applied in order. Notes that differ in case, blanks and closing punctuation alone are the same.
    """
    lines, edits = _lines(document), []
    for note in new_notes(notes, notes_of(document)):
        lines = [*lines, _line(note)]
        edits.append(_edit(lines, (note,)))
    return tuple(edits)


def consolidated_edit(document: SkillDocument, notes: Sequence[Note]) -> Edit:
    """Return the edit that replaces the notes of the appendix by these; other lines stay above them."""
    others = [line for line in _lines(document) if not _is_note(line)]
    return _edit([*others, *map(_line, new_notes(notes, ()))], notes)


def new_notes(notes: Iterable[Note], known: Iterable[str]) -> list[Note]:
    """Return the notes that are neither empty nor known nor repeated."""
    seen = {"", *map(_meaning, known)}
    new: list[Note] = []
    for note in notes:
        if _meaning(note.text) not in seen:
            seen.add(_meaning(note.text))
            new.append(note)
    return new


def _meaning(note: str) -> str:
    return _text(note.casefold()).rstrip(" .,;:!?")


def _lines(document: SkillDocument) -> list[str]:
    inside = document.region("APPENDIX")
    return inside.split("\n") if inside else []


def _is_note(line: str) -> bool:
    return line.startswith(_BULLET) and bool(line.removeprefix(_BULLET).strip())


def _line(note: Note) -> str:
    return _BULLET + _text(note.text)


def _text(note: str) -> str:
    return _BULLETS.sub("", f"{' '.join(note.split())} ", count=1).strip()


def _edit(lines: Sequence[str], notes: Sequence[Note]) -> Edit:
    minibatches = tuple(dict.fromkeys(name for note in notes for name in note.minibatch.split(", ")))
    failed = any(name.startswith("failure") for name in minibatches)
    return Edit(
        op="region",
        anchor="APPENDIX",
        content="\n".join(lines),
        support_count=max(1, len(minibatches)),
        source_type="failure" if failed else "success",
        minibatches=minibatches,
    )
