from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.state import BufferEntry, Measured, RunState, StepBuffer, seed_state, tried_edits
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import apply_edits, note_edits
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, Note, Patch


def version(number: int, *hard: float) -> Measured:
    scores = {f"i{index}": ItemScore(hard=value, soft=value) for index, value in enumerate(hard)}
    return Measured(version=number, sha256=f"sha-{number}", evaluation=Evaluation(scores=scores))


SEED = seed_state(Moment(kind="seed", epoch=0, step=0), version(0, 0, 0, 0))


def test_the_seed_is_current_and_best() -> None:
    assert (SEED.moment, SEED.step, SEED.newest) == ("steps/step_0000", 0, 0)
    assert SEED.current == SEED.best == version(0, 0, 0, 0)
    assert (SEED.buffer, SEED.meta_skill, SEED.stopped) == (StepBuffer(), "", "")
    resumed = RunState.model_validate_json(SEED.model_dump_json())
    assert resumed == SEED


def test_a_stored_buffer_is_read_unchanged() -> None:
    buffer = StepBuffer(entries=(BufferEntry(step=1), BufferEntry(step=2)))
    assert StepBuffer.model_validate_json(buffer.model_dump_json()) == buffer


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
