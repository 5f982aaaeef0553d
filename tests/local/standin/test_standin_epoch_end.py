from typing import Any

import pytest

from local.standin.deciding import STAGES
from local.standin.directives import DIRECTIVES, recognise, siblings, spoken_of
from local.standin.proposing import denial
from local.standin.remembered import Memory
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.optimizer.sections import json_section, section
from tests.local.standin.towns import rollouts

RULE = {name: directive.rules[0] for name, directive in DIRECTIVES.items()}
SEED = f"# Skill\n\n- {RULE['first_document']}\n"
GROUPS = ("improved", "regressed", "persistent_failure", "stable_success")


def in_region(skill: str, guidance: str) -> str:
    return f"{skill}\n<!-- SLOW_UPDATE_START -->\n{guidance}\n<!-- SLOW_UPDATE_END -->"


def compared(skill: str, count: int = 8) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for rollout in rollouts(skill, count):
        seen, score = rollout.trajectory, rollout.score
        assert score is not None
        outcome = {"hard": score.hard, "soft": score.soft, "answer": seen.answer}
        shown = {"feedback": score.feedback, "messages": [message.model_dump() for message in seen.messages[1:]]}
        entries.append({"item_id": seen.item_id, "before": outcome, "after": outcome, **shown})
    return entries


def comparison(skill: str, *, regressed: int = 0) -> dict[str, Any]:
    entries = compared(skill)
    failing = [entry for entry in entries if entry["after"]["hard"] < 1]
    fine = [entry for entry in entries if entry not in failing]
    return {"regressed": failing[:regressed], "persistent_failure": failing[regressed:], "stable_success": fine}


def hits(skill: str) -> float:
    return sum(float(entry["after"]["hard"]) for entry in compared(skill))


def asked(stage: str, *sections: str) -> dict[str, Any]:
    prompt = "\n\n".join(sections)
    answer = STAGES[f"{stage}_result"](prompt)
    assert answer == STAGES[f"{stage}_result"](prompt)
    return answer


def slow_update(skill: str, guidance: str, groups: Any) -> dict[str, Any]:
    return asked(
        "slow_update", section("skill", skill), section("guidance", guidance), json_section("comparison", groups)
    )


def meta_skill(memory: str, groups: Any, steps: Any) -> Memory:
    answer = asked(
        "meta_skill", section("memory", memory), json_section("comparison", groups), json_section("epoch_steps", steps)
    )
    assert answer.keys() == {"memory"}
    assert answer["memory"].strip()
    return Memory.parse(answer["memory"])


def meta_reflect(skill: str, budget: str, steps: Any, *more: str) -> list[dict[str, str]]:
    answer = asked(
        "meta_reflect", section("skill", skill), section("budget", budget), json_section("epoch_steps", steps), *more
    )
    assert answer.keys() == {"edits"}
    assert all(edit.keys() == {"op", "anchor", "content", "rationale"} for edit in answer["edits"])
    edits: list[dict[str, str]] = answer["edits"]
    return edits


def step(number: int, action: str, *edits: dict[str, str]) -> dict[str, Any]:
    return {"step": number, "action": action, "score_before": 0.5, "score_after": None, "edits": list(edits)}


def adding(*names: str) -> dict[str, str]:
    return {"op": "append", "anchor": "", "content": "\n".join(f"- {RULE[name]}" for name in names)}


@pytest.mark.parametrize("regressed", [0, 3])
def test_guidance_raises_hits_and_says_why(regressed: int) -> None:
    answer = slow_update(SEED, "", comparison(SEED, regressed=regressed))
    assert answer.keys() == {"guidance", "reason"}
    assert 1 <= len(answer["guidance"].splitlines()) <= 4
    assert hits(in_region(SEED, answer["guidance"])) > hits(SEED)
    assert f"{regressed} got worse" in answer["reason"]


def test_guidance_switches_off_what_the_body_asks_for_in_vain() -> None:
    answer = slow_update(SEED, "", comparison(SEED))
    assert "first_document" not in recognise(in_region(SEED, answer["guidance"]))
    assert f"This rule leads astray: {RULE['first_document']}" in answer["reason"]


def test_guidance_keeps_the_lines_that_hold_and_drops_the_others() -> None:
    former = f"Some words.\n- {RULE['question_words']}\n- {RULE['first_document']}"
    skill = in_region("# Skill\n", former)
    lines = slow_update(skill, former, comparison(skill))["guidance"].splitlines()
    assert f"- {RULE['question_words']}" in lines
    assert f"- {RULE['first_document']}" not in lines
    assert "Some words." not in lines


def test_guidance_has_a_tempting_rule_now_and_then() -> None:
    tempted = 0
    for trial in range(40):
        skill = f"{SEED}\n{trial}"
        asks = recognise(slow_update(skill, "", comparison(skill))["guidance"])
        tempted += any(DIRECTIVES[name].tempting for name in asks)
    assert 0 < tempted < 20


@pytest.mark.parametrize("name", DIRECTIVES)
def test_a_denial_switches_its_directive_off_and_no_other_on(name: str) -> None:
    denied = denial(name)
    if denied is not None:
        assert spoken_of(denied).get(name) is False
        assert not recognise(f"- {RULE[name]}\n- {denied}")


def test_tempting_directives_can_all_be_denied() -> None:
    assert all(denial(name) is not None for name, directive in DIRECTIVES.items() if directive.tempting)


def test_memory_holds_what_was_accepted_rejected_and_still_missing() -> None:
    steps = [
        step(1, "accept_new_best", adding("person")),
        step(2, "reject", adding("longest"), adding("quoted")),
        step(3, "accept", {"op": "delete", "anchor": RULE["first_document"], "content": ""}),
        step(4, "indecisive", adding("titles")),
        step(5, "accept", {"op": "rewrite", "anchor": "", "content": RULE["number"]}),
    ]
    memory = meta_skill("", comparison(SEED), steps)
    assert memory.accepted == ("person",)
    assert memory.rejected == ("longest", "quoted", "first_document")
    assert "question_words" in memory.missing


def test_memory_outlives_an_epoch_and_the_last_word_counts() -> None:
    memory = meta_skill("", {}, [step(1, "reject", adding("titles"), adding("longest"))])
    later = meta_skill(memory.text, {}, [step(2, "accept", adding("titles"))])
    assert (later.accepted, later.rejected) == (("titles",), ("longest",))


def test_what_would_help_is_not_remembered_as_rejected() -> None:
    memory = meta_skill("", comparison(SEED), [step(1, "reject", adding("question_words", "longest"))])
    assert memory.rejected == ("longest",)
    assert "question_words" in memory.missing


@pytest.mark.parametrize("text", ["", "Be patient.", Memory().text])
def test_a_memory_in_other_words_says_nothing(text: str) -> None:
    assert Memory.parse(text) == Memory()


def test_meta_reflection_goes_on_in_an_accepted_direction() -> None:
    edits = meta_reflect(SEED, "2", [step(1, "accept", adding("question_words"))])
    proposed = {name for edit in edits for name in recognise(edit["content"])}
    assert len(edits) == 2
    assert proposed <= set(siblings("question_words"))


def test_meta_reflection_leaves_out_what_the_memory_names_as_rejected() -> None:
    steps = [step(1, "accept", adding("question_words"))]
    memory = section("meta_skill", Memory(rejected=("quoted",)).text)
    with_it, without = (
        {name for edit in meta_reflect(SEED, "unlimited", steps, *more) for name in recognise(edit["content"])}
        for more in ((memory,), ())
    )
    assert without - with_it == {"quoted"}


def test_meta_reflection_tries_again_what_was_rejected_in_company() -> None:
    alone = meta_reflect(SEED, "4", [step(1, "reject", adding("titles"))])
    edits = meta_reflect(SEED, "4", [step(1, "reject", adding("titles"), adding("longest"))])
    assert alone == []
    assert [recognise(edit["content"]) for edit in edits] == [{"titles"}]


def test_meta_reflection_deletes_lines_that_repeat_others() -> None:
    again = DIRECTIVES["titles"].rules[1]
    edits = meta_reflect(f"# Skill\n- {RULE['titles']}\n- {again}", "unlimited", [])
    assert [(edit["op"], edit["anchor"]) for edit in edits] == [("delete", f"- {again}")]


def test_meta_reflection_keeps_to_its_budget() -> None:
    steps = [step(1, "accept", adding("question_words"))]
    assert len(meta_reflect(SEED, "1", steps)) == 1
    assert meta_reflect(SEED, "0", steps) == []


@pytest.mark.parametrize(
    "groups", [{}, {"other": [1]}, {group: [] for group in GROUPS}, {"regressed": [{"item_id": "x", "odd": 1}]}]
)
def test_odd_comparisons_are_answered(groups: Any) -> None:
    assert slow_update("", "", groups)["guidance"].startswith("- ")
    assert meta_skill("", groups, [step(1, "accept"), step(2, "accept", {"op": "append"})]) == Memory()


@pytest.mark.parametrize(
    ("stage", "prompt", "complaint"),
    [
        ("slow_update", "<skill>x</skill>", "no <guidance> section after its <skill>"),
        ("slow_update", "<skill>x</skill><guidance></guidance>", "no <comparison> section after its <guidance>"),
        ("slow_update", "<skill>x</skill><guidance></guidance><comparison>[</comparison>", "cannot be read"),
        ("meta_skill", "", "no <memory> section"),
        ("meta_skill", "<memory></memory><comparison>{}</comparison>", "no <epoch_steps> section"),
        ("meta_reflect", "<skill>x</skill><budget>many</budget>", "<budget> section cannot be read"),
        ("meta_reflect", "<skill>x</skill><budget>3</budget>", "no <epoch_steps> section"),
    ],
)
def test_a_request_that_lacks_a_part_is_explained(stage: str, prompt: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        STAGES[f"{stage}_result"](prompt)


def test_former_texts_may_hold_tags() -> None:
    tagged = "Inside <answer></answer>, not <memory></memory> or </guidance> or <comparison>."
    assert slow_update(SEED, tagged, comparison(SEED))["guidance"]
    assert meta_skill(tagged, {}, []) == Memory()
