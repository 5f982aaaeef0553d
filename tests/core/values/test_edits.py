import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.edits import (
    EditApplyReport,
    apply_edits,
    consolidated_edit,
    new_notes,
    note_edits,
    notes_of,
)
from skillopt_airflow.core.values.skill import REGIONS, SkillDocument, has_marker, without_markers
from skillopt_airflow.core.values.text import flaw_of_text
from skillopt_airflow.core.values.types import AnyEditOp, Edit, EditOp, Note

START, END = "<!-- SLOW_UPDATE_START -->", "<!-- SLOW_UPDATE_END -->"
NOTES = "<!-- APPENDIX_START -->\nnote\n<!-- APPENDIX_END -->"
REGION = f"{START}\nkeep\n{END}"

PIECES = st.one_of(
    st.sampled_from(
        ["- rule\n", "keep", "\n", "a", " ", "é", "\U0001f600", "\u2028", "\x00", "\r\n", "\r", "x" * 20_000]
    ),
    st.sampled_from(["<!-", "- APPENDIX_START -->", "<!-- SLOW_", "UPDATE_END -->", "<!--", "-->", START, END]),
    st.text(max_size=3),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
ANALYST_OPS: tuple[EditOp, ...] = get_args(EditOp)
ALL_OPS: tuple[AnyEditOp, ...] = (*ANALYST_OPS, "rewrite", "region")


@st.composite
def documents(draw: st.DrawFn) -> SkillDocument:
    regions = draw(st.sampled_from([(), (REGION,), (NOTES,), (REGION, NOTES), (NOTES, REGION)]))
    text = draw(TEXTS) + "".join(region + draw(TEXTS) for region in regions)
    document = SkillDocument(text)
    try:
        _ = document.protected
    except SkillError:
        document = SkillDocument("# Skill\n" + "\n".join(regions))
    return document


@st.composite
def documents_and_edits(
    draw: st.DrawFn, operations: tuple[AnyEditOp, ...] = ALL_OPS
) -> tuple[SkillDocument, list[Edit]]:
    document = draw(documents())
    cuts = st.integers(0, len(document.text))
    # Anchors also cut from the text, so that they hit it, across the borders of regions too.
    pieces = st.tuples(cuts, cuts).map(lambda cut: document.text[min(cut) : max(cut)])
    anchors = st.one_of(TEXTS, pieces, st.sampled_from(REGIONS))
    edits = st.builds(Edit, op=st.sampled_from(operations), anchor=anchors, content=TEXTS)
    return document, draw(st.lists(edits, max_size=8))


def replay(text: str, report: EditApplyReport) -> str:
    for row in report.rows:
        if row.position is not None:
            end = row.position + len(row.removed)
            assert text[row.position : end] == row.removed
            text = text[: row.position] + row.inserted + text[end:]
    return text


def without(document: SkillDocument, name: str) -> dict[str, str]:
    return {region: text for region, text in document.regions.items() if region != name}


@given(documents_and_edits((*ANALYST_OPS, "rewrite")))
def test_any_sequence_of_edits_leaves_protected_regions_alone(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    changed, _ = apply_edits(document, edits)
    assert list(changed.regions.items()) == list(document.regions.items())
    assert not any(has_marker(changed.text[span.start : span.end]) for span in changed.editable)


@given(documents_and_edits())
def test_only_a_region_edit_changes_a_region_and_only_its_own(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    for edit in edits:
        changed, report = apply_edits(document, [edit])
        own = edit.anchor if edit.op == "region" else ""
        assert without(changed, own) == without(document, own)
        if own and report.rows[0].status == "applied":
            inside = without_markers(edit.content).strip("\n") if has_marker(edit.content) else edit.content
            assert changed.region(own) == inside
            assert changed.body.rstrip("\n") == document.body.rstrip("\n")
        document = changed


@given(documents_and_edits())
def test_the_report_explains_every_difference(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    changed, report = apply_edits(document, edits)
    assert replay(document.text, report) == changed.text
    assert (report.sha256_before, report.sha256_after) == (document.sha256, changed.sha256)
    assert [row.edit for row in report.rows] == edits
    assert [row.index for row in report.rows] == list(range(len(edits)))
    for row in report.rows:
        assert (row.position is None) == (row.status == "skipped")
        assert bool(row.reason) == (row.status != "applied" or (row.inserted != "" and has_marker(row.edit.content)))
    assert report.count("applied", "applied_as_append", "skipped") == len(edits)


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("", Edit(op="append", content="x"), "x\n"),
        ("a", Edit(op="append", content="x"), "a\nx\n"),
        ("a\n\n\n", Edit(op="append", content="\nx\n"), "a\nx\n\n\n"),
        (f"a\n{REGION}\nb\n", Edit(op="append", content="x"), f"a\nx\n{REGION}\nb\n"),
        ("a b\nc\n", Edit(op="insert_after", anchor="a", content="x"), "a b\nx\nc\n"),
        ("a\nb\nc\n", Edit(op="insert_after", anchor="a\nb", content="x"), "a\nb\nx\nc\n"),
        (f"a\n{REGION}", Edit(op="insert_after", anchor="a\n", content="x"), f"a\nx\n{REGION}"),
        ("a\nb", Edit(op="insert_after", anchor="b", content="x"), "a\nb\nx\n"),
        ("a\na\n", Edit(op="replace", anchor="a", content="x"), "x\na\n"),
        ("a\nb\na\n", Edit(op="delete", anchor="b"), "a\na\n"),
        ("a b c\n", Edit(op="delete", anchor="b "), "a c\n"),
        ("- a\n- b\n", Edit(op="replace", anchor="- a\n", content="- x\n"), "- x\n- b\n"),
        ("- a\n- b\n- c\n", Edit(op="replace", anchor="\n- b", content="\n- x"), "- a\n- x\n- c\n"),
        (f"a\n\n{REGION}\n", Edit(op="replace", anchor="a\n\n", content="x"), f"x\n\n{REGION}\n"),
        (f"{REGION}\nkeep\n", Edit(op="replace", anchor="keep", content="x"), f"{REGION}\nx\n"),
        ("", Edit(op="rewrite", content="x"), "x\n"),
        ("a\nb", Edit(op="rewrite", content="\nx\ny\n\n"), "x\ny\n"),
        (f"a\nb\n\n{REGION}\nc\n", Edit(op="rewrite", content="x\n"), f"x\n\n{REGION}\nc\n"),
        (f"a\r\n\r\n{REGION}", Edit(op="rewrite", content="x"), f"x\r\n\r\n{REGION}"),
        (f"a{REGION}", Edit(op="rewrite", content="x"), f"x\n{REGION}"),
        (f"a\n{REGION}\nb", Edit(op="region", anchor="SLOW_UPDATE", content="x\ny"), f"a\n{START}\nx\ny\n{END}\nb"),
        (f"{START}{END}", Edit(op="region", anchor="SLOW_UPDATE", content="keep"), REGION),
        (f"a\n{REGION}\n", Edit(op="region", anchor="APPENDIX", content="note"), f"a\n{REGION}\n\n{NOTES}\n"),
        ("", Edit(op="region", anchor="SLOW_UPDATE"), f"{START}\n{END}\n"),
        # A heading or paragraph is no part of the list before it, and a bullet is written once.
        ("- a\n", Edit(op="append", content="## More"), "- a\n\n## More\n"),
        ("1. a\n   goes on\n", Edit(op="append", content="A paragraph."), "1. a\n   goes on\n\nA paragraph.\n"),
        ("- a\n\n", Edit(op="append", content="- b"), "- a\n- b\n\n"),
        ("a\nb\n", Edit(op="insert_after", anchor="a", content="# H"), "a\n\n# H\nb\n"),
        ("- a\n", Edit(op="append", content="- - b\n* * c"), "- a\n- b\n* c\n"),
        # An anchor that differs in whitespace or quotes is the same.
        ("- say “no”  to it\n- b\n", Edit(op="delete", anchor='- say "no" to it'), "- b\n"),
        ("a\nit's\n b c\n", Edit(op="replace", anchor="it’s b", content="x"), "a\nx c\n"),
        ("a  b\nc\n", Edit(op="insert_after", anchor="a b\n", content="x"), "a  b\nx\nc\n"),
        ("a  b, a b\n", Edit(op="replace", anchor="a b", content="x"), "a  b, x\n"),
    ],
)
def test_each_operation(text: str, edit: Edit, expected: str) -> None:
    changed, report = apply_edits(SkillDocument(text), [edit])
    assert changed.text == expected
    assert report.rows[0].status == "applied"


def test_insert_after_a_missing_anchor_appends() -> None:
    changed, report = apply_edits(SkillDocument("a\n"), [Edit(op="insert_after", anchor="zzz", content="x")])
    assert changed.text == "a\nx\n"
    assert (report.rows[0].status, report.rows[0].reason) == ("applied_as_append", "anchor not found")
    _, report = apply_edits(SkillDocument("a\n"), [Edit(op="insert_after", anchor="zzz", content=f"x{START}")])
    assert report.rows[0].reason == "anchor not found, content lost the marker of a protected region"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit(op="append", content=" \n"), "no content"),
        (Edit(op="replace", anchor="a", content=START), "no content"),
        (Edit(op="insert_after", anchor="keep", content="x"), "anchor is in a protected region"),
        (Edit(op="replace", anchor="zzz", content="x"), "anchor not found"),
        (Edit(op="delete", anchor=" "), "no anchor"),
        (Edit(op="replace", anchor=END, content="x"), "anchor is in a protected region"),
        (Edit(op="replace", anchor="a", content="a"), "changes nothing"),
        (Edit(op="rewrite", content="\n \t\n"), "no content"),
        (Edit(op="region", anchor="BODY", content="x"), "no such region; there are SLOW_UPDATE, APPENDIX"),
        (Edit(op="region", anchor="SLOW_UPDATE", content="keep"), "changes nothing"),
    ],
)
def test_what_is_not_applicable_says_why(edit: Edit, reason: str) -> None:
    document = SkillDocument(f"a\n{REGION}\n")
    changed, report = apply_edits(document, [edit])
    assert changed == document
    assert (report.rows[0].status, report.rows[0].reason) == ("skipped", reason)


HALVES = "<!-- SLOW_UPDATE_<!-- APPENDIX_END -->START -->"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Edit(op="append", content=f"x{HALVES}"), f"a\nx\n{REGION}\n"),
        (Edit(op="insert_after", anchor="a", content=f"{NOTES}\n"), f"a\nnote\n{REGION}\n"),
        (Edit(op="replace", anchor="a", content=f"b{END}"), f"b\n{REGION}\n"),
        (Edit(op="rewrite", content=f"x\n{NOTES}"), f"x\n{REGION}\n"),
        (Edit(op="rewrite", content=f"x\n{START}\n\nkeep\n{END}\nbehind"), f"x\n{REGION}\n"),
        (Edit(op="region", anchor="SLOW_UPDATE", content=f"{START}\nnew\n{END}"), f"a\n{START}\nnew\n{END}\n"),
    ],
)
def test_content_loses_a_regions_marker_and_the_report_says_so(edit: Edit, expected: str) -> None:
    changed, report = apply_edits(SkillDocument(f"a\n{REGION}\n"), [edit])
    assert changed.text == expected
    assert report.rows[0].status == "applied"
    assert "lost the marker" in report.rows[0].reason


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("<!-xx- SLOW_UPDATE_START -->\n", Edit(op="delete", anchor="xx")),
        ("<!-- APPENDIX_START -x- APPENDIX_END -->\n", Edit(op="replace", anchor="x", content="-> <!-")),
        (
            "APPENDIX <!--\n-->\n",
            Edit(op="insert_after", anchor="APPENDIX", content="APPENDIX_START -->\n<!-- APPENDIX_END"),
        ),
    ],
)
def test_markers_cannot_be_put_together_from_halves(text: str, edit: Edit) -> None:
    changed, report = apply_edits(SkillDocument(text), [edit])
    assert changed.text == text
    assert report.rows[0].reason == "would change a protected region"


def test_an_analyst_cannot_put_a_marker_together_over_several_edits() -> None:
    edits = [
        Edit(op="append", content="<!-x"),
        Edit(op="replace", anchor="-x", content="-- APPENDIX_START y"),
        Edit(op="replace", anchor="y", content="-->"),
        Edit(op="append", content="<!-x- APPENDIX_END -->"),
        Edit(op="delete", anchor="x"),
    ]
    changed, report = apply_edits(SkillDocument("a\n"), edits)
    assert changed.text == "a\n<!-- APPENDIX_START y\n<!-x- APPENDIX_END -->\n"
    refused = "would change a protected region"
    assert [row.reason for row in report.rows] == ["", "", refused, "", refused]


def test_a_rewrite_splices_the_body_and_a_region_edit_the_inside() -> None:
    edits = [
        Edit(op="rewrite", content="b"),
        Edit(op="region", anchor="SLOW_UPDATE", content="new"),
        Edit(op="region", anchor="APPENDIX", content="note"),
    ]
    changed, report = apply_edits(SkillDocument(f"a\n\n{REGION}\n"), edits)
    body, region, opening = report.rows
    assert (body.position, body.removed, body.inserted) == (0, "a", "b")
    assert (region.position, region.removed, region.inserted) == (3 + len(START), "\nkeep\n", "\nnew\n")
    assert (opening.removed, opening.inserted) == ("\n", f"\n\n{NOTES}\n")
    assert changed.text == f"b\n\n{START}\nnew\n{END}\n\n{NOTES}\n"


SKILL = SkillDocument("# Skill\n").with_region("APPENDIX", "- Count the words.")
NOTE_TEXTS = st.one_of(
    # A note with hidden characters has been refused before.
    st.text(min_size=1, max_size=8).filter(lambda text: not flaw_of_text(text)),
    st.sampled_from(["Count  the WORDS.", "count the words!", "- x", " ", "<!-- APPENDIX_END -->"]),
)
APPENDIX_NOTES = st.lists(
    st.builds(Note, text=NOTE_TEXTS, minibatch=st.sampled_from(["failure-0", "success-1"])), max_size=6
)
INSIDES = st.sampled_from(["", "- a", "prose", "## Notes\n\n- Count the words.\n  and letters\n- ", "\r\n- a\r"])


def note(text: str, minibatch: str = "failure-0") -> Note:
    return Note(text=text, minibatch=minibatch)


def meaning(text: str) -> str:
    return re.sub(r"^([-*+•]\s+)*", "", " ".join(text.casefold().split()) + " ").rstrip(" .,;:!?")


def with_notes(document: SkillDocument, notes: list[Note]) -> SkillDocument:
    return apply_edits(document, note_edits(document, notes))[0]


@pytest.mark.parametrize(
    ("inside", "notes"),
    [("", ()), ("- a\n- b", ("a", "b")), ("Notes\n\n- a \r\n-b\n- \n  c\n- - d", ("a", "- d"))],
)
def test_notes_are_the_lines_with_a_bullet(inside: str, notes: tuple[str, ...]) -> None:
    assert notes_of(SkillDocument("- rule\n").with_region("APPENDIX", inside)) == notes
    assert notes_of(SkillDocument("- rule\n")) == ()


def test_each_note_is_an_edit_of_its_own() -> None:
    first, second = note_edits(SKILL, [note("Give  the\nyear."), note("Stop there.", "success-2")])
    assert (first.op, first.anchor, first.content) == ("region", "APPENDIX", "- Count the words.\n- Give the year.")
    assert (first.minibatches, first.source_type) == (("failure-0",), "failure")
    assert second.content == "- Count the words.\n- Give the year.\n- Stop there."
    assert (second.minibatches, second.source_type) == (("success-2",), "success")
    # The first note opens the appendix.
    changed = with_notes(SkillDocument("# Skill"), [note("a"), note("b")])
    assert changed.text == "# Skill\n\n<!-- APPENDIX_START -->\n- a\n- b\n<!-- APPENDIX_END -->\n"


def test_a_note_that_is_there_is_left_out() -> None:
    known = [note(" count THE\twords."), note(" \n"), note("- Count the words!"), note("..."), note("* - ")]
    assert note_edits(SKILL, known) == ()
    assert [edit.content for edit in note_edits(SkillDocument(""), [note("- * Check it.")])] == ["- Check it."]
    assert new_notes([note("Give the year."), note("give the year")], ()) == [note("Give the year.")]
    assert [edit.content for edit in note_edits(SkillDocument(""), [note("Straße"), note("STRASSE")])] == ["- Straße"]


def test_what_is_no_note_stays() -> None:
    document = SkillDocument("").with_region("APPENDIX", "By hand:\n\n- a\n")
    assert with_notes(document, [note("b")]).region("APPENDIX") == "By hand:\n\n- a\n\n- b"
    consolidated, _ = apply_edits(document, [consolidated_edit(document, [note("c")])])
    assert consolidated.region("APPENDIX") == "By hand:\n\n\n- c"
    # A note with a marker loses it.
    notes = [note("a"), note("c<!-- APPENDIX_END -->"), note("b")]
    changed, report = apply_edits(SKILL, note_edits(SKILL, notes))
    assert [row.status for row in report.rows] == ["applied"] * 3
    assert notes_of(changed) == ("Count the words.", "a", "c", "b")


def test_consolidation_writes_the_whole_list_once() -> None:
    edit = consolidated_edit(
        SKILL, [note("a b", "appendix, failure-1"), note("A  b"), note("c", "success-2, appendix")]
    )
    assert (edit.op, edit.anchor, edit.content) == ("region", "APPENDIX", "- a b\n- c")
    assert edit.minibatches == ("appendix", "failure-1", "failure-0", "success-2")
    assert (edit.support_count, edit.source_type) == (4, "failure")
    assert consolidated_edit(SKILL, [note("a", "success-0")]).source_type == "success"
    assert consolidated_edit(SKILL, []).content == ""


@given(INSIDES, APPENDIX_NOTES)
def test_notes_are_added_once_and_nothing_is_lost(inside: str, notes: list[Note]) -> None:
    document = SkillDocument("- rule\n").with_region("APPENDIX", inside)
    changed = with_notes(document, notes)
    region = changed.region("APPENDIX")
    assert region is not None
    assert region.startswith(inside)
    meanings = [meaning(text) for text in notes_of(changed)]
    assert len(meanings) == len(set(meanings))
    wanted = {meaning(entry.text) for entry in notes if "<!--" not in entry.text} - {""}
    assert wanted <= set(meanings)
    assert note_edits(changed, [entry for entry in notes if "<!--" not in entry.text]) == ()


@given(INSIDES, APPENDIX_NOTES)
def test_consolidation_leaves_its_notes_alone(inside: str, notes: list[Note]) -> None:
    notes = [entry for entry in notes if "<!--" not in entry.text]
    document = SkillDocument("- rule\n").with_region("APPENDIX", inside)
    changed, _ = apply_edits(document, [consolidated_edit(document, notes)])
    assert notes_of(changed) == notes_of(with_notes(SkillDocument(""), notes))
    again, _ = apply_edits(changed, [consolidated_edit(changed, notes)])
    assert again == changed
