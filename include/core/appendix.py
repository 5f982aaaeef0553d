"""The notes of skill-aware reflection, as lines of the skill's protected appendix."""

from collections.abc import Sequence

from include.core.skill import SkillDocument
from include.core.types import Edit, Note

_BULLET = "- "


def notes_of(document: SkillDocument) -> tuple[str, ...]:
    """The notes in the appendix, in their order."""
    inside = document.region("APPENDIX")
    lines = inside.split("\n") if inside else []
    return tuple(line.removeprefix(_BULLET) for line in lines if line.startswith(_BULLET))


def note_edits(document: SkillDocument, notes: Sequence[Note]) -> tuple[Edit, ...]:
    """An edit for each note that is not there yet, so that every line keeps its own minibatch."""
    present = list(notes_of(document))
    edits: list[Edit] = []
    for note in notes:
        if _meaning(note.text) not in map(_meaning, present):
            present.append(note.text)
            edits.append(_region(present, (note.minibatch,)))
    return tuple(edits)


def consolidated_edit(notes: Sequence[Note]) -> Edit:
    """The whole appendix anew."""
    minibatches = tuple(dict.fromkeys(name for note in notes for name in note.minibatch.split(", ")))
    return _region([note.text for note in notes], minibatches)


def _region(notes: Sequence[str], minibatches: tuple[str, ...]) -> Edit:
    inside = "\n".join(f"{_BULLET}{' '.join(note.split())}" for note in notes)
    failed = any(name.startswith("failure") for name in minibatches)
    return Edit(
        op="region",
        anchor="APPENDIX",
        content=inside,
        source_type="failure" if failed else "success",
        minibatches=minibatches,
    )


def _meaning(note: str) -> str:
    return " ".join(note.casefold().split())
