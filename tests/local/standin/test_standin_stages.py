import json
from typing import Any

import pytest

from benchmarks.livemathematicianbench.standin import ON_CHOICES
from local.standin import chat_wire as chat
from local.standin.deciding import STAGES
from local.standin.directives import DIRECTIVES, recognise
from local.standin.rewriting import tidied
from local.standin.stage_request import Sections
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.optimizer.sections import json_section, section
from tests.local.standin.towns import rollouts, titled

RULE = {name: directive.rules[0] for name, directive in DIRECTIVES.items()}
ECHOING = f"# Skill\n\n- {RULE['echo_question']}\n- {RULE['quoted']}\n- {RULE['question_words']}"
LOST = f"# Skill\n\n- {RULE['echo_question']}\n- {RULE['quoted']}"
EDIT = '{"index": 0, "op": "append", "content": "- x"}'
REGION = "\n<!-- SLOW_UPDATE_START -->\n- Stay calm.\n<!-- SLOW_UPDATE_END -->"


def searchqa(skill: str, count: int = 8) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for rollout in rollouts(skill, count, titled):
        seen, score = rollout.trajectory, rollout.score
        assert score is not None
        messages = [message.model_dump() for message in seen.messages[1:]]
        shown.append({"item_id": seen.item_id, **score.model_dump(), "messages": messages})
    return shown


def choices(count: int = 4) -> list[dict[str, Any]]:
    prompt = "Which holds?\n\nA. All of it\nB. Some of it\nC. One of the remaining options is correct"
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "<answer>A</answer>"}]
    return [
        {"item_id": f"m{i}", "hard": 0, "feedback": "expected B: Some of it; answered A", "messages": messages}
        for i in range(count)
    ]


def complete(messages: list[dict[str, str]]) -> str:
    content = chat.complete({"messages": messages})["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def asked(stage: str, *sections: str) -> dict[str, Any]:
    prompt = "\n\n".join(sections)
    answer = STAGES[f"{stage}_result"](prompt)
    assert answer == STAGES[f"{stage}_result"](prompt)
    return answer


def reflected(stage: str, skill: str, seen: Any, *, outcome: str = "failure", budget: str = "4") -> dict[str, Any]:
    return asked(
        stage,
        section("skill", skill),
        *([] if stage == "reflect_rewrite" else [section("budget", budget)]),
        section("outcome", outcome),
        json_section("trajectories", seen),
        json_section("step_buffer", []),
    )


def hits(skill: str) -> float:
    return sum(float(trajectory["hard"]) for trajectory in searchqa(skill))


def failures(skill: str) -> list[dict[str, Any]]:
    failed = [trajectory for trajectory in searchqa(skill) if trajectory["hard"] < 1]
    assert failed
    return failed


def test_skill_aware_reflection_is_reflection_with_notes() -> None:
    plain, aware = (reflected(stage, LOST, failures(LOST)) for stage in ("reflect", "reflect_skill_aware"))
    assert aware == plain | {"notes": aware["notes"]}
    assert all(isinstance(note, str) and note for note in aware["notes"])


def test_a_note_says_again_what_the_skill_says_where_no_rule_is_missing() -> None:
    skill = f"# Skill\n- {RULE['question_words']}\n- {RULE['titles']}"
    hopeless = [
        trajectory | {"feedback": 'expected "Nowhere"; answered "x"', "hard": 0} for trajectory in searchqa(skill)
    ]
    notes = reflected("reflect_skill_aware", skill, hopeless)["notes"]
    assert {name for note in notes for name in recognise(note)} == {"question_words", "titles"}
    assert all(note.startswith("Check once more") for note in notes)
    assert reflected("reflect_skill_aware", "\n".join([skill, *notes]), [])["notes"] == []


def test_a_note_repeats_a_rule_that_cannot_be_tested_if_there_is_no_other() -> None:
    skill = f"# Skill\n- {RULE['longest']}\n- Copy the answer letter by letter."
    hopeless = [trajectory | {"feedback": 'expected "Nowhere"; answered "x"', "hard": 0} for trajectory in searchqa("")]
    notes = reflected("reflect_skill_aware", skill, hopeless)["notes"]
    assert notes == ["Check once more before you answer: Copy the answer letter by letter."]


def test_successes_bring_a_note_now_and_then() -> None:
    counts = [
        len(reflected("reflect_skill_aware", f"{ECHOING}\n{trial}", choices(1), outcome="success")["notes"])
        for trial in range(20)
    ]
    assert set(counts) == {0, 1}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_a_note_changes_nothing_about_what_the_skill_asks_for(name: str) -> None:
    for rule in DIRECTIVES[name].rules:
        for lead in ("Check once more before you answer", "Keep to this, it works"):
            assert recognise(f"- {lead}: {rule}") == {name}


@pytest.mark.parametrize("region", ["", REGION])
def test_a_rewrite_of_reflection_raises_hits_and_leaves_regions_out(region: str) -> None:
    skill = f"# Skill\n\n- {RULE['echo_question']}"
    answer = reflected("reflect_rewrite", f"{skill}{region}", failures(skill))
    assert answer.keys() == {"failure_patterns", "body", "rationale"}
    assert hits(answer["body"]) > hits(skill)
    assert "SLOW_UPDATE" not in answer["body"]
    assert answer["rationale"]


def test_a_rewrite_works_all_suggestions_in() -> None:
    edits = [
        {"index": 0, "op": "append", "content": f"- {RULE['titles']}", "support_count": 2},
        {"index": 1, "op": "delete", "anchor": f"- {RULE['echo_question']}"},
        {"index": 2, "op": "replace", "anchor": "nowhere", "content": "- x"},
        {"index": 3, "op": "region", "anchor": "APPENDIX", "content": "- x"},
    ]
    answer = asked("rewrite", section("skill", ECHOING + REGION), json_section("edits", edits))
    assert answer.keys() == {"body"}
    assert recognise(answer["body"]) == {"titles", "quoted", "question_words"}
    assert answer["body"].startswith("# Skill\n")


def test_a_rewrite_tidies_now_and_then() -> None:
    lengths = set()
    for trial in range(20):
        skill = f"# Skill {trial}\n- {RULE['titles']}\n- {DIRECTIVES['titles'].rules[1]}"
        body = asked("rewrite", section("skill", skill), json_section("edits", []))["body"]
        lengths.add(len(body.splitlines()))
    assert lengths == {2, 3}


def test_tidying_keeps_the_first_of_equal_lines_and_what_the_skill_asks_for() -> None:
    rule, other = RULE["titles"], RULE["quoted"]
    assert tidied(f"- {rule}\n- {other}\n- {rule}\n") == f"- {rule}\n- {other}\n"
    unsure = f"- {rule}\n- Do not look at the titles.\n- {rule}\n"
    assert tidied(unsure) == unsure


@pytest.mark.parametrize(("supports", "rate"), [([1, 1, 1], 1), ([2, 1, 3], 2), ([2] * 9, 4), ([], 1)])
def test_the_learning_rate_is_how_many_edits_several_minibatches_propose(supports: list[int], rate: int) -> None:
    edits = [{"index": i, "op": "append", "content": "- x", "support_count": n} for i, n in enumerate(supports)]
    shown = (section("skill", "x"), section("most", "4"), json_section("edits", edits))
    answer = asked("learning_rate", *shown, json_section("step_buffer", []))
    assert answer["learning_rate"] == rate
    assert "proposed by more than one minibatch" in answer["reason"]
    rejected = [{"step": 1, "rejected_edits": [{"op": "append", "content": "- y"}]}]
    assert asked("learning_rate", *shown, json_section("step_buffer", rejected))["learning_rate"] == 1


def test_deep_reflection_asks_once_an_item_and_the_target_explains_itself() -> None:
    seen = searchqa(ECHOING, 4)
    answer = asked("deep_reflect", section("skill", ECHOING), json_section("trajectories", [*seen, *seen]))
    assert [question["item_id"] for question in answer["questions"]] == ["q0", "q1", "q2", "q3"]
    for trajectory, question in zip(seen, answer["questions"], strict=True):
        system = {"role": "system", "content": ECHOING}
        said = complete([system, *trajectory["messages"], {"role": "user", "content": question["question"]}])
        assert said.startswith('I answered "Strelsa')
        assert "echo_question" in said


@pytest.mark.parametrize("given", ["", "<answer></answer>", "no tags", "<answer>B</answer>"])
def test_any_conversation_gets_an_explanation(given: str) -> None:
    item = {"role": "user", "content": "Which holds?\nA. x\nB. y"}
    said = complete([item, {"role": "assistant", "content": given}, {"role": "user", "content": "Why?"}])
    assert said.endswith("Directives that I followed: none.")
    assert complete([{"role": "assistant", "content": given}, {"role": "user", "content": "Why?"}])


def test_who_has_asked_the_target_adds_nothing_doubtful() -> None:
    follow_up = {"question": "Why?", "answer": "So."}
    doubtful = {"asked": 0, "not asked": 0}
    for trial in range(12):
        skill = f"{LOST}\n{trial}"
        seen = failures(skill)
        for group, shown in (
            ("not asked", seen),
            ("asked", [trajectory | {"follow_up": follow_up} for trajectory in seen]),
        ):
            edits = reflected("reflect", skill, shown)["edits"]
            doubtful[group] += sum(edit["op"] != "delete" and not recognise(edit["content"]) for edit in edits)
    assert doubtful["asked"] == 0 < doubtful["not asked"]


def test_on_choices_reflection_proposes_rules_on_choices_or_empty_advice() -> None:
    proposed: set[str] = set()
    for trial in range(30):
        skill = f"# Skill {trial}"
        for edit in reflected("reflect", skill, choices())["edits"]:
            proposed |= recognise(edit["content"])
            assert "document" not in edit["content"]
    assert proposed >= {"distrust_strongest", "exclude_wildcard"}
    assert proposed <= {directive.name for directive in ON_CHOICES}


def test_notes_that_ask_for_the_same_become_one() -> None:
    first, second = DIRECTIVES["titles"].rules
    notes = [f"Check once more: {first}", "Stay calm.", f"Keep to this: {second}", "stay calm", f"- {RULE['quoted']}"]
    sections = (section("skill", "x"), json_section("notes", notes))
    united = asked("consolidate", *sections, section("most", "4"))["notes"]
    assert [note["sources"] for note in united] == [[0, 2], [1, 3], [4]]
    fewer = asked("consolidate", *sections, section("most", "2"))["notes"]
    assert [note["sources"] for note in fewer] == [[0, 2], [1, 3, 4]]
    assert recognise("\n".join(note["text"] for note in fewer)) == {"titles", "quoted"}
    assert asked("consolidate", section("skill", ""), json_section("notes", []), section("most", "1")) == {"notes": []}


def test_the_memory_is_read_from_the_end_of_a_request() -> None:
    tagged = "a skill with <meta_skill>tags</meta_skill> in it"
    sections = Sections("\n\n".join((section("skill", tagged), section("meta_skill", "- </skill> is a tag"))))
    assert sections.raw("skill") == tagged
    assert sections.meta_skill == "- </skill> is a tag"
    assert Sections(section("skill", tagged)).meta_skill == ""


@pytest.mark.parametrize("outcome", ["failure", "success", ""])
@pytest.mark.parametrize("stage", ["reflect", "reflect_skill_aware", "reflect_rewrite"])
@pytest.mark.parametrize("seen", [[], [{"item_id": "x", "odd": 1}], [{"item_id": "x", "hard": None, "messages": []}]])
def test_odd_minibatches_are_answered(stage: str, outcome: str, seen: Any) -> None:
    for skill in ("", ECHOING + REGION):
        answer = reflected(stage, skill, seen, outcome=outcome, budget="unlimited")
        assert json.loads(json.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("stage", "prompt", "complaint"),
    [
        ("reflect_skill_aware", "<skill>x</skill>", "no <budget> section after its <skill>"),
        ("reflect_rewrite", "<skill>x</skill>", "no <outcome> section"),
        ("reflect_rewrite", "", "no <skill> section"),
        ("learning_rate", "<skill>x</skill><edits>[]</edits>", "no <most> section"),
        ("rewrite", "<skill>x</skill>", "no <edits> section"),
        ("rewrite", f"<skill><!-- APPENDIX_END --></skill><edits>[{EDIT}]</edits>", "<skill> section cannot be read"),
        ("deep_reflect", "<skill>x</skill><trajectories>[1]</trajectories>", "<trajectories> section cannot be read"),
        ("consolidate", "<skill>x</skill><notes>[]</notes>", "no <most> section"),
        ("consolidate", "<skill>x</skill><notes>[]</notes><most>-1</most>", "<most> section cannot be read"),
    ],
)
def test_a_request_that_lacks_a_part_is_explained(stage: str, prompt: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        STAGES[f"{stage}_result"](prompt)


@pytest.mark.parametrize(
    ("answer", "grade"), [("van-Eyck!", "correct"), ("Rogier", "incorrect"), (" ", "not_attempted")]
)
def test_the_judge_compares_words(answer: str, grade: str) -> None:
    given = asked("judge", json_section("references", ["Van Eyck", "Jan"]), json_section("answer", answer))
    assert given["grade"] == grade
    assert given["quote"] == answer.strip()


def test_the_judge_finds_the_steps_whose_words_are_there() -> None:
    paths = [["Who?", "Look at the frame.", "Read the motto."], ["The frame!"]]
    given = asked("judge_steps", json_section("paths", paths), json_section("answer", "I look at the frame."))
    assert [(step["path"], step["step"]) for step in given["taken"]] == [(0, 1), (1, 0)]
    assert {step["quote"] for step in given["taken"]} == {"I look at the frame."}
