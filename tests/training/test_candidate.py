"""What the optimizer is told that a candidate tried."""

from types import SimpleNamespace
from typing import Any

from skillopt_airflow.core.appendix import note_edits
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Edit, Note, Patch
from skillopt_airflow.store.keys import MomentKeys, RunKeys
from skillopt_airflow.training.candidate import tried_edits
from tests.training.local_store import LocalStore

SKILL = SkillDocument("# Skill\n\n- one\n- two\n").with_region("APPENDIX", "- Known note.")
GOOD = Edit(op="replace", anchor="- one", content="- better")
LOST = Edit(op="replace", anchor="- another", content="- nowhere")


def tried(ranked: tuple[Edit, ...], applied: tuple[Edit, ...]) -> tuple[Edit, ...]:
    store, keys = LocalStore(), step()
    store.put_model(keys.ranked_edits, Patch(edits=ranked))
    store.put_model(keys.edit_apply_report, apply_edits(SKILL, applied)[1])
    run: Any = SimpleNamespace(store=store)
    return tried_edits(run, keys)


def step() -> MomentKeys:
    return RunKeys("", "searchqa", "run").moment(Moment(kind="step", epoch=1, step=1))


def test_an_edit_that_did_not_reach_the_candidate_was_not_tried() -> None:
    assert tried((GOOD, LOST), (GOOD, LOST)) == (GOOD,)
    assert tried((LOST,), (LOST,)) == ()


def test_edits_of_which_a_body_was_written_were_tried() -> None:
    written = Edit(op="rewrite", content="# Skill\n\n- better\n")
    assert tried((GOOD, LOST), (written,)) == (GOOD, LOST)


def test_of_notes_the_new_line_of_each_was_tried() -> None:
    notes = note_edits(SKILL, (Note(text="New A.", minibatch="failure 1"), Note(text="New B.", minibatch="failure 2")))
    assert [edit.content for edit in tried((GOOD,), (GOOD, *notes))] == ["- better", "- New A.", "- New B."]
