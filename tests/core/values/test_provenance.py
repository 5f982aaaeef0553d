import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.values.edits import EditReport, apply_edits, consolidated_edit, note_edits
from skillopt_airflow.core.values.provenance import LineOrigin, LinesOfSkill, continue_origins, seed_lines, trace
from skillopt_airflow.core.values.skill import REGIONS, SkillDocument
from skillopt_airflow.core.values.types import AnyEditOp, Edit, Note

STEP = "steps/step_0001"
# Few different lines, so that equal ones meet; some are blank, and some end in other line ends than "\n".
LINES = st.lists(st.sampled_from(["a", "b", "ab", "", " ", "c\r", "é\u2028x"]), max_size=6).map("\n".join)


@st.composite
def documents_and_edits(draw: st.DrawFn) -> tuple[SkillDocument, list[Edit]]:
    document = SkillDocument(draw(LINES))
    for region in draw(st.lists(st.sampled_from(REGIONS), unique=True)):
        document = document.with_region(region, draw(LINES))
    cuts = st.integers(0, len(document.text))
    pieces = st.tuples(cuts, cuts).map(lambda cut: document.text[min(cut) : max(cut)])
    operations: st.SearchStrategy[AnyEditOp] = st.sampled_from(
        ["append", "insert_after", "replace", "delete", "rewrite", "region"]
    )
    edits = st.builds(
        Edit,
        op=operations,
        anchor=st.one_of(pieces, LINES, st.sampled_from(REGIONS)),
        content=st.one_of(LINES, pieces),
        minibatches=st.sampled_from([("failure-0",), ("success-1", "failure-2")]),
    )
    return document, draw(st.lists(edits, max_size=6))


def numbered(document: SkillDocument) -> tuple[LineOrigin, ...]:
    """Tells the seed's lines apart by their number, so that no two of them can be mistaken for each other."""
    return tuple(LineOrigin(moment=f"line-{number}") for number in range(document.text.count("\n") + 1))


def origins_after(text: str, *edits: Edit) -> list[int | str | None]:
    """The number of the seed's line, or `edit-<index>`, for each line after the edits."""
    document = SkillDocument(text)
    _, report = apply_edits(document, edits)
    traced = trace(document, numbered(document), report, STEP)
    return [int(origin.moment[5:]) if origin.edit is None else f"edit-{origin.edit}" for origin in traced]


def surviving(document: SkillDocument, rows: tuple[EditReport, ...]) -> dict[int, int]:
    """The lines of the result, by number, all of whose characters are those of one line of the input, and its number.

    Followed character by character; blank lines have none to follow.
    """
    before = document.text.split("\n")
    characters: list[tuple[str, int | None]] = []
    for number, text in enumerate(before):
        characters += [(character, number) for character in f"{text}\n"]
    characters.pop()
    for row in rows:
        if row.position is not None:
            end = row.position + len(row.removed)
            characters[row.position : end] = [(character, None) for character in row.inserted]
    lines: list[list[int | None]] = [[]]
    for character, source in characters:
        if character == "\n":
            lines.append([])
        else:
            lines[-1].append(source)
    found: dict[int, int] = {}
    for position, sources in enumerate(lines):
        source = sources[0] if len(set(sources)) == 1 else None
        if source is not None and len(sources) == len(before[source]):
            found[position] = source
    return found


@given(documents_and_edits())
def test_every_line_has_an_origin(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    changed, report = apply_edits(document, edits)
    traced = trace(document, seed_lines(document, "steps/step_0000"), report, STEP)
    assert len(traced) == len(changed.text.split("\n"))
    for origin in traced:
        if origin.edit is None:
            assert origin == LineOrigin(moment="steps/step_0000")
        else:
            edit = edits[origin.edit]
            assert report.rows[origin.edit].status != "skipped"
            assert origin.moment == STEP
            assert (origin.op, origin.source_type) == (edit.op, edit.source_type)
            assert origin.minibatches == edit.minibatches
    stored = LinesOfSkill(lines=traced)
    assert LinesOfSkill.model_validate_json(stored.model_dump_json()) == stored


@given(documents_and_edits())
def test_a_line_that_no_edit_touched_keeps_its_origin(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    origins = numbered(document)
    _, report = apply_edits(document, edits)
    traced = trace(document, origins, report, STEP)
    for position, number in surviving(document, report.rows).items():
        assert traced[position] == origins[number]


@given(documents_and_edits())
def test_a_line_that_keeps_its_origin_has_the_same_text(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    changed, report = apply_edits(document, edits)
    traced = trace(document, numbered(document), report, STEP)
    before, kept = document.text.split("\n"), []
    for line, origin in zip(changed.text.split("\n"), traced, strict=True):
        if origin.edit is None:
            kept.append(int(origin.moment.removeprefix("line-")))
            assert before[kept[-1]] == line
    assert len(kept) == len(set(kept)), "no line is the origin of two"


@given(documents_and_edits())
def test_the_edit_of_a_new_line_brought_in_its_new_text(case: tuple[SkillDocument, list[Edit]]) -> None:
    document, edits = case
    for edit in edits:
        changed, report = apply_edits(document, [edit])
        traced = trace(document, numbered(document), report, STEP)
        row, line_start = report.rows[0], 0
        for line, origin in zip(changed.text.split("\n"), traced, strict=True):
            line_end = line_start + len(line)
            if origin.edit is not None:
                assert row.position is not None
                end = row.position + len(row.inserted)
                assert line_start <= end, "the splice reaches the line"
                assert row.position <= line_end
                new_text = changed.text[max(row.position, line_start) : min(end, line_end)]
                assert new_text in row.inserted
                assert new_text or row.removed or "\n" in row.inserted
            line_start = line_end + 1
        document = changed


RULES = [f"- rule {number}" for number in range(8)]


@given(st.permutations([*RULES, "- new"]))
def test_a_rewrite_in_any_order_keeps_every_origin(lines: list[str]) -> None:
    rewrite = Edit(op="rewrite", content="\n".join(lines))
    expected = [RULES.index(line) if line in RULES else "edit-0" for line in lines]
    assert origins_after("\n".join(RULES) + "\n", rewrite) == [*expected, len(RULES)]


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("a\nb\n", Edit(op="append", content="x\ny"), [0, 1, "edit-0", "edit-0", 2]),
        ("a\na\n", Edit(op="insert_after", anchor="a", content="a"), [0, "edit-0", 1, 2]),
        ("a\nb\nc\n", Edit(op="replace", anchor="a\nb\nc", content="a\nx\nc"), [0, "edit-0", 2, 3]),
        ("a\nb\nc\n", Edit(op="delete", anchor="b"), [0, 2, 3]),
        ("a b\nc\n", Edit(op="delete", anchor=" b\n"), ["edit-0", 2]),
        ("a\nb\nc\n", Edit(op="replace", anchor="a\nb", content="ab"), ["edit-0", 2, 3]),
        ("a\nb\n", Edit(op="rewrite", content="b\nx\na"), [1, "edit-0", 0, 2]),
        ("a\n", Edit(op="region", anchor="APPENDIX", content="x"), [0, *["edit-0"] * 4, 1]),
    ],
)
def test_each_operation_leaves_the_other_lines_theirs(text: str, edit: Edit, expected: list[int | str]) -> None:
    assert origins_after(text, edit) == expected


def test_later_edits_take_over_the_lines_that_they_change() -> None:
    edits = [
        Edit(op="append", content="x\ny"),
        Edit(op="replace", anchor="zzz", content="skipped"),
        Edit(op="replace", anchor="y", content="y too"),
        Edit(op="delete", anchor="a"),
    ]
    assert origins_after("a\nb\n", *edits) == [1, "edit-0", "edit-2", 2]


def test_each_note_has_its_own_minibatch_and_a_consolidation_that_of_its_sources() -> None:
    document = SkillDocument("# Skill\n")
    notes = [Note(text="a", minibatch="failure-0"), Note(text="b", minibatch="success-1")]
    changed, report = apply_edits(document, note_edits(document, notes))
    lines = trace(document, seed_lines(document, "steps/step_0000"), report, STEP)
    by_text = dict(zip(changed.text.split("\n"), lines, strict=True))
    assert (by_text["- a"].minibatches, by_text["- b"].minibatches) == (("failure-0",), ("success-1",))
    united = [Note(text="b", minibatch="success-1"), Note(text="all", minibatch="failure-0, success-1")]
    shorter, report = apply_edits(changed, [consolidated_edit(changed, united)])
    later = trace(changed, lines, report, "steps/step_0002")
    by_text = dict(zip(shorter.text.split("\n"), later, strict=True))
    assert (by_text["- b"].moment, by_text["- b"].minibatches) == (STEP, ("success-1",))
    assert (by_text["- all"].moment, by_text["- all"].minibatches) == ("steps/step_0002", ("success-1", "failure-0"))
    assert by_text["# Skill"].moment == "steps/step_0000"


def test_a_slow_update_keeps_the_guidance_that_it_writes_again() -> None:
    document = SkillDocument("# Skill\n").with_region("SLOW_UPDATE", "keep\nold")
    edit = Edit(op="region", anchor="SLOW_UPDATE", content="first\nkeep")
    assert origins_after(document.text, edit) == [0, 1, 2, "edit-0", 3, 5, 6]


def test_the_same_few_lines_in_their_thousands() -> None:
    text = "x\nz\n" * 20_000
    traced = origins_after(text, Edit(op="rewrite", content="x\nw\n" * 20_000))
    assert traced == [number if number % 2 == 0 else "edit-0" for number in range(40_001)]


def test_a_run_goes_on_with_the_lines_of_another_one_and_of_those_before() -> None:
    before, after = SkillDocument("one\ntwo\n"), SkillDocument("one\ntwo\nopened\n")
    origins = (LineOrigin(moment="a", edit=0), LineOrigin(moment="b", edit=1, run="first"), LineOrigin(moment="a"))
    assert continue_origins(before, origins, "second", after, "seed") == (
        LineOrigin(moment="a", edit=0, run="second"),
        LineOrigin(moment="b", edit=1, run="first"),
        LineOrigin(moment="seed"),
        LineOrigin(moment="a", run="second"),
    )
