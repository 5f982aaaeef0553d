import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.buffer import BufferEntry, StepBuffer
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
