"""The edit that wrote each line of a skill, tracked through merges, rewrites and slow updates.

A text's lines are those of `text.split("\\n")`, so there is a line, usually empty, after the last newline.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.edits import EditApplyReport, EditReport, apply_edits
from skillopt_airflow.core.values.skill import SkillDocument, Span
from skillopt_airflow.core.values.types import Edit, SourceType, Value


class LineOrigin(Value):
    moment: str
    """Name of the moment that wrote the line; for lines of the seed, the first moment."""
    edit: int | None = None
    """Index in the moment's apply report; None for a line of the seed."""
    op: str = ""
    source_type: SourceType | None = None
    minibatches: tuple[str, ...] = ()
    run: str = ""
    """The moment's run; empty for the run with which the origins are stored."""


class LinesOfSkill(Document):
    lines: tuple[LineOrigin, ...]


class SkillVersion(NamedTuple):
    """A skill, and the origins of its lines."""

    skill: SkillDocument
    lines: LinesOfSkill


def revised(
    version: SkillVersion, edits: Sequence[Edit], moment: str, first: int = 0
) -> tuple[SkillVersion, EditApplyReport]:
    """Apply a moment's edits, numbered from `first` on."""
    skill, report = apply_edits(version.skill, edits, first)
    return SkillVersion(skill, LinesOfSkill(lines=trace(version.skill, version.lines.lines, report, moment))), report


def seed_lines(document: SkillDocument, moment: str) -> tuple[LineOrigin, ...]:
    return (LineOrigin(moment=moment),) * len(document.text.split("\n"))


def continue_origins(
    before: SkillDocument, origins: Sequence[LineOrigin], run: str, after: SkillDocument, moment: str
) -> tuple[LineOrigin, ...]:
    """Return the origins for `after`, a run's first skill, which is based on `before`, a skill of another run.

    Lines that `before` lacks get the origin of an unedited skill.
    """
    theirs = [origin if origin.run else origin.model_copy(update={"run": run}) for origin in origins]
    found = _same(before.text.split("\n"), after.text.split("\n"), theirs)
    return tuple(LineOrigin(moment=moment) if origin is None else origin for origin in found)


def trace(
    before: SkillDocument, origins: Sequence[LineOrigin], report: EditApplyReport, moment: str
) -> tuple[LineOrigin, ...]:
    """Return the origins after the report's edits.

    A line with any change gets the edit as its origin; lines that an edit moved or wrote again keep theirs.
    """
    document, lines = before, list(origins)
    for row in report.rows:
        if row.position is None:
            continue
        span = Span(row.position, row.position + len(row.removed))
        changed = document.spliced(span, row.inserted)
        lines = _after(document.text, changed.text, lines, span, row, moment)
        document = changed
    return tuple(lines)


def _after(
    before: str, after: str, origins: list[LineOrigin], span: Span, row: EditReport, moment: str
) -> list[LineOrigin]:
    """Return the origins after one splice, which replaced the lines from `first` to `last`."""
    first = before.count("\n", 0, span.start)
    last = first + row.removed.count("\n") + 1
    old = before.split("\n")[first:last]
    new = after.split("\n")[first : first + row.inserted.count("\n") + 1]
    # A line that starts where the splice ends comes after it; don't match it with equal lines that were removed.
    behind = int(_starts_line(before, span.end) and _starts_line(after, span.start + len(row.inserted)))
    edit = row.edit
    written = LineOrigin(
        moment=moment, edit=row.index, op=edit.op, source_type=edit.source_type, minibatches=edit.minibatches
    )
    kept = _same(old[: len(old) - behind], new[: len(new) - behind], origins[first : last - behind])
    touched = [written if origin is None else origin for origin in kept]
    return [*origins[:first], *touched, *origins[last - behind :]]


def _starts_line(text: str, position: int) -> bool:
    return position == 0 or text[position - 1] == "\n"


def _same(old: Sequence[str], new: Sequence[str], origins: Sequence[LineOrigin]) -> list[LineOrigin | None]:
    """Return the origin of an equal old line for each new line, or None; each old line is used once, in order.

    A common subsequence would lose moved lines, and takes cubic time on repeated lines.
    """
    left: dict[str, deque[LineOrigin]] = defaultdict(deque)
    for line, origin in zip(old, origins, strict=True):
        left[line].append(origin)
    return [left[line].popleft() if left[line] else None for line in new]
