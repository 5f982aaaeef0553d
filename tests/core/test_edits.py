import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.core.edits import EditApplyReport, apply_edits
from include.core.errors import SkillError
from include.core.skill import SkillDocument
from include.core.types import Edit, EditOp

START, END = "<!-- SLOW_UPDATE_START -->", "<!-- SLOW_UPDATE_END -->"
NOTES = "<!-- APPENDIX_START -->\nnote\n<!-- APPENDIX_END -->"
REGION = f"{START}\nkeep\n{END}"

PIECES = st.sampled_from(
    ["- rule\n", "keep", "\n", "a", " ", "<!-", "- APPENDIX_START -->", "<!-- SLOW_", "UPDATE_END -->", "é", "\r\n"]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)


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
def documents_and_edits(draw: st.DrawFn) -> tuple[SkillDocument, list[Edit]]:
    document = draw(documents())
    cuts = st.integers(0, len(document.text))
    # Anchors also cut from the text, so that they hit it, across the borders of regions too.
    anchors = st.one_of(TEXTS, st.tuples(cuts, cuts).map(lambda cut: document.text[min(cut) : max(cut)]))
    operations: st.SearchStrategy[EditOp] = st.sampled_from(["append", "insert_after", "replace", "delete"])
    edits = draw(st.lists(st.builds(Edit, op=operations, anchor=anchors, content=TEXTS), max_size=8))
    return document, edits


def replay(text: str, report: EditApplyReport) -> str:
    for row in report.rows:
        if row.position is not None:
            end = row.position + len(row.removed)
            assert text[row.position : end] == row.removed
            text = text[: row.position] + row.inserted + text[end:]
    return text


@given(documents_and_edits())
def test_any_sequence_of_edits_leaves_protected_regions_alone(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    changed, _ = apply_edits(document, edits)
    assert changed.protected_texts() == document.protected_texts()


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
        assert bool(row.reason) == (row.status != "applied")
    assert report.count("applied", "applied_as_append", "skipped") == len(edits)


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("", Edit(op="append", content="x"), "x\n"),
        ("a", Edit(op="append", content="x"), "a\nx\n"),
        ("a\n\n\n", Edit(op="append", content="\nx\n"), "a\nx\n\n\n"),
        (f"a\n{REGION}\nb\n", Edit(op="append", content="x"), f"a\nx\n{REGION}\nb\n"),
        (REGION, Edit(op="append", content="x"), f"x\n{REGION}"),
        ("a b\nc\n", Edit(op="insert_after", anchor="a", content="x"), "a b\nx\nc\n"),
        ("a\nb\nc\n", Edit(op="insert_after", anchor="a\n", content="x"), "a\nx\nb\nc\n"),
        ("a\nb\nc\n", Edit(op="insert_after", anchor="a\nb", content="x"), "a\nb\nx\nc\n"),
        (f"a\n{REGION}", Edit(op="insert_after", anchor="a\n", content="x"), f"a\nx\n{REGION}"),
        (f"a{REGION}", Edit(op="insert_after", anchor="a", content="x"), f"a\nx\n{REGION}"),
        ("a\nb", Edit(op="insert_after", anchor="b", content="x"), "a\nb\nx\n"),
        ("a\na\n", Edit(op="replace", anchor="a", content="x"), "x\na\n"),
        ("a\nb\na\n", Edit(op="delete", anchor="b"), "a\na\n"),
        ("a b c\n", Edit(op="delete", anchor="b "), "a c\n"),
        (f"{REGION}\nkeep\n", Edit(op="replace", anchor="keep", content="x"), f"{REGION}\nx\n"),
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


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit(op="append", content=" \n"), "no content"),
        (Edit(op="append", content=f"x {START}"), "content holds the marker of a protected region"),
        (Edit(op="replace", anchor="zzz", content="x"), "anchor not found"),
        (Edit(op="delete", anchor=" "), "no anchor"),
        (Edit(op="delete", anchor="keep"), "anchor lies in a protected region"),
        (Edit(op="replace", anchor=END, content="x"), "anchor lies in a protected region"),
        (Edit(op="replace", anchor="a", content="a"), "changes nothing"),
    ],
)
def test_what_is_not_applicable_says_why(edit: Edit, reason: str) -> None:
    document = SkillDocument(f"a\n{REGION}\n")
    changed, report = apply_edits(document, [edit])
    assert changed == document
    assert (report.rows[0].status, report.rows[0].reason) == ("skipped", reason)


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("<!-xx- SLOW_UPDATE_START -->\n", Edit(op="delete", anchor="xx")),
        ("<!-- APPENDIX_START -x- APPENDIX_END -->\n", Edit(op="replace", anchor="x", content="-> <!-")),
    ],
)
def test_markers_cannot_be_put_together_from_halves(text: str, edit: Edit) -> None:
    changed, report = apply_edits(SkillDocument(text), [edit])
    assert changed.text == text
    assert report.rows[0].reason == "would change a protected region"


def test_later_edits_see_what_earlier_ones_wrote() -> None:
    edits = [Edit(op="append", content="x"), Edit(op="replace", anchor="x", content="y")]
    assert apply_edits(SkillDocument("a\n"), edits)[0].text == "a\ny\n"
