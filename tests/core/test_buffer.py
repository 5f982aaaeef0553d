"""What the optimizer is told that a candidate tried."""

from skillopt_airflow.core.appendix import note_edits
from skillopt_airflow.core.buffer import tried_edits
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Edit, Note, Patch

SKILL = SkillDocument("# Skill\n\n- one\n- two\n").with_region("APPENDIX", "- Known note.")
GOOD = Edit(op="replace", anchor="- one", content="- better")
LOST = Edit(op="replace", anchor="- another", content="- nowhere")


def tried(ranked: tuple[Edit, ...], applied: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tried_edits(Patch(edits=ranked), apply_edits(SKILL, applied)[1])


def test_an_edit_that_did_not_reach_the_candidate_was_not_tried() -> None:
    assert tried((GOOD, LOST), (GOOD, LOST)) == (GOOD,)
    assert tried((LOST,), (LOST,)) == ()


def test_edits_of_which_a_body_was_written_were_tried() -> None:
    written = Edit(op="rewrite", content="# Skill\n\n- better\n")
    assert tried((GOOD, LOST), (written,)) == (GOOD, LOST)


def test_of_notes_the_new_line_of_each_was_tried() -> None:
    notes = note_edits(SKILL, (Note(text="New A.", minibatch="failure 1"), Note(text="New B.", minibatch="failure 2")))
    assert [edit.content for edit in tried((GOOD,), (GOOD, *notes))] == ["- better", "- New A.", "- New B."]
