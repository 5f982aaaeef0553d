from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.run.state import BufferEntry, StepBuffer
from skillopt_airflow.core.values.edits import apply_edits, note_edits, notes_of
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, FailurePattern, Note, Patch
from skillopt_airflow.optimizer.rewrite import appendix_patch, consolidate, rewrite

BUFFER = StepBuffer(entries=(BufferEntry(step=1),))
PATCH = Patch(
    edits=(
        Edit(op="append", content="a", rationale="Why a.", support_count=3, source_type="success", merge_level=2),
        Edit(op="delete", anchor="b", rationale="Why b.", minibatches=("failure-0", "failure-1")),
        Edit(op="append", content="c", source_type="success", minibatches=("success-0", "failure-0")),
    ),
    failure_patterns=(FailurePattern(description="d"),),
    notes=(Note(text="n", minibatch="failure-0"),),
    fallback="rank: x",
)


def test_all_edits_become_one_rewrite_of_the_body() -> None:
    optimizer = ScriptedOptimizer({"body": "# New\n"})
    patch = rewrite(optimizer, "# Skill", PATCH, BUFFER)
    assert patch.edits == (
        Edit(
            op="rewrite",
            content="# New\n",
            rationale="Why a. Why b.",
            support_count=3,
            source_type="failure",
            merge_level=3,
            minibatches=("failure-0", "failure-1", "success-0"),
        ),
    )
    assert patch.model_copy(update={"edits": PATCH.edits}) == PATCH
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill")) == ("rewrite", "# Skill")
    assert [edit["op"] for edit in json_section(prompt, "edits")] == ["append", "delete", "append"]
    assert json_section(prompt, "step_buffer") == [{"step": 1, "items": 0, "failed": 0, "failure_patterns": []}]


def test_successes_alone_rewrite_as_successes() -> None:
    patch = Patch(edits=(PATCH.edits[0],))
    (edit,) = rewrite(ScriptedOptimizer({"body": "# New"}), "# Skill", patch, BUFFER).edits
    assert edit.source_type == "success"


@pytest.mark.parametrize(
    ("answer", "why"), [({"body": " \n"}, "the body is blank"), (unusable("body: missing"), "body: missing")]
)
def test_an_unusable_answer_leaves_the_edits_as_they_are(answer: dict[str, str] | Exception, why: str) -> None:
    patch = rewrite(ScriptedOptimizer(answer), "# Skill", PATCH, BUFFER)
    assert patch == PATCH.model_copy(update={"fallback": f"rank: x; rewrite: {why}"})


def test_without_edits_there_is_no_call() -> None:
    empty = Patch(notes=PATCH.notes)
    assert rewrite(ScriptedOptimizer(), "# Skill", empty, BUFFER) is empty


NOTES = tuple(
    Note(text=text, minibatch=minibatch)
    for text, minibatch in (("a", "failure-0"), ("b", "failure-0, failure-1"), ("c", "success-0"), ("d", "failure-1"))
)


def consolidated(*united: tuple[str, list[int]], most: int = 2) -> tuple[Sequence[Note], str]:
    answer = {"notes": [{"text": text, "sources": sources} for text, sources in united]}
    return consolidate(ScriptedOptimizer(answer), "# Skill", NOTES, most)


def test_notes_are_united_with_where_they_come_from() -> None:
    optimizer = ScriptedOptimizer(
        {"notes": [{"text": " a and\nb, d", "sources": [0, 1, 3]}, {"text": "c", "sources": [2]}]}
    )
    assert consolidate(optimizer, "# Skill", NOTES, 2) == (
        [Note(text="a and b, d", minibatch="failure-0, failure-1"), Note(text="c", minibatch="success-0")],
        "",
    )
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill"), section(prompt, "most")) == ("consolidate", "# Skill", "2")
    assert json_section(prompt, "notes") == ["a", "b", "c", "d"]


def test_what_the_answer_leaves_out_stays_and_a_note_counts_once() -> None:
    kept, fallback = consolidated(("ab", [0, 1]), most=3)
    assert [note.text for note in kept] == ["ab", "c", "d"]
    assert "kept: 2" in fallback
    kept, fallback = consolidated(("ab", [0, 1, 1]), ("again", [1, 0]), ("bcd", [1, 2, 3]))
    assert [(note.text, note.minibatch) for note in kept] == [
        ("ab", "failure-0, failure-1"),
        ("bcd", "success-0, failure-1"),
    ]
    assert "source" in fallback


def test_an_unusable_note_loses_none_of_its_sources() -> None:
    kept, fallback = consolidated(("x" * 10_000_000, [2]), ("abd", [0, 1, 3]))
    assert [note.text for note in kept] == ["abd", "c"]
    assert "10,000,000 characters" in fallback
    assert "kept: 1" in fallback


@pytest.mark.parametrize("answer", [unusable("refused"), {"notes": []}, {"notes": [{"text": "x", "sources": [9, -1]}]}])
def test_an_answer_that_makes_nothing_shorter_leaves_all_notes(answer: dict[str, Any] | Exception) -> None:
    kept, fallback = consolidate(ScriptedOptimizer(answer), "# Skill", NOTES, 2)
    assert kept == NOTES
    assert fallback.startswith("consolidate: ")


def test_more_notes_than_allowed_are_said() -> None:
    kept, fallback = consolidated(("ab", [0, 1]), ("c", [2]), ("d", [3]))
    assert len(kept) == 3
    assert "3 notes are left" in fallback


APPENDIX = SkillDocument("# Skill\n").with_region("APPENDIX", "- Known.")


@pytest.mark.parametrize(("notes", "most"), [((), 1), (NOTES, 0), (NOTES, 5)])
def test_new_notes_are_lines_of_the_appendix(notes: tuple[Note, ...], most: int) -> None:
    assert appendix_patch(ScriptedOptimizer(), APPENDIX, notes, most) == Patch(edits=note_edits(APPENDIX, notes))


def test_an_appendix_with_too_many_notes_is_consolidated() -> None:
    optimizer = ScriptedOptimizer({"notes": [{"text": "All of them", "sources": [0, 1, 2, 3]}]})
    patch = appendix_patch(optimizer, APPENDIX, NOTES, 4)
    assert patch.fallback == "consolidate: not in the answer, so kept: 1"
    assert notes_of(apply_edits(APPENDIX, patch.edits)[0]) == ("All of them", "d")


UNITED = st.lists(st.tuples(st.sampled_from(["x", "", "y z"]), st.lists(st.integers(-1, 5), min_size=1)), max_size=6)


@given(UNITED, st.integers(1, 3))
def test_no_source_is_ever_lost(united: list[tuple[str, list[int]]], most: int) -> None:
    kept, _ = consolidated(*united, most=most)
    assert len(kept) <= len(NOTES)
    sources = {name for note in kept for name in note.minibatch.split(", ")}
    assert sources == {"failure-0", "failure-1", "success-0"}
