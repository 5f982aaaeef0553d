import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.buffer import BufferEntry, StepBuffer
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import Edit, FailurePattern, Note, Patch
from skillopt_airflow.optimizer.rewrite import rewrite

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
    assert json_section(prompt, "step_buffer") == [{"step": 1, "failure_patterns": []}]


def test_successes_alone_rewrite_as_successes() -> None:
    patch = Patch(edits=(PATCH.edits[0],))
    (edit,) = rewrite(ScriptedOptimizer({"body": "# New"}), "# Skill", patch, BUFFER).edits
    assert edit.source_type == "success"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "the body is blank"),
        (" \n", "the body is blank"),
        ("<!-- SLOW_UPDATE_START -->\n", "the body is blank"),
        ("x" * 10_000_000, "the body has 10,000,000 characters, 100,000 are allowed"),
    ],
)
def test_an_unusable_body_leaves_the_edits_as_they_are(body: str, why: str) -> None:
    patch = rewrite(ScriptedOptimizer({"body": body}), "# Skill", PATCH, BUFFER)
    assert patch == PATCH.model_copy(update={"fallback": f"rank: x; rewrite: {why}"})


def test_a_body_with_the_marker_of_a_region_is_taken() -> None:
    body = "# New\n<!-- SLOW_UPDATE_START -->"
    patch = rewrite(ScriptedOptimizer({"body": body}), "# Skill", PATCH, BUFFER)
    assert ([edit.content for edit in patch.edits], patch.fallback) == ([body], PATCH.fallback)


def test_an_unusable_answer_leaves_the_edits_as_they_are() -> None:
    patch = rewrite(ScriptedOptimizer(unusable("body: missing")), "# Skill", PATCH, BUFFER)
    assert patch == PATCH.model_copy(update={"fallback": "rank: x; rewrite: body: missing"})


def test_without_edits_there_is_no_call() -> None:
    optimizer = ScriptedOptimizer()
    empty = Patch(notes=PATCH.notes)
    assert rewrite(optimizer, "# Skill", empty, BUFFER) is empty
    assert optimizer.calls == []


def test_a_provider_that_does_not_answer_is_no_fallback() -> None:
    with pytest.raises(ModelError, match="503"):
        rewrite(ScriptedOptimizer(ModelError("503")), "# Skill", PATCH, BUFFER)
