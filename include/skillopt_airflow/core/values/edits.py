"""Applying edits to a skill, the report of every change (paper section 3.4), and the notes of the appendix."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.skill import REGIONS, SkillDocument, Span, before_markers, has_marker, without_markers
from skillopt_airflow.core.values.text import flaw_of_text
from skillopt_airflow.core.values.types import Edit, Note, Value

_BULLET = "- "
_BULLETS = re.compile(r"(?:[-*+•]\s+)*")
"""Bullets that a model may write before a note; notes get their bullet here."""


def notes_of(document: SkillDocument) -> tuple[str, ...]:
    """Return the notes in the appendix (lines that start with "- "), in order."""
    return tuple(line.removeprefix(_BULLET).strip() for line in _lines(document) if _is_note(line))


def note_edits(document: SkillDocument, notes: Sequence[Note]) -> tuple[Edit, ...]:
    """Return an edit for each new note, to be applied in order; each adds a line with the note's minibatch as origin.

    Notes are equal if they differ only in case, whitespace and final punctuation.
    """
    lines, edits = _lines(document), []
    for note in new_notes(notes, notes_of(document)):
        lines = [*lines, _line(note)]
        edits.append(_edit(lines, (note,)))
    return tuple(edits)


def consolidated_edit(document: SkillDocument, notes: Sequence[Note]) -> Edit:
    others = [line for line in _lines(document) if not _is_note(line)]
    return _edit([*others, *map(_line, new_notes(notes, ()))], notes)


def new_notes(notes: Iterable[Note], known: Iterable[str]) -> list[Note]:
    """Return the notes that are neither empty nor known nor repeated."""
    unwanted, new = {"", *map(_meaning, known)}, dict[str, Note]()
    for note in notes:
        new.setdefault(_meaning(note.text), note)
    return [note for meaning, note in new.items() if meaning not in unwanted]


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


EditStatus = Literal["applied", "applied_as_append", "skipped"]


class EditReport(Value):
    """The outcome of one edit: at offset `position`, `inserted` replaced `removed`."""

    index: int
    edit: Edit
    status: EditStatus
    reason: str = ""
    position: int | None = None
    removed: str = ""
    inserted: str = ""


class EditApplyReport(Document):
    """One row per edit, in the order of application; replaying their splices turns the input into the output."""

    sha256_before: str
    sha256_after: str
    rows: tuple[EditReport, ...]

    def count(self, *statuses: EditStatus) -> int:
        return sum(row.status in statuses for row in self.rows)


class _SkipEdit(Exception):
    """Control flow inside this module: the edit can't be applied, for the reason in the message."""


_Splice = tuple[Span, str, EditStatus]
_LISTED = re.compile(r"\s*(?:[-*+]|\d+[.)])\s|\s+\S")
"""A list item, or a continuation line of one."""
_DOUBLED = re.compile(r"^(\s*[-*+] )[-*+] ", re.MULTILINE)
_NOT_FOUND = "anchor not found"
_PROTECTED = "anchor is in a protected region"


def apply_edits(skill: SkillDocument, edits: Sequence[Edit], first: int = 0) -> tuple[SkillDocument, EditApplyReport]:
    """Apply the edits in order, numbered from `first` on; the report gives the reason for each skipped edit."""
    document, rows = skill, []
    for index, edit in enumerate(edits, first):
        try:
            span, inserted, status = _SPLICES[edit.op](document, edit)
            changed = _checked(document, span, inserted, edit)
        except _SkipEdit as skip:
            rows.append(EditReport(index=index, edit=edit, status="skipped", reason=str(skip)))
            continue
        rows.append(
            EditReport(
                index=index,
                edit=edit,
                status=status,
                reason=_remark(edit, inserted, status),
                position=span.start,
                removed=document.text[span.start : span.end],
                inserted=inserted,
            )
        )
        document = changed
    return document, EditApplyReport(sha256_before=skill.sha256, sha256_after=document.sha256, rows=tuple(rows))


def _append(document: SkillDocument, edit: Edit) -> _Splice:
    end = len(document.body.rstrip("\n"))
    return Span(end, end), _on_own_lines(document, end, _content(edit)), "applied"


def _insert_after(document: SkillDocument, edit: Edit) -> _Splice:
    anchor = document.find(edit.anchor) if edit.anchor.strip() else None
    if anchor is None:
        if edit.anchor.strip() and _in_region(document, edit.anchor):
            raise _SkipEdit(_PROTECTED)
        return *_append(document, edit)[:2], "applied_as_append"
    body = next(span for span in document.editable if span.start <= anchor.start and anchor.end <= span.end)
    # An anchor with its newline ends on its own line, not on the next.
    line_end = document.text.find("\n", anchor.end - 1, body.end)
    end = line_end if line_end >= 0 else body.end
    return Span(end, end), _on_own_lines(document, end, _content(edit)), "applied"


def _replace(document: SkillDocument, edit: Edit) -> _Splice:
    # Without content it is a deletion, which also removes the emptied line.
    if not edit.content.strip():
        return _delete(document, edit)
    span = _anchor(document, edit)
    own = document.text[span.start : span.end]
    # The content is stripped of outer newlines, so the anchor's outer newlines stay.
    before, behind = len(own) - len(own.lstrip("\n")), len(own) - len(own.rstrip("\n"))
    return Span(span.start + before, span.end - behind), _content(edit), "applied"


def _delete(document: SkillDocument, edit: Edit) -> _Splice:
    span = _anchor(document, edit)
    starts_line = span.start == 0 or document.text[span.start - 1] == "\n"
    ends_line = document.text[span.start : span.end].endswith("\n")
    if starts_line and not ends_line and document.text[span.end : span.end + 1] == "\n":
        span = Span(span.start, span.end + 1)
    return span, "", "applied"


def _rewrite(document: SkillDocument, edit: Edit) -> _Splice:
    """Replace only the body; the blank lines before a region, or the last newline, stay."""
    end = len(document.body.rstrip("\r\n"))
    tail = "" if document.text.startswith(("\n", "\r\n"), end) else "\n"
    # The body ends where the regions begin, so copies of them are dropped.
    content = before_markers(edit.content)
    return Span(0, end), _content(edit.model_copy(update={"content": content})) + tail, "applied"


def _region(document: SkillDocument, edit: Edit) -> _Splice:
    if edit.anchor not in REGIONS:
        raise _SkipEdit(f"no such region; there are {', '.join(REGIONS)}")
    # Newlines around a copied marker aren't part of the region's text.
    inside = without_markers(edit.content).strip("\n") if has_marker(edit.content) else edit.content
    return *document.region_splice(edit.anchor, inside), "applied"


_SPLICES: dict[str, Callable[[SkillDocument, Edit], _Splice]] = {
    "append": _append,
    "insert_after": _insert_after,
    "replace": _replace,
    "delete": _delete,
    "rewrite": _rewrite,
    "region": _region,
}


def _content(edit: Edit) -> str:
    content = _DOUBLED.sub(r"\1", without_markers(edit.content).strip("\n"))
    if not content.strip():
        raise _SkipEdit("no content")
    return content


def _anchor(document: SkillDocument, edit: Edit) -> Span:
    if not edit.anchor.strip():
        raise _SkipEdit("no anchor")
    span = document.find(edit.anchor)
    if span is None:
        raise _SkipEdit(_PROTECTED if _in_region(document, edit.anchor) else _NOT_FOUND)
    return span


def _in_region(document: SkillDocument, anchor: str) -> bool:
    return any(anchor in region for region in document.regions.values())


def _remark(edit: Edit, inserted: str, status: EditStatus) -> str:
    """Return the deviations from an applied edit, or an empty string."""
    not_found = [_NOT_FOUND] if status == "applied_as_append" else []
    lost = ["content lost the marker of a protected region"] if inserted and has_marker(edit.content) else []
    return ", ".join([*not_found, *lost])


def _on_own_lines(document: SkillDocument, end: int, content: str) -> str:
    """Return content between newlines: a heading, and a paragraph after a list, need a blank line before them."""
    before, last = "\n" if end else "", document.text[:end].rpartition("\n")[2]
    if last.strip() and (content.startswith("#") or (_LISTED.match(last) and not _LISTED.match(content))):
        before = "\n\n"
    return before + content + ("" if document.text[end : end + 1] == "\n" else "\n")


def _checked(document: SkillDocument, span: Span, inserted: str, edit: Edit) -> SkillDocument:
    """Return the document after the splice; check it again, since two harmless halves can form a marker."""
    changed = document.spliced(span, inserted)
    if changed.text == document.text:
        raise _SkipEdit("changes nothing")
    own = edit.anchor if edit.op == "region" else ""
    try:
        kept = changed.regions | {own: ""} == document.regions | {own: ""}
    except SkillError:
        kept = False
    if not kept:
        raise _SkipEdit("would change a protected region")
    flaw = flaw_of_text(changed.text)
    if flaw and not flaw_of_text(document.text):
        raise _SkipEdit(f"leaves a skill that {flaw}")
    return changed
