from typing import Any

import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, rollout, section, unusable

from skillopt_airflow.core.buffer import BufferEntry, StepBuffer
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Edit, FailurePattern, Message, Note, Patch, Rollout, Status
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.minibatches import Minibatch
from skillopt_airflow.optimizer.reflect import ReflectContext, reflect
from skillopt_airflow.optimizer.transcripts import Exhibits, FollowUp, trajectories_section

PLAIN = OptimizerGroup()
AWARE = OptimizerGroup(use_skill_aware_reflection=True)
REWRITE = OptimizerGroup(skill_update_mode="full_rewrite_minibatch")
FAILURES = Minibatch(source_type="failure", index=2, rollouts=(rollout("a"), rollout("b")))
SUCCESSES = Minibatch(source_type="success", index=0, rollouts=(rollout("c", 1.0),))
SKILL = "# Skill <x>\n\n- one rule\n\n<!-- SLOW_UPDATE_START -->\nguidance\n<!-- SLOW_UPDATE_END -->\n"


def context(budget: int | None = 2, skill: str = SKILL, **fields: Any) -> ReflectContext:
    return ReflectContext(
        skill=skill, budget=budget, **({"buffer": StepBuffer(), "meta_skill": "", "rounds": 1} | fields)
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


def test_the_optimizer_is_told_which_answers_were_cut_off() -> None:
    whole = rollout("a", 0.0, answer="x")
    cut = whole.model_copy(update={"trajectory": whole.trajectory.model_copy(update={"status": Status.TRUNCATED})})
    shown = [json_section(trajectories_section([one]), "trajectories")[0] for one in (whole, cut)]
    assert shown[1] == {**shown[0], "cut_off": "The last answer hit the limit of tokens and ends there."}


def test_the_tries_of_an_item_stand_side_by_side_and_the_follow_up_at_the_first() -> None:
    tries = [rollout("a", 0.0, answer="x"), rollout("a", 1.0, answer="y"), rollout("b", 0.0)]
    follow_up = FollowUp(question="Why?", answer="Haste.")
    lost, won, other = json_section(trajectories_section(tries, Exhibits({"a": follow_up})), "trajectories")
    assert [(one["try"], one["hard"], one["answer"]) for one in (lost, won)] == [
        ("1 of 2", 0.0, "x"),
        ("2 of 2", 1.0, "y"),
    ]
    assert "try" not in other
    assert [one.get("follow_up") for one in (lost, won, other)] == [follow_up.model_dump(), None, None]


def test_an_analyst_of_several_tries_is_told_to_compare_them() -> None:
    def told(*rollouts: Rollout) -> str:
        optimizer = ScriptedOptimizer({})
        reflect(optimizer, context(), Minibatch(source_type="failure", index=0, rollouts=rollouts), PLAIN)
        return optimizer.instructions[0]

    once, twice = told(rollout("a"), rollout("b")), told(rollout("a"), rollout("a", 1.0), rollout("b"))
    assert twice == once + prompts.load("several_tries")


def test_of_the_tries_of_an_item_only_the_failed_ones_are_told_in_the_scorers_words() -> None:
    tries = (rollout("a", 0.0, "missed"), rollout("a", 0.5, "missed"), rollout("a", 1.0, "well done"))
    [pattern] = reflected({}, minibatch=Minibatch(source_type="failure", index=0, rollouts=tries)).failure_patterns
    assert (pattern.description, pattern.item_ids) == ("missed", ("a",))


def test_what_the_optimizer_is_shown() -> None:
    messages = (Message(role="system", content="the skill"), Message(role="user", content="</trajectories> <b>"))
    minibatch = Minibatch(source_type="failure", index=0, rollouts=(rollout("a", 0.0, messages=messages, answer="x"),))
    entry = BufferEntry(
        step=3,
        items=8,
        failed=5,
        failure_patterns=(FailurePattern(description="d", item_ids=("z",)),),
        rejected_edits=(Edit(op="append", content="tried", rationale="because"),),
        score_before=0.0,
        score_after=0.0,
    )
    optimizer = ScriptedOptimizer({})
    reflect(optimizer, context(4, buffer=StepBuffer(entries=(entry,))), minibatch, PLAIN)
    ((stage, prompt),) = optimizer.calls
    assert stage == "reflect"
    assert section(prompt, "skill") == SKILL
    assert (section(prompt, "budget"), section(prompt, "outcome")) == ("4", "failure")
    assert json_section(prompt, "trajectories") == [
        {
            "item_id": "a",
            "hard": 0.0,
            "soft": 0.0,
            "feedback": "feedback on a",
            "answer": "x",
            "messages": [{"role": "user", "content": "</trajectories> <b>"}],
        }
    ]
    assert json_section(prompt, "step_buffer") == [
        {
            "step": 3,
            "items": 8,
            "failed": 5,
            "failure_patterns": [{"description": "d", "item_ids": ["z"]}],
            "rejected_edits": [{"op": "append", "anchor": "", "content": "tried"}],
            "score_before": 0.0,
            "score_after": 0.0,
        }
    ]


@pytest.mark.parametrize(
    ("rules", "stage", "budget"),
    [(PLAIN, "reflect", True), (AWARE, "reflect_skill_aware", True), (REWRITE, "reflect_rewrite", False)],
)
def test_the_kinds_of_reflection_show_the_same(rules: OptimizerGroup, stage: str, budget: bool) -> None:
    answered = FollowUp(question="Why <this>?", answer="because")
    named, prompt = shown(rules, context(None, meta_skill="short rules win"), {"b": answered, "elsewhere": answered})
    assert named == stage
    assert ("<budget>\nunlimited\n</budget>" in prompt) == budget
    assert prompt.count("<budget>") == int(budget)
    first, second = json_section(prompt, "trajectories")
    assert "follow_up" not in first
    assert second["follow_up"] == {"question": "Why <this>?", "answer": "because"}
    assert prompt.endswith("\n\n<meta_skill>\nshort rules win\n</meta_skill>")
    assert "<meta_skill>" not in shown(rules, context(), {})[1]


def test_rewriting_from_suggestions_reflects_as_usual() -> None:
    assert shown(OptimizerGroup(skill_update_mode="rewrite_from_suggestions"), context(), {})[0] == "reflect"


@pytest.mark.parametrize("rules", [PLAIN, AWARE])
def test_edits_carry_where_they_come_from_and_stay_within_the_budget(rules: OptimizerGroup) -> None:
    answer = {
        "edits": [append(f"rule {index}") for index in range(5)],
        "failure_patterns": [{"description": "d", "item_ids": ["a", "a", "made up"]}],
    }
    patch = reflected(answer, rules)
    assert [edit.content for edit in patch.edits] == ["rule 0", "rule 1"]
    for edit in patch.edits:
        assert (edit.source_type, edit.minibatches) == ("failure", ("failure-2",))
        assert (edit.support_count, edit.merge_level) == (1, 0)
    assert patch.failure_patterns == (FailurePattern(description="d", item_ids=("a",)),)
    assert patch.fallback.endswith(" failure-2: 5 edits proposed, 2 allowed")


def test_within_the_budget_nothing_is_said() -> None:
    patch = reflected({"edits": [append("one"), append("two")]})
    assert (len(patch.edits), patch.fallback) == (2, "")


def test_without_a_budget_all_edits_stay_that_a_step_could_apply() -> None:
    assert len(reflected({"edits": [append("r")] * 200}, budget=None).edits) == 200
    patch = reflected({"edits": [append("r")] * 50_000}, budget=None)
    assert (len(patch.edits), patch.fallback) == (200, "reflect failure-2: 50000 edits proposed, 200 allowed")


@pytest.mark.parametrize(
    ("edit", "flaw"),
    [
        (append("x" * 100_001), "has 100,001 characters, 100,000 are allowed"),
        (append("x" * 10_000_000), "has 10,000,000 characters, 100,000 are allowed"),
        ({"op": "delete", "anchor": "x" * 100_001}, "has 100,001 characters, 100,000 are allowed"),
        ({"op": "delete", "anchor": "<!-- SLOW_UPDATE_END -->"}, "has the marker of a protected region in its anchor"),
        ({"op": "replace", "anchor": "guidance", "content": "x"}, "has its anchor in a protected region"),
        ({"op": "insert_after", "anchor": "guidance", "content": "x"}, "has its anchor in a protected region"),
        (append(" \n"), "has no content"),
        ({"op": "insert_after", "anchor": "one"}, "has no content"),
        ({"op": "delete", "anchor": " "}, "has no anchor"),
        ({"op": "replace", "content": "x"}, "has no anchor"),
    ],
)
def test_an_edit_that_cannot_be_applied_is_left_out_and_named(edit: dict[str, str], flaw: str) -> None:
    patch = reflected({"edits": [edit, append("good"), append("better")]})
    assert [kept.content for kept in patch.edits] == ["good", "better"]
    assert patch.fallback == f"reflect failure-2: edit 1 {flaw}"


@pytest.mark.parametrize("anchor", ["<!-- APPENDIX_START -->", "guidance", "nowhere"])
def test_what_is_appended_needs_no_anchor_and_is_not_refused_for_one(anchor: str) -> None:
    patch = reflected({"edits": [append("good") | {"anchor": anchor}]})
    assert ([edit.content for edit in patch.edits], patch.fallback) == (["good"], "")


def test_all_edits_of_an_answer_share_the_room_of_one_skill() -> None:
    patch = reflected({"edits": [append("x" * 60_000), append("y" * 60_000), append("z")]}, budget=9)
    assert [kept.content[0] for kept in patch.edits] == ["x", "z"]
    assert patch.fallback == (
        "reflect failure-2: edit 2 exceeds the 100,000 characters that all edits of an answer may have"
    )


@pytest.mark.parametrize("rules", [PLAIN, AWARE, REWRITE])
def test_a_draft_is_held_against_its_minibatch_and_corrected(rules: OptimizerGroup) -> None:
    draft = {"edits": [append("draft")], "body": "draft"} if rules is not REWRITE else {"body": "draft"}
    better = {"edits": [append("better")], "body": "better"} if rules is not REWRITE else {"body": "better"}
    optimizer = ScriptedOptimizer(draft, better, better)
    patch = reflect(optimizer, context(meta_skill="short", rounds=3), FAILURES, rules)
    assert [edit.content for edit in patch.edits] == ["better"]
    (stage, first), (_, second), (_, third) = optimizer.calls
    assert {stage} == {name for name, _ in optimizer.calls}
    assert "<draft>" not in first
    assert second.replace(f"<draft>\n{section(second, 'draft')}\n</draft>\n\n", "") == first
    assert '"draft"' in section(second, "draft")
    assert '"better"' in section(third, "draft")


def test_a_draft_that_stands_needs_no_further_round() -> None:
    optimizer = ScriptedOptimizer({"edits": [append("one")]}, {"edits": [append("one")]})
    patch = reflect(optimizer, context(rounds=3), FAILURES, PLAIN)
    assert (len(optimizer.calls), [edit.content for edit in patch.edits]) == (2, ["one"])


def test_an_unusable_correction_leaves_the_draft() -> None:
    optimizer = ScriptedOptimizer({"edits": [append("one"), append(" ")]}, unusable("op: unknown"))
    patch = reflect(optimizer, context(1, rounds=3), FAILURES, PLAIN)
    assert [edit.content for edit in patch.edits] == ["one"]
    assert patch.fallback == (
        "reflect failure-2: the draft stays: op: unknown; reflect failure-2: 2 edits proposed, 1 allowed"
    )


def test_failures_without_a_pattern_are_told_in_the_scorers_words() -> None:
    told = (
        FailurePattern(description="feedback on a", item_ids=("a",)),
        FailurePattern(description="feedback on b", item_ids=("b",)),
    )
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


def test_a_lost_anchor_is_left_to_the_update() -> None:
    patch = reflected({"edits": [{"op": "insert_after", "anchor": "## Gone", "content": "x"}]})
    assert (len(patch.edits), patch.fallback) == (1, "")


def test_absurd_patterns_are_left_out_and_named() -> None:
    patterns = [{"description": "x" * 2_001}, {"description": " "}, *({"description": "d"} for _ in range(100))]
    patch = reflected({"failure_patterns": patterns})
    assert patch.failure_patterns == (FailurePattern(description="d"),) * 48
    assert patch.fallback == (
        "reflect failure-2: a failure pattern has 2,001 characters, 2,000 are allowed, a failure pattern is blank, "
        "102 failure patterns, 50 are allowed"
    )


def test_a_fallback_stays_readable_whatever_was_wrong() -> None:
    patch = reflected({"edits": [append("x" * 100_001)] * 500})
    assert patch.fallback.count("edit ") == 5
    assert patch.fallback.endswith(", and 495 more")
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


def test_without_skill_aware_reflection_there_are_no_notes() -> None:
    assert reflected({"notes": ["n"]}).notes == ()


@pytest.mark.parametrize(
    ("note", "flaw"),
    [
        (" \n", "is blank"),
        ("x" * 2_001, "has 2,001 characters, 2,000 are allowed"),
        ("<!-- APPENDIX_END -->", "opens a comment, as a region's marker does"),
        ("<!-- APPENDIX_END", "opens a comment, as a region's marker does"),
    ],
)
def test_a_note_that_cannot_stand_in_the_appendix_is_left_out(note: str, flaw: str) -> None:
    patch = reflected({"notes": [note, "good"]}, AWARE)
    assert [kept.text for kept in patch.notes] == ["good"]
    assert patch.fallback == f"reflect_skill_aware failure-2: a note {flaw}"


def test_a_flood_of_notes() -> None:
    patch = reflected({"notes": ["n"] * 100_000}, AWARE)
    assert len(patch.notes) == 50
    assert patch.fallback == "reflect_skill_aware failure-2: 100000 notes, 50 are allowed"


def test_a_minibatch_rewrites_the_whole_body() -> None:
    answer = {"body": "# New\n", "rationale": "why", "failure_patterns": [{"description": "d", "item_ids": ["b"]}]}
    patch = reflected(answer, REWRITE, SUCCESSES)
    assert patch.edits == (
        Edit(op="rewrite", content="# New\n", rationale="why", source_type="success", minibatches=("success-0",)),
    )
    assert patch.failure_patterns == (FailurePattern(description="d"),)
    assert patch.fallback == ""


def test_a_body_with_the_marker_of_a_region_is_taken() -> None:
    patch = reflected({"body": SKILL}, REWRITE)
    assert ([edit.content for edit in patch.edits], patch.fallback) == ([SKILL], "")


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        ("\n", "is blank"),
        ("x" * 100_001, "has 100,001 characters, 100,000 are allowed"),
        ("<!-- SLOW_UPDATE_START -->\n", "is blank"),
    ],
)
def test_an_unusable_body_proposes_nothing(body: str, flaw: str) -> None:
    patch = reflected({"body": body, "failure_patterns": [{"description": "d"}]}, REWRITE)
    assert (patch.edits, patch.failure_patterns) == ((), (FailurePattern(description="d"),))
    assert patch.fallback == f"reflect_rewrite failure-2: the body {flaw}"


@pytest.mark.parametrize(
    ("rules", "stage"), [(PLAIN, "reflect"), (AWARE, "reflect_skill_aware"), (REWRITE, "reflect_rewrite")]
)
def test_an_unusable_answer_proposes_nothing_and_says_so(rules: OptimizerGroup, stage: str) -> None:
    patch = reflected(unusable("op: unknown"), rules, minibatch=SUCCESSES)
    assert patch == Patch(fallback=f"{stage} success-0: op: unknown")


@pytest.mark.parametrize("rules", [PLAIN, AWARE, REWRITE])
def test_a_provider_that_does_not_answer_is_no_fallback(rules: OptimizerGroup) -> None:
    with pytest.raises(ModelError, match="503"):
        reflected(ModelError("503"), rules)
