import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import AnsweringOptimizer, ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.values.types import Edit, FailurePattern, Note, Patch, SourceType
from skillopt_airflow.optimizer.aggregate import aggregate, merge
from skillopt_airflow.optimizer.proposals import without_duplicates


def edit(content: str, source_type: SourceType = "failure", *minibatches: str, **fields: Any) -> Edit:
    return Edit(op="append", content=content, source_type=source_type, minibatches=minibatches, **fields)


def proposed(content: str, source_type: SourceType, index: int) -> Patch:
    """What one minibatch proposes."""
    return Patch(edits=(edit(content, source_type, f"{source_type}-{index}"),))


def keep_all(stage: str, prompt: str) -> dict[str, Any]:
    """Merge by uniting equal contents."""
    sources: dict[str, list[int]] = {}
    for shown in json_section(prompt, "edits"):
        sources.setdefault(shown["content"], []).append(shown["index"])
    return {"edits": [{"op": "append", "content": text, "sources": found} for text, found in sources.items()]}


def test_provenance_goes_through_a_merge() -> None:
    one, two = edit("x", "success", "success-0"), edit("y", "failure", "failure-1", "failure-0", merge_level=2)
    answer = {"edits": [{"op": "append", "content": "xy", "rationale": "why", "sources": [0, 1, 0]}]}
    optimizer = ScriptedOptimizer(answer)
    merged = merge(optimizer, "# Skill", [[one], [two]], "failure-over-success", "")
    assert merged.edits == (
        Edit(
            op="append",
            content="xy",
            rationale="why",
            support_count=3,
            source_type="failure",
            merge_level=3,
            minibatches=("success-0", "failure-1", "failure-0"),
        ),
    )
    assert merged.fallback == ""
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill")) == ("merge", "# Skill")
    assert section(prompt, "priority") == "failure-over-success"
    assert [shown["index"] for shown in json_section(prompt, "edits")] == [0, 1]
    # Successes alone stay a success edit, and a minibatch counts once.
    parts = [[edit("x", "success", "success-0")], [edit("y", "success", "success-0", "success-1")]]
    answer = {"edits": [{"op": "append", "content": "xy", "sources": [0, 1]}]}
    (united,) = merge(ScriptedOptimizer(answer), "# Skill", parts, "success", "").edits
    assert (united.source_type, united.support_count) == ("success", 2)


PARTS = [[edit("s", "success", "success-0")], [edit("f", "failure", "failure-0"), edit("s", "failure", "failure-0")]]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (unusable("edits: missing"), "edits: missing"),
        ({"edits": [{"op": "append", "content": "invented", "sources": [7, -1]}]}, "known source"),
    ],
)
def test_an_unusable_merge_falls_back_to_failures_then_successes(
    answer: dict[str, Any] | ModelOutputError, why: str
) -> None:
    merged = merge(ScriptedOptimizer(answer), "# Skill", PARTS, "failure-over-success", "")
    assert [(e.content, e.source_type, e.support_count) for e in merged.edits] == [
        ("f", "failure", 1),
        ("s", "failure", 2),
    ]
    assert merged.fallback.startswith("merge failure-over-success: ")
    assert why in merged.fallback


def test_an_edit_without_a_known_source_is_left_out_and_recorded() -> None:
    contents = {"invented": [9], "f": [1, 9]}
    answer = {"edits": [{"op": "append", "content": text, "sources": found} for text, found in contents.items()]}
    merged = merge(ScriptedOptimizer(answer), "# Skill", PARTS, "failure", "")
    assert [(e.content, e.minibatches) for e in merged.edits] == [("f", ("failure-0",))]
    assert merged.fallback == "merge failure: left out, without a known source: invented"


def test_levels_and_support_through_a_hierarchy() -> None:
    patches = [proposed("same", "failure", index) for index in range(9)] + [proposed("good", "success", 0)]
    optimizer = AnsweringOptimizer(keep_all)
    merged = aggregate(optimizer, "# Skill", patches, 3, 4, "short rules win")
    # 9 to 3 to 1 failure patches, then both groups.
    assert optimizer.stages == ["merge"] * (3 + 1 + 1)
    assert all(section(prompt, "meta_skill") == "short rules win" for prompt in optimizer.prompts)
    same, good = merged.edits
    assert (same.content, same.support_count, same.merge_level, same.source_type) == ("same", 9, 3, "failure")
    assert same.minibatches == tuple(f"failure-{index}" for index in range(9))
    assert (good.content, good.support_count, good.merge_level, good.source_type) == ("good", 1, 1, "success")


def test_a_single_patch_needs_no_call() -> None:
    optimizer = ScriptedOptimizer()
    patches = [proposed("x", "failure", 0), Patch(), Patch(failure_patterns=(FailurePattern(description="d"),))]
    merged = aggregate(optimizer, "# Skill", patches, 8, 2, "")
    assert merged.edits == patches[0].edits
    assert merged.failure_patterns == (FailurePattern(description="d"),)
    assert aggregate(optimizer, "# Skill", [], 8, 2, "") == Patch()


def test_fallbacks_of_all_stages_are_kept() -> None:
    patches = [proposed("x", "failure", 0), proposed("y", "failure", 1), Patch(fallback="reflect success-0: bad")]
    merged = aggregate(ScriptedOptimizer(unusable("worse")), "# Skill", patches, 8, 2, "")
    assert [e.content for e in merged.edits] == ["x", "y"]
    assert merged.fallback == "reflect success-0: bad; merge failure: worse"


def test_the_result_does_not_depend_on_which_call_ends_first() -> None:
    patches = [proposed(f"rule {index}", "failure", index) for index in range(4)]
    later = threading.Event()

    def last_batch_first(stage: str, prompt: str) -> dict[str, Any]:
        contents = [shown["content"] for shown in json_section(prompt, "edits")]
        if contents == ["rule 0", "rule 1"]:
            assert later.wait(30)
        answer = keep_all(stage, prompt)
        if contents == ["rule 2", "rule 3"]:
            later.set()
        return answer

    merged = aggregate(AnsweringOptimizer(last_batch_first), "# Skill", patches, 2, 2, "")
    assert [e.content for e in merged.edits] == [f"rule {index}" for index in range(4)]


PATCHES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["failure", "success"])), max_size=12).map(
    lambda drawn: [proposed(content, source, index) for index, (content, source) in enumerate(drawn)]
)


@pytest.mark.nightly
@given(PATCHES, st.integers(2, 5), st.booleans())
def test_no_edit_and_no_minibatch_is_lost(patches: list[Patch], merge_batch_size: int, broken: bool) -> None:
    def answer(stage: str, prompt: str) -> dict[str, Any]:
        if broken:
            raise ModelOutputError("broken")
        return keep_all(stage, prompt)

    merged = aggregate(AnsweringOptimizer(answer), "# Skill", patches, merge_batch_size, 2, "")
    proposals = [e for patch in patches for e in patch.edits]
    assert {e.content for e in merged.edits} == {e.content for e in proposals}
    assert {name for e in merged.edits for name in e.minibatches} == {name for e in proposals for name in e.minibatches}
    assert all(e.support_count == len(e.minibatches) for e in merged.edits)
    levels = max((e.merge_level for e in merged.edits), default=0)
    assert levels <= 1 + len(patches).bit_length()


def test_an_edit_that_cannot_be_applied_goes_on_in_the_words_of_its_first_source() -> None:
    answer = {"edits": [{"op": "delete", "anchor": "<!-- APPENDIX_START -->", "sources": [1, 0]}]}
    patch = merge(ScriptedOptimizer(answer), "# Skill", PARTS, "failure", "")
    assert [(e.content, e.minibatches, e.merge_level) for e in patch.edits] == [("f", ("failure-0", "success-0"), 1)]
    assert patch.fallback.startswith("merge failure: ")
    assert "the marker of a protected region" in patch.fallback


@pytest.mark.nightly
def test_a_merge_does_not_multiply_edits() -> None:
    answer = {"edits": [{"op": "append", "content": f"copy {index}", "sources": [0]} for index in range(50_000)]}
    patch = merge(ScriptedOptimizer(answer), "# Skill", PARTS, "failure", "")
    assert [e.content for e in patch.edits] == ["copy 0", "copy 1", "copy 2"]
    assert "merge failure: " in patch.fallback
    assert "50000" in patch.fallback


def test_notes_stay_in_order_and_once() -> None:
    patches = [
        Patch(notes=(Note(text="Check the unit.", minibatch="failure-0"), Note(text="b", minibatch="failure-0"))),
        Patch(notes=(Note(text="check  the UNIT.", minibatch="failure-1"), Note(text="c", minibatch="failure-1"))),
    ]
    assert aggregate(ScriptedOptimizer(), "# Skill", patches, 8, 2, "").notes == (
        Note(text="Check the unit.", minibatch="failure-0"),
        Note(text="b", minibatch="failure-0"),
        Note(text="c", minibatch="failure-1"),
    )


def test_duplicates_are_one_level_of_merging_however_many_there_are() -> None:
    edits = [edit("x", "success", f"success-{index}") for index in range(4)] + [edit("y", "failure", "failure-0")]
    assert without_duplicates(edits) == (
        edit("y", "failure", "failure-0", merge_level=1),
        edit("x", "success", *(f"success-{index}" for index in range(4)), support_count=4, merge_level=1),
    )
    # Of equal texts other operations and anchors are different edits.
    edits = [
        Edit(op="replace", anchor="a", content="x"),
        Edit(op="replace", anchor="b", content="x"),
        Edit(op="insert_after", anchor="a", content="x"),
    ]
    assert len(without_duplicates(edits)) == 3
