from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import ScriptedOptimizer, json_section, rollout, section, unusable

from skillopt_airflow.core.config.training_groups import OptimizerGroup
from skillopt_airflow.core.errors import AnswerCut, PromptTooLong
from skillopt_airflow.core.run.state import BufferEntry, StepBuffer
from skillopt_airflow.core.values.types import Edit, FailurePattern, Message, Note, Patch, Rollout
from skillopt_airflow.optimizer.reflect import Minibatch, ReflectContext, minibatches, reflect
from skillopt_airflow.optimizer.sections import load_prompt
from skillopt_airflow.optimizer.transcripts import Exhibits, FollowUp

PLAIN = OptimizerGroup()
AWARE = OptimizerGroup(use_skill_aware_reflection=True)
REWRITE = OptimizerGroup(skill_update_mode="full_rewrite_minibatch")
FAILURES = Minibatch(source_type="failure", index=2, rollouts=(rollout("a"), rollout("b")))
SUCCESSES = Minibatch(source_type="success", index=0, rollouts=(rollout("c", 1.0),))
SKILL = "# Skill <x>\n\n- one rule\n\n<!-- SLOW_UPDATE_START -->\nguidance\n<!-- SLOW_UPDATE_END -->\n"


def context(budget: int | None = 2, skill: str = SKILL, **fields: Any) -> ReflectContext:
    return ReflectContext(
        skill=skill, budget=budget, **({"buffer": StepBuffer(), "meta_skill": "", "rounds": 1, "room": 50_000} | fields)
    )


def reflected(
    answer: dict[str, Any] | Exception,
    rules: OptimizerGroup = PLAIN,
    minibatch: Minibatch = FAILURES,
    budget: int | None = 2,
) -> Patch:
    return reflect(ScriptedOptimizer(answer), context(budget), minibatch, rules)


def shown(rules: OptimizerGroup, reflect_context: ReflectContext, follow_ups: dict[str, FollowUp]) -> tuple[str, str]:
    """Stage and prompt of a call."""
    optimizer = ScriptedOptimizer({"body": "x"})
    reflect(optimizer, reflect_context, FAILURES, rules, Exhibits(follow_ups))
    ((stage, prompt),) = optimizer.calls
    return stage, prompt


def append(content: str) -> dict[str, str]:
    return {"op": "append", "content": content}


def test_an_analyst_of_several_samples_is_told_to_compare_them() -> None:
    def told(*rollouts: Rollout) -> str:
        optimizer = ScriptedOptimizer({})
        reflect(optimizer, context(), Minibatch(source_type="failure", index=0, rollouts=rollouts), PLAIN)
        return optimizer.instructions[0]

    once, twice = told(rollout("a"), rollout("b")), told(rollout("a"), rollout("a", 1.0), rollout("b"))
    assert twice == once + load_prompt("several_samples")


def test_of_the_tries_of_an_item_only_the_failed_ones_are_told_in_the_scorers_words() -> None:
    tries = (rollout("a", 0.0, "missed"), rollout("a", 0.5, "missed"), rollout("a", 1.0, "well done"))
    [pattern] = reflected({}, minibatch=Minibatch(source_type="failure", index=0, rollouts=tries)).failure_patterns
    assert (pattern.description, pattern.item_ids) == ("missed", ("a",))


def test_what_the_optimizer_is_shown() -> None:
    figures = {"step": 3, "items": 8, "failed": 5, "score_before": 0.0, "score_after": 0.0, "interval": [-0.1, 0.1]}
    tried = {"op": "append", "anchor": "", "content": "tried"}
    patterns = [{"description": "d", "item_ids": ["x" * 32, "z"]}]
    said = {"failure_patterns": patterns, "rejected_edits": [tried | {"rationale": "because"}]}
    entry = BufferEntry.model_validate(figures | said)
    optimizer = ScriptedOptimizer({})
    reflect(optimizer, context(4, buffer=StepBuffer(entries=(entry,))), FAILURES, PLAIN)
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill")) == ("reflect", SKILL)
    assert (section(prompt, "budget"), section(prompt, "outcome")) == ("4", "failure")
    shown = figures | {"failure_patterns": [{"description": "d", "items": 2}], "rejected_edits": [tried]}
    assert json_section(prompt, "step_buffer") == [shown]


@pytest.mark.parametrize(
    ("rules", "stage", "budget"),
    [
        (PLAIN, "reflect", True),
        (AWARE, "reflect_skill_aware", True),
        (REWRITE, "reflect_rewrite", False),
        (OptimizerGroup(skill_update_mode="rewrite_from_suggestions"), "reflect", True),
    ],
)
def test_the_kinds_of_reflection_show_the_same(rules: OptimizerGroup, stage: str, budget: bool) -> None:
    answered = FollowUp(question="Why <this>?", answer="because")
    named, prompt = shown(rules, context(None, meta_skill="short rules win"), {"b": answered, "elsewhere": answered})
    assert named == stage
    assert ("<budget>\nunlimited\n</budget>" in prompt) == budget
    assert prompt.count("<budget>") == int(budget)
    first, _, second = section(prompt, "trajectories").partition("## Item 2")
    assert "Why <this>?" not in first
    assert "~~~ follow-up question\nWhy <this>?\n~~~\n~~~ follow-up answer\nbecause\n~~~" in second
    assert prompt.endswith("\n\n<meta_skill>\nshort rules win\n</meta_skill>")
    assert "<meta_skill>" not in shown(rules, context(), {})[1]


@pytest.mark.parametrize("rules", [PLAIN, AWARE])
def test_edits_carry_where_they_come_from_and_stay_within_the_budget(rules: OptimizerGroup) -> None:
    answer = {
        "edits": [append(f"rule {index}") | {"items": [1, "Item 2", 2, 7]} for index in range(5)],
        "failure_patterns": [{"description": "d", "items": [1, 1, 99]}],
    }
    patch = reflected(answer, rules)
    assert [edit.content for edit in patch.edits] == ["rule 0", "rule 1"]
    for edit in patch.edits:
        assert (edit.source_type, edit.minibatches) == ("failure", ("failure-2",))
        assert (edit.item_ids, edit.support_count, edit.merge_level) == (("a", "b"), 2, 0)
    assert patch.failure_patterns == (FailurePattern(description="d", item_ids=("a",)),)
    assert patch.fallback.endswith(" failure-2: 5 edits proposed, 2 allowed")


def test_without_a_budget_all_edits_stay_that_a_step_could_apply() -> None:
    patch = reflected({"edits": [append("r")] * 200}, budget=None)
    assert (len(patch.edits), patch.fallback) == (200, "")
    patch = reflected({"edits": [append("r")] * 50_000}, budget=None)
    assert len(patch.edits) == 200
    assert "50000 edits proposed" in patch.fallback


@pytest.mark.parametrize(
    ("edit", "flaw"),
    [
        (append("x" * 100_001), "100,001 characters"),
        ({"op": "delete", "anchor": "x" * 100_001}, "100,001 characters"),
        ({"op": "delete", "anchor": "<!-- SLOW_UPDATE_END -->"}, "marker of a protected region in its anchor"),
        ({"op": "replace", "anchor": "guidance", "content": "x"}, "anchor in a protected region"),
        ({"op": "insert_after", "anchor": "one"}, "no content"),
        ({"op": "delete", "anchor": " "}, "no anchor"),
    ],
)
def test_an_edit_that_cannot_be_applied_is_left_out_and_named(edit: dict[str, str], flaw: str) -> None:
    patch = reflected({"edits": [edit, append("good"), append("better")]})
    assert [kept.content for kept in patch.edits] == ["good", "better"]
    assert patch.fallback.startswith("reflect failure-2: edit 1 ")
    assert flaw in patch.fallback


@pytest.mark.parametrize(
    ("op", "anchor"), [("append", "<!-- APPENDIX_START -->"), ("append", "guidance"), ("insert_after", "## Gone")]
)
def test_what_is_appended_needs_no_anchor_and_a_lost_one_is_left_to_the_update(op: str, anchor: str) -> None:
    patch = reflected({"edits": [{"op": op, "anchor": anchor, "content": "good"}]})
    assert ([edit.content for edit in patch.edits], patch.fallback) == (["good"], "")


def test_all_edits_of_an_answer_share_the_room_of_one_skill() -> None:
    patch = reflected({"edits": [append("x" * 60_000), append("y" * 60_000), append("z")]}, budget=9)
    assert [kept.content[0] for kept in patch.edits] == ["x", "z"]
    assert patch.fallback.startswith("reflect failure-2: edit 2 exceeds")


@pytest.mark.parametrize("rules", [PLAIN, AWARE, REWRITE])
def test_a_draft_is_held_against_its_minibatch_and_corrected(rules: OptimizerGroup) -> None:
    draft, better = ({"body": text} if rules is REWRITE else {"edits": [append(text)]} for text in ("draft", "better"))
    optimizer = ScriptedOptimizer(draft, better, better)
    # The third answer is the second one, so there is no fourth round.
    patch = reflect(optimizer, context(meta_skill="short", rounds=5), FAILURES, rules)
    assert [edit.content for edit in patch.edits] == ["better"]
    (stage, first), (_, second), (_, third) = optimizer.calls
    assert {stage} == {name for name, _ in optimizer.calls}
    assert "<draft>" not in first
    assert second.replace(f"<draft>\n{section(second, 'draft')}\n</draft>\n\n", "") == first
    assert '"draft"' in section(second, "draft")
    assert '"better"' in section(third, "draft")


def test_an_unusable_correction_leaves_the_draft() -> None:
    optimizer = ScriptedOptimizer({"edits": [append("one"), append(" ")]}, unusable("op: unknown"))
    patch = reflect(optimizer, context(1, rounds=3), FAILURES, PLAIN)
    assert [edit.content for edit in patch.edits] == ["one"]
    assert "the draft stays: op: unknown" in patch.fallback
    assert "2 edits proposed" in patch.fallback


def test_failures_without_a_pattern_are_told_in_the_scorers_words() -> None:
    told = tuple(FailurePattern(description=f"feedback on {item}", item_ids=(item,)) for item in "ab")
    assert reflected({"edits": [append("one")]}).failure_patterns == told
    assert reflected(unusable("refused")).failure_patterns == told
    assert reflected({}, minibatch=SUCCESSES).failure_patterns == ()


def test_the_scorers_words_are_few_short_and_the_most_frequent_first() -> None:
    said = ["once", "x" * 1000, "thrice", "thrice", "thrice", "twice", "twice", " "]
    scored = [rollout(f"i{place}", feedback=words) for place, words in enumerate(said)]
    minibatch = Minibatch(source_type="failure", index=0, rollouts=tuple(scored))
    first, second, third = reflected({}, minibatch=minibatch).failure_patterns
    assert (first.description, first.item_ids) == ("thrice", ("i2", "i3", "i4"))
    assert (second.description, third.description) == ("twice", "once")


def test_absurd_patterns_are_left_out_and_named() -> None:
    patterns = [{"description": "x" * 2_001}, {"description": " "}, *({"description": "d"} for _ in range(100))]
    patch = reflected({"failure_patterns": patterns})
    assert patch.failure_patterns == (FailurePattern(description="d"),) * 48
    assert all(flaw in patch.fallback for flaw in ("2,001 characters", "blank", "102 failure patterns"))


@pytest.mark.nightly
def test_a_fallback_stays_readable_whatever_was_wrong() -> None:
    patch = reflected({"edits": [append("x" * 100_001)] * 500})
    assert patch.fallback.count("edit ") == 5
    assert "495 more" in patch.fallback
    assert len(reflected(unusable("x" * 10_000_000)).fallback) < 400


def test_lapses_become_notes_of_one_line() -> None:
    answer = {"edits": [append("rule")], "notes": ["Check \n  the\tunit.", "End with the answer."]}
    patch = reflected(answer, AWARE)
    assert patch.notes == (
        Note(text="Check the unit.", minibatch="failure-2"),
        Note(text="End with the answer.", minibatch="failure-2"),
    )
    assert ([edit.content for edit in patch.edits], patch.fallback) == (["rule"], "")


@pytest.mark.parametrize(("source", "failure", "success"), [("failure", 1, 0), ("success", 0, 1), ("both", 1, 1)])
def test_the_configured_minibatches_add_notes(source: Any, failure: int, success: int) -> None:
    rules = OptimizerGroup(use_skill_aware_reflection=True, skill_aware_appendix_source=source)
    patches = [reflected({"notes": ["n"]}, rules, minibatch) for minibatch in (FAILURES, SUCCESSES)]
    assert [len(patch.notes) for patch in patches] == [failure, success]
    assert [patch.fallback for patch in patches] == ["", ""]


@pytest.mark.parametrize(
    ("notes", "kept", "flaw"),
    [
        ([" \n", "good"], 1, "a note is blank"),
        (["x" * 2_001, "good"], 1, "a note has 2,001 characters"),
        (["<!-- APPENDIX_END", "good"], 1, "a note opens a comment"),
        (["good"] * 100_000, 50, "100000 notes"),
    ],
    ids=["blank", "long", "comment", "flood"],
)
def test_a_note_that_cannot_stand_in_the_appendix_is_left_out(notes: list[str], kept: int, flaw: str) -> None:
    patch = reflected({"notes": notes}, AWARE)
    assert [note.text for note in patch.notes] == ["good"] * kept
    assert patch.fallback.startswith(f"reflect_skill_aware failure-2: {flaw}")
    assert reflected({"notes": notes}).notes == ()


def test_a_minibatch_rewrites_the_whole_body() -> None:
    # Also one with the marker of a region.
    answer = {"body": SKILL, "rationale": "why", "failure_patterns": [{"description": "d", "items": [2]}]}
    patch = reflected(answer, REWRITE, SUCCESSES)
    assert patch.edits == (
        Edit(op="rewrite", content=SKILL, rationale="why", source_type="success", minibatches=("success-0",)),
    )
    assert patch.failure_patterns == (FailurePattern(description="d"),)
    assert patch.fallback == ""


@pytest.mark.parametrize(
    ("body", "flaw"),
    [("\n", "blank"), ("x" * 100_001, "100,001 characters"), ("<!-- SLOW_UPDATE_START -->\n", "blank")],
)
def test_an_unusable_body_proposes_nothing(body: str, flaw: str) -> None:
    patch = reflected({"body": body, "failure_patterns": [{"description": "d"}]}, REWRITE)
    assert (patch.edits, patch.failure_patterns) == ((), (FailurePattern(description="d"),))
    assert patch.fallback.startswith("reflect_rewrite failure-2: the body ")
    assert flaw in patch.fallback


def test_a_minibatch_that_is_too_long_for_the_model_is_asked_about_in_halves() -> None:
    answers = [{"edits": [append(name) | {"items": [1]}]} for name in ("first", "second")]
    optimizer = ScriptedOptimizer(PromptTooLong("400"), *answers)
    patch = reflect(optimizer, context(), FAILURES, PLAIN)
    assert [(edit.content, edit.item_ids) for edit in patch.edits] == [("first", ("a",)), ("second", ("b",))]
    assert patch.fallback == ""


def test_an_item_that_is_too_long_for_the_model_is_shortened_until_it_fits_or_given_up() -> None:
    long = rollout("a", messages=(Message(role="user", content="x" * 100_000),))
    alone = Minibatch(source_type="failure", index=0, rollouts=(long,))
    optimizer = ScriptedOptimizer(PromptTooLong("400"), {"edits": [append("one")]})
    assert [edit.content for edit in reflect(optimizer, context(), alone, PLAIN).edits] == ["one"]
    (_, first), (_, second) = optimizer.calls
    assert len(second) < len(first) / 2 + 100
    given_up = reflect(ScriptedOptimizer(*[PromptTooLong("400")] * 9), context(), alone, PLAIN)
    assert (given_up.edits, given_up.fallback) == ((), "reflect failure-0: 400")


def test_an_answer_that_was_cut_is_asked_for_again_briefly() -> None:
    optimizer = ScriptedOptimizer(AnswerCut("cut"), {"rules": ["one", "- two\nlines", " "]})
    patch = reflect(optimizer, context(), FAILURES, PLAIN)
    assert [(edit.op, edit.content) for edit in patch.edits] == [("append", "- one"), ("append", "- two lines")]
    assert "token limit" in patch.fallback
    assert optimizer.instructions[1] == load_prompt("reflect_brief")
    assert len(optimizer.calls[1][1]) < len(optimizer.calls[0][1])
    twice = reflect(ScriptedOptimizer(AnswerCut("cut"), AnswerCut("cut again")), context(), FAILURES, PLAIN)
    assert (twice.edits, twice.fallback) == ((), "reflect failure-2: cut again")


def test_a_success_is_asked_about_again_in_the_same_words() -> None:
    optimizer = ScriptedOptimizer(AnswerCut("cut"), {"rules": ["one"]})
    assert [edit.content for edit in reflect(optimizer, context(), SUCCESSES, PLAIN).edits] == ["- one"]
    assert optimizer.instructions[1] == optimizer.instructions[0] + load_prompt("shorter")


HARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30)


@given(HARDS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_minibatches_do_not_depend_on_the_order_of_arrival(
    hards: list[float | None], size: int, random: object
) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hard in enumerate(hards)]
    cut = minibatches([rollouts], size, "42-step-1", False)
    random.shuffle(rollouts)  # type: ignore[attr-defined]
    assert minibatches([rollouts], size, "42-step-1", False) == cut


def slices_of(hards: list[list[float | None]]) -> list[list[Rollout]]:
    return [
        [rollout(f"s{number}-{index:02d}", hard) for index, hard in enumerate(part)]
        for number, part in enumerate(hards)
    ]


@given(st.lists(HARDS, max_size=4), st.integers(1, 9))
def test_slices_are_cut_apart_and_indices_run_on(hards: list[list[float | None]], size: int) -> None:
    slices = slices_of(hards)
    cut = minibatches(slices, size, "s", False)
    for source_type in ("failure", "success"):
        indices = [batch.index for batch in cut if batch.source_type == source_type]
        assert indices == [*range(len(indices))]
    for batch in cut:
        assert len({part.trajectory.item_id.split("-")[0] for part in batch.rollouts}) == 1
    for count in range(len(slices)):
        earlier = minibatches(slices[:count], size, "s", False)
        assert cut[: len(earlier)] == earlier


@given(st.lists(HARDS, max_size=3), st.integers(1, 9))
def test_failures_only(hards: list[list[float | None]], size: int) -> None:
    slices = slices_of(hards)
    both = minibatches(slices, size, "s", False)
    assert minibatches(slices, size, "s", True) == [batch for batch in both if batch.source_type == "failure"]


def test_one_slice_is_cut_as_ever() -> None:
    rollouts = [rollout(f"i{index}", float(index % 3 == 0)) for index in range(10)]
    assert [
        (batch.name, [part.trajectory.item_id for part in batch.rollouts])
        for batch in minibatches([rollouts], 4, "42-step-1", False)
    ] == [("failure-0", ["i4", "i8", "i5", "i2"]), ("failure-1", ["i1", "i7"]), ("success-0", ["i6", "i3", "i0", "i9"])]


TRIES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=4), max_size=12)


@given(TRIES, st.integers(1, 5))
def test_the_tries_of_an_item_stay_together_the_lowest_score_first(tries: list[list[float | None]], size: int) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hards in enumerate(tries) for hard in hards]
    cut = minibatches([rollouts], size, "s", False)
    found = {of_item[0].trajectory.item_id: (batch, of_item) for batch in cut for of_item in batch.items}
    assert len(found) == sum(len(batch.items) for batch in cut)
    assert len({batch.name for batch in cut}) == len(cut)
    assert all(len(batch.items) <= size for batch in cut)
    scored = {f"i{index:02d}": [hard for hard in hards if hard is not None] for index, hards in enumerate(tries)}
    assert found.keys() == {item_id for item_id, hards in scored.items() if hards}
    for item_id, (batch, of_item) in found.items():
        hards = [one.score.hard for one in of_item if one.score]
        assert hards == sorted(scored[item_id])
        assert batch.source_type == ("failure" if sum(hards) < len(hards) else "success")
        assert batch.repeats == any(len(others) > 1 for others in batch.items)


def test_items_with_several_samples_are_grouped_like_those_with_one() -> None:
    once = [rollout(f"i{index:02d}", float(index % 3 == 0)) for index in range(20)]
    one, two = (minibatches([rollouts], 4, "s", False) for rollouts in (once, [*once, *once]))
    names = [
        [(batch.name, [tries[0].trajectory.item_id for tries in batch.items]) for batch in cut] for cut in (one, two)
    ]
    assert names[0] == names[1]
