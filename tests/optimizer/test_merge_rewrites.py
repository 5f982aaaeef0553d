from typing import Any

import pytest
from scripted_optimizer import AnsweringOptimizer, ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.types import Edit, Patch, SourceType
from skillopt_airflow.optimizer.aggregate import aggregate, merge_rewrites


def body(content: str, source_type: SourceType, index: int, rationale: str = "") -> Edit:
    name = f"{source_type}-{index}"
    return Edit(op="rewrite", content=content, source_type=source_type, minibatches=(name,), rationale=rationale)


ONE, TWO = body("one", "failure", 0, "Why one."), body("two", "success", 0, "Why two.")


def test_bodies_become_one_that_has_the_support_of_all() -> None:
    optimizer = ScriptedOptimizer({"body": "both"})
    merged = merge_rewrites(optimizer, "# Skill", [[TWO], [ONE]], "failure-over-success", "Memory.")
    assert merged == Patch(
        edits=(
            Edit(
                op="rewrite",
                content="both",
                rationale="Why one. Why two.",
                support_count=2,
                source_type="failure",
                merge_level=1,
                minibatches=("success-0", "failure-0"),
            ),
        )
    )
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill")) == ("merge_rewrites", "# Skill")
    assert section(prompt, "priority") == "failure-over-success"
    assert [shown["content"] for shown in json_section(prompt, "edits")] == ["one", "two"]
    assert section(prompt, "meta_skill") == "Memory."


def test_a_single_part_and_equal_bodies_need_no_call() -> None:
    optimizer = ScriptedOptimizer()
    assert merge_rewrites(optimizer, "# Skill", [[ONE]], "failure", "").edits == (ONE,)
    same = merge_rewrites(optimizer, "# Skill", [[ONE], [body("one", "failure", 1)]], "failure", "")
    assert [(edit.content, edit.support_count) for edit in same.edits] == [("one", 2)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(unusable("body: missing"), "body: missing"), ({"body": " "}, "the body is blank")],
)
def test_an_unusable_answer_leaves_the_choice_of_one(answer: dict[str, Any] | ModelOutputError, why: str) -> None:
    merged = merge_rewrites(ScriptedOptimizer(answer), "# Skill", [[TWO], [ONE]], "failure-over-success", "")
    assert [edit.content for edit in merged.edits] == ["one", "two"]
    assert merged.fallback == f"merge_rewrites failure-over-success: {why}"


def test_levels_and_support_through_a_hierarchy() -> None:
    def unite(stage: str, prompt: str) -> dict[str, Any]:
        return {"body": "+".join(shown["content"] for shown in json_section(prompt, "edits"))}

    edits = [*(body(f"f{index}", "failure", index) for index in range(5)), body("s", "success", 0)]
    patches = [Patch(edits=(edit,)) for edit in edits]
    optimizer = AnsweringOptimizer(unite)
    merged = aggregate(optimizer, "# Skill", patches, 2, 4, "", bodies=True)
    # 5 to 3, of which one passes, to 2 to 1, then with the success.
    assert optimizer.stages == ["merge_rewrites"] * 5
    (one,) = merged.edits
    assert (one.content, one.support_count, one.merge_level) == ("f0+f1+f2+f3+f4+s", 6, 4)
    # They pass through as they are if no bodies are wanted, equal ones as one.
    again = Patch(edits=(body("s", "failure", 9),))
    kept = aggregate(ScriptedOptimizer(), "# Skill", [*patches, again], 2, 4, "")
    assert [edit.content for edit in kept.edits] == ["f0", "f1", "f2", "f3", "f4", "s"]
    assert (kept.edits[-1].minibatches, kept.edits[-1].support_count) == (("success-0", "failure-9"), 2)
