"""For every line of a skill, the edit that wrote it, kept through merges, rewrites and slow updates."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from include.core.edits import EditApplyReport, EditReport
from include.core.skill import SkillDocument, Span
from include.core.types import SourceType, Value


class LineOrigin(Value):
    """Where a line comes from."""

    moment: str
    """Name of the moment that wrote it; the seed's is the first one's."""
    edit: int | None = None
    """Index in that moment's apply report; None for a line of the seed."""
    op: str = ""
    source_type: SourceType | None = None
    minibatches: tuple[str, ...] = ()
    """The minibatches that proposed the edit."""


class LinesOfSkill(Value):
    """A skill's origins as they are stored: one for each of `text.split("\\n")`, so a last newline ends in an entry."""

    lines: tuple[LineOrigin, ...]


def seed_lines(document: SkillDocument, moment: str) -> tuple[LineOrigin, ...]:
    """The origins of a skill that nothing has been done to."""
    return (LineOrigin(moment=moment),) * (document.text.count("\n") + 1)


def trace(
    before: SkillDocument, origins: Sequence[LineOrigin], report: EditApplyReport, moment: str
) -> tuple[LineOrigin, ...]:
    """The origins after the report's edits, by replaying what each of them did.

    A line that an edit changed anywhere is that edit's; one that it left as it was, or only moved, keeps its origin.
    """
    document, lines = before, list(origins)
    for row in report.rows:
        if row.position is None:
            continue
        changed = document.spliced(Span(row.position, row.position + len(row.removed)), row.inserted)
        lines = _after(document, changed, lines, row, moment)
        document = changed
    return tuple(lines)


def _after(
    before: SkillDocument, after: SkillDocument, origins: list[LineOrigin], row: EditReport, moment: str
) -> list[LineOrigin]:
    start = row.position if row.position is not None else 0
    first = before.text.count("\n", 0, start)
    last = first + row.removed.count("\n")
    old = before.text.split("\n")[first : last + 1]
    new = after.text.split("\n")[first : first + row.inserted.count("\n") + 1]
    written = LineOrigin(
        moment=moment,
        edit=row.index,
        op=row.edit.op,
        source_type=row.edit.source_type,
        minibatches=row.edit.minibatches,
    )
    touched = [written] * len(new)
    for block in SequenceMatcher(a=old, b=new, autojunk=False).get_matching_blocks():
        touched[block.b : block.b + block.size] = origins[first + block.a : first + block.a + block.size]
    return [*origins[:first], *touched, *origins[last + 1 :]]
