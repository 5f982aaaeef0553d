"""The stand-in's stages: each answer is one that the product takes, and a candidate learns and is misled."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from local.standin.economy import HARMFUL, RULES, Economy, World
from local.standin.known_items import KnownItem
from local.standin.stage_request import StageRequest
from local.standin.standin_optimizer import Optimizer
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.types import Item, Message, Rollout, Score, Status, Trajectory
from skillopt_airflow.optimizer.comparison import compare, comparison_section
from skillopt_airflow.optimizer.sections import json_section, section
from skillopt_airflow.optimizer.transcripts import trajectories_section

SURE = Economy(rules=6, needs_rule=1.0, needs_nothing=0.0, chance=0.0, insight=1.0, slip=0.0, misled=0.0)
MISLED = Economy(rules=6, needs_rule=0.0, needs_nothing=1.0, chance=0.0, insight=1.0, slip=1.0, misled=1.0)
ITEMS = [f"item-{number}" for number in range(8)]


class Named:
    """Finds an item by its id in a question."""

    def find(self, text: str, pictures: Sequence[bytes] = ()) -> KnownItem | None:
        found = re.search(r"question (item-\d+)", text)
        item = None if found is None else Item(id=found[1], public={}, reference={})
        return None if item is None else KnownItem(benchmarks.load("searchqa"), item, lambda files: {})


def tried(*item_ids: str) -> list[Rollout]:
    return [
        Rollout(
            trajectory=Trajectory(
                item_id=item_id, status=Status.OK, messages=(Message(role="user", content=f"question {item_id}"),)
            ),
            score=Score(hard=0, soft=0),
        )
        for item_id in item_ids
    ]


def asked(stage: str, *sections: str, economy: Economy = SURE) -> dict[str, Any]:
    answer = Optimizer(World(economy=economy), Named()).stages[f"{stage}_result"]("\n\n".join(sections))
    assert isinstance(answer, dict)
    return answer


def reflected(
    stage: str, skill: str, *, economy: Economy = SURE, outcome: str = "failure", budget: str = "4", more: str = ""
) -> dict[str, Any]:
    return asked(
        stage,
        section("skill", skill),
        *([] if stage == "reflect_rewrite" else [section("budget", budget)]),
        section("outcome", outcome),
        trajectories_section(tried(*ITEMS), 50_000),
        json_section("step_buffer", []) + more,
        economy=economy,
    )


def listed(*contents: str, support: Sequence[int] = ()) -> str:
    edits = [{"index": i, "op": "append", "content": text} for i, text in enumerate(contents)]
    counts = [{"support_count": count} for count in support] if support else [{}] * len(edits)
    return json_section("edits", [edit | count for edit, count in zip(edits, counts, strict=True)])


def test_failures_bring_the_rules_that_the_skill_lacks_up_to_the_budget() -> None:
    needed = {World(economy=SURE).nature(item).rule for item in ITEMS}
    answer = reflected("reflect", "# Skill\n\n- First.")
    edits = answer["edits"]
    assert 0 < len(edits) <= 3
    assert {number for edit in edits for number in edit["items"]} <= set(range(1, 9))
    assert answer["failure_patterns"][0]["items"] == list(range(1, 9))
    assert {edit["content"].removeprefix("- ") for edit in edits} <= needed
    assert len(reflected("reflect", "# Skill", budget="1")["edits"]) == 1
    everything = "\n".join(f"- {rule}" for rule in RULES)
    assert [edit["content"] for edit in reflected("reflect", everything)["edits"] if edit["content"][2:] in RULES] == []


def test_an_optimizer_is_misled_deletes_what_led_astray_and_knows_better_when_it_looks_again() -> None:
    (harm,) = reflected("reflect", "# Skill", economy=MISLED)["edits"]
    assert harm["content"].removeprefix("- ") in HARMFUL
    spoiled = "# Skill\n\n" + "\n".join(f"- {sentence}" for sentence in HARMFUL)
    assert "delete" in {edit["op"] for edit in reflected("reflect", spoiled, economy=MISLED, budget="9")["edits"]}
    assert reflected("reflect", "# Skill", economy=MISLED, more="\n\n<draft>\n{}\n</draft>")["edits"] == []


def test_a_rewrite_of_reflection_holds_the_body_and_the_rules() -> None:
    body = reflected("reflect_rewrite", "# Skill\n\n<!-- APPENDIX_START -->\n<!-- APPENDIX_END -->")["body"]
    assert body.startswith("# Skill")
    assert any(rule in body for rule in RULES)
    assert "APPENDIX" not in body


def test_a_note_repeats_a_rule_that_the_skill_has() -> None:
    everything = "\n".join(f"- {rule}" for rule in RULES)
    (note,) = reflected("reflect_skill_aware", everything)["notes"]
    assert any(rule in note for rule in RULES)
    assert reflected("reflect_skill_aware", "# Skill")["notes"] == []


def test_merging_unites_edits_of_the_same_text_failures_first() -> None:
    edits = asked("merge", section("skill", "x"), section("priority", "none"), listed("- a", "- b", "- a"))["edits"]
    assert [(edit["content"], edit["sources"]) for edit in edits] == [("- a", [0, 2]), ("- b", [1])]


@pytest.mark.parametrize(("supports", "rate"), [([1, 1, 1], 1), ([2, 1, 3], 2), ([2] * 9, 4), ([], 1)])
def test_the_learning_rate_is_how_many_edits_several_minibatches_propose(supports: list[int], rate: int) -> None:
    shown = (section("skill", "x"), section("most", "4"), listed(*["- x"] * len(supports), support=supports))
    assert asked("learning_rate", *shown, json_section("step_buffer", []))["learning_rate"] == rate


def test_ranking_rewriting_and_asking() -> None:
    shown = (section("skill", "# Skill"), listed("- a", "- b", support=[1, 3]))
    assert asked("rank", *shown)["order"] == [1, 0]
    assert asked("rewrite", *shown) == {"body": "# Skill\n- a\n- b\n"}
    questions = asked("deep_reflect", section("skill", "x"), trajectories_section(tried("item-3"), 9_000))
    assert [question["item"] for question in questions["questions"]] == [1]


def test_notes_are_united_by_their_rule_and_limited() -> None:
    notes = [RULES[0], f"Keep to this rule: {RULES[0]}", "Other.", "Third."]
    found = asked("consolidate", section("skill", "x"), json_section("notes", notes), section("most", "2"))["notes"]
    assert [note["sources"] for note in found] == [[0, 1], [2, 3]]


def test_an_epoch_ends_with_guidance_memory_and_a_second_chance() -> None:
    failing = {one.trajectory.item_id: one for one in tried(*ITEMS)}
    compared = comparison_section(compare(failing, failing, ITEMS, "mixed"), 50_000)
    guided = asked("slow_update", section("skill", "x"), section("guidance", f"- {HARMFUL[0]}\n- Stay."), compared)
    assert HARMFUL[0] not in guided["guidance"]
    assert any(rule in guided["guidance"] for rule in RULES)
    rejected = {"op": "append", "content": f"- {RULES[0]}\n- {HARMFUL[1]}"}
    steps = json_section(
        "epoch_steps", [{"step": 1, "action": "reject", "edits": [rejected], "score_before": 0.5, "score_after": 0.4}]
    )
    memory = asked("meta_skill", section("memory", ""), compared, steps)["memory"]
    assert "1: reject" in memory
    assert HARMFUL[1] in memory
    (edit,) = asked("meta_reflect", section("skill", "x"), section("budget", "2"), steps)["edits"]
    assert edit["content"] == f"- {RULES[0]}"


@pytest.mark.parametrize("stage", ["reflect", "merge", "slow_update", "consolidate", "meta_reflect"])
def test_a_stage_without_its_sections_is_refused(stage: str) -> None:
    with pytest.raises(ModelError, match="<skill>"):
        asked(stage, "Hello.")


def test_raw_text_ends_at_its_last_closing_tag() -> None:
    request = StageRequest.read("<skill>\na </skill> b\n</skill>\n\n<meta_skill>\nm\n</meta_skill>", "skill")
    assert (request.skill, request.meta_skill) == ("a </skill> b", "m")
