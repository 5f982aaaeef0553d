from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import ScriptedOptimizer, json_section, rollout, section, unusable

from skillopt_airflow.core.values.types import Edit, Message, Patch, Rollout
from skillopt_airflow.optimizer.comparison import Comparison, PairPolicy, compare, comparison_section, slow_update
from skillopt_airflow.optimizer.meta_skill import EpochStep, meta_reflect
from skillopt_airflow.optimizer.meta_skill import meta_skill as whole_meta_skill

HARD = st.sampled_from([0.0, 0.4, 0.7, 1.0, None])


def compared(before: dict[str, float | None], after: dict[str, float | None]) -> Comparison:
    def rollouts(hards: dict[str, float | None]) -> dict[str, Rollout]:
        return {item_id: rollout(item_id, hard) for item_id, hard in hards.items()}

    return compare(rollouts(before), rollouts(after), sorted(before | after), "mixed")


def ids_of(comparison: Comparison) -> dict[str, str]:
    groups = comparison.model_dump(exclude={"unscored"})
    return {name: "".join(item["item_id"] for item in group) for name, group in groups.items()}


def test_the_hard_score_decides_on_the_group() -> None:
    before = {"a": 0.0, "b": 1.0, "c": 0.5, "d": 1.0, "e": 0.4, "f": 0.7}
    after = {"a": 1.0, "b": 0.9, "c": 0.5, "d": 1.0, "e": 0.7, "f": 0.4}
    assert ids_of(compared(before, after)) == {
        "improved": "ae",
        "regressed": "bf",
        "persistent_failure": "c",
        "stable_success": "d",
    }


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(HARD, HARD)))
def test_every_item_is_in_one_group_or_counted(pairs: dict[str, tuple[float | None, float | None]]) -> None:
    comparison = compared({name: pair[0] for name, pair in pairs.items()}, {n: pair[1] for n, pair in pairs.items()})
    assert sorted("".join(ids_of(comparison).values())) == sorted(
        name for name, pair in pairs.items() if None not in pair
    )
    assert comparison.unscored == sum(None in pair for pair in pairs.values())
    assert comparison.empty == all(None in pair for pair in pairs.values())
    assert compared({"c": 0.0}, {"d": 1.0}).unscored == 2


def test_each_question_is_shown_once_the_worst_groups_first_and_no_stable_success() -> None:
    def replied(item_id: str, hard: float, reply: str) -> Rollout:
        said = [("system", "the skill"), ("user", f"question {item_id}"), ("assistant", reply)]
        messages = tuple(Message(role=role, content=text) for role, text in said)  # type: ignore[arg-type]
        return rollout(item_id, hard, answer=reply, messages=messages)

    before = {name: replied(name, float(name in "bd"), f"before {name}") for name in "abcd"}
    after = {name: replied(name, float(name in "ad"), f"after {name}") for name in "abcd"}
    shown = section(comparison_section(compare(before, after, list("abcd"), "mixed"), 50_000), "comparison")
    titles = [line for line in shown.splitlines() if line.startswith(("# ", "## "))]
    assert [title.split(" (")[0].split(":")[0] for title in titles] == [
        *("# Regressed", "## Item 1", "# Persistent failures", "## Item 2", "# Improved", "## Item 3"),
        "# Stable successes",
    ]
    assert [shown.count(f"question {name}") for name in "abcd"] == [1, 1, 1, 0]
    assert shown.index("question b") < shown.index("before b") < shown.index("after b") < shown.index("question c")
    assert "the skill" not in shown


def test_a_trajectory_that_both_skills_share_is_shown_once() -> None:
    one = {"a": rollout("a", 1.0, messages=(Message(role="user", content="x"),))}
    [item] = compare(one, one, ["a"], "mixed").stable_success
    assert (item.feedback_before, item.messages_before) == ("", ())


@pytest.mark.parametrize(("policy", "seen"), [("changed", "bc"), ("unchanged", "a"), ("mixed", "abc")])
def test_a_policy_leaves_items_out(policy: PairPolicy, seen: str) -> None:
    before = {name: rollout(name, float(name in "bd")) for name in "abcd"}
    after = {name: rollout(name, float(name in "cd")) for name in "abcd"}
    comparison = compare(before, after, ["a", "b", "c"], policy)
    assert sorted("".join(ids_of(comparison).values())) == sorted(seen)
    assert comparison.unscored == 0


COMPARISON = compare({"a": rollout("a", 0.0)}, {"a": rollout("a", 1.0)}, ["a"], "mixed")


def test_what_the_optimizer_is_shown() -> None:
    optimizer = ScriptedOptimizer({"guidance": "\n- new\n", "reason": "a improved"})
    patch = slow_update(optimizer, "# Skill", "# Before", "former", COMPARISON, 50_000)
    edit = Edit(
        op="region", anchor="SLOW_UPDATE", content="- new", rationale="a improved", minibatches=("slow-update",)
    )
    assert patch == Patch(edits=(edit,))
    ((stage, prompt),) = optimizer.calls
    assert stage == "slow_update"
    assert (section(prompt, "skill"), section(prompt, "guidance")) == ("# Skill", "former")
    assert section(prompt, "previous_skill") == "# Before"
    assert section(prompt, "comparison").startswith("# Improved")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"guidance": "<!-- SLOW_UPDATE_END -->\n", "reason": "x"}, "blank"),
        ({"guidance": "x" * 20_001, "reason": "x"}, "20,001 characters"),
        (unusable("refused"), "refused"),
    ],
)
def test_an_unusable_answer_leaves_the_former_guidance(answer: dict[str, Any] | Exception, why: str) -> None:
    patch = slow_update(ScriptedOptimizer(answer), "# Skill", "# Before", "former", COMPARISON, 50_000)
    assert [(edit.content, edit.rationale) for edit in patch.edits] == [("former", "")]
    assert patch.fallback.startswith("slow_update: ")
    assert why in patch.fallback


def test_without_a_compared_item_there_is_no_call() -> None:
    patch = slow_update(ScriptedOptimizer(), "# Skill", "# Before", "former", Comparison(unscored=20), 50_000)
    assert ([edit.content for edit in patch.edits], patch.fallback) == (["former"], "")


LOST = compare({"a": rollout("a", 1.0)}, {"a": rollout("a", 0.0)}, ["a"], "mixed")
RULE = {"op": "append", "anchor": "", "content": "<rule>"}
SHOWN = [
    {"step": 1, "action": "reject", "score_before": 0.5, "score_after": 0.0, "interval": [-0.9, 0.1], "edits": [RULE]},
    {"step": 2, "action": "indecisive", "score_before": 0.5, "score_after": None, "interval": None, "edits": []},
]
STEPS = [
    EpochStep.model_validate(SHOWN[0] | {"edits": [RULE | {"rationale": "why"}]}),
    EpochStep.model_validate(SHOWN[1]),
]


def meta_skill(*asked: Any) -> tuple[str, str]:
    return whole_meta_skill(*asked, 50_000)


SKILL = "# Skill\n<!-- SLOW_UPDATE_START -->\nguidance\n<!-- SLOW_UPDATE_END -->"


def test_what_the_memory_is_written_from() -> None:
    optimizer = ScriptedOptimizer({"memory": " short rules win\n"}, {"memory": "x"})
    assert meta_skill(optimizer, "former", "# Now", "# Before", LOST, STEPS) == ("short rules win", "")
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "memory")) == ("meta_skill", "former")
    assert section(prompt, "comparison").startswith("# Regressed")
    assert json_section(prompt, "epoch_steps") == SHOWN
    assert (section(prompt, "skill"), section(prompt, "previous_skill")) == ("# Now", "# Before")
    # A skill that the epoch left as it was is shown once.
    meta_skill(optimizer, "", "# Now", "# Now", LOST, STEPS)
    prompt = optimizer.calls[1][1]
    assert prompt.count("# Now") == 1
    assert "<previous_skill>" not in prompt


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"memory": ""}, "blank"), ({"memory": "x" * 10_000_000}, "10,000,000"), (unusable("refused"), "refused")],
)
def test_a_miss_keeps_the_former_memory(answer: dict[str, Any] | Exception, why: str) -> None:
    kept, fallback = meta_skill(ScriptedOptimizer(answer), "former", "# Now", "# Before", LOST, STEPS)
    assert kept == "former"
    assert fallback.startswith("meta_skill: ")
    assert why in fallback


def test_nothing_to_learn_from_needs_no_call() -> None:
    assert meta_skill(ScriptedOptimizer(), "former", "# Now", "# Before", Comparison(), []) == ("former", "")
    assert meta_reflect(ScriptedOptimizer(), SKILL, [], 2) == Patch()
    # For the memory one of the two is enough.
    for comparison, steps in ((LOST, []), (Comparison(), STEPS)):
        assert meta_skill(ScriptedOptimizer({"memory": "m"}), "", "# Now", "# Before", comparison, steps) == ("m", "")


def test_meta_reflection_proposes_edits_from_the_epoch() -> None:
    optimizer = ScriptedOptimizer({"edits": [{"op": "append", "content": name} for name in "abc"]})
    patch = meta_reflect(optimizer, SKILL, STEPS, 2)
    assert patch.edits == tuple(
        Edit(op="append", content=name, source_type="failure", minibatches=("meta-reflect",)) for name in "ab"
    )
    assert patch.fallback == "meta_reflect: 3 edits proposed, 2 allowed"
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill"), section(prompt, "budget")) == ("meta_reflect", SKILL, "2")
    assert json_section(prompt, "epoch_steps") == SHOWN


@pytest.mark.parametrize(
    ("answer", "fallback"),
    [
        ({}, ""),
        (unusable("refused"), "meta_reflect: refused"),
        ({"edits": [{"op": "delete", "anchor": "guidance"}]}, "meta_reflect: edit 1 has its anchor in a protected"),
    ],
)
def test_meta_reflection_without_a_usable_edit_proposes_none(answer: dict[str, Any] | Exception, fallback: str) -> None:
    patch = meta_reflect(ScriptedOptimizer(answer), SKILL, STEPS, 2)
    assert patch.model_copy(update={"fallback": ""}) == Patch()
    assert patch.fallback.startswith(fallback)
    assert bool(patch.fallback) == bool(fallback)
