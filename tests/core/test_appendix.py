import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.appendix import consolidated_edit, new_notes, note_edits, notes_of
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.hidden_text import flaw_of_text
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Note

SKILL = SkillDocument("# Skill\n").with_region("APPENDIX", "- Count the words.")
TEXTS = st.one_of(
    # A note with hidden characters has been refused before.
    st.text(min_size=1, max_size=8).filter(lambda text: not flaw_of_text(text)),
    st.sampled_from(["Count  the WORDS.", "count the words!", "- x", " ", "<!-- APPENDIX_END -->"]),
)
NOTES = st.lists(st.builds(Note, text=TEXTS, minibatch=st.sampled_from(["failure-0", "success-1"])), max_size=6)
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


@given(INSIDES, NOTES)
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


@given(INSIDES, NOTES)
def test_consolidation_leaves_its_notes_alone(inside: str, notes: list[Note]) -> None:
    notes = [entry for entry in notes if "<!--" not in entry.text]
    document = SkillDocument("- rule\n").with_region("APPENDIX", inside)
    changed, _ = apply_edits(document, [consolidated_edit(document, notes)])
    assert notes_of(changed) == notes_of(with_notes(SkillDocument(""), notes))
    again, _ = apply_edits(changed, [consolidated_edit(changed, notes)])
    assert again == changed
