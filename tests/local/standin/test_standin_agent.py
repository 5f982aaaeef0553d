"""What agent CLIs send, cut down to what the stand-in reads; tests/rollout runs the CLIs themselves."""

import json
from typing import Any

import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK as CHOICES
from benchmarks.searchqa.adapter import BENCHMARK as SEARCHQA
from local.standin import chat_wire as chat
from local.standin import messages_wire as messages
from local.standin import responses_wire as responses
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.types import JsonObject

SKILL = "# Rules\n\n- Leave out words of the question.\n- Distrust the choice that claims most."
CONTEXT = "[DOC] [TLE] x [PAR] Ruritania is big. Ruritania has Strelsau."
ITEMS: list[tuple[Benchmark, JsonObject]] = [
    (SEARCHQA, {"question": "Ruritania has this capital", "context": CONTEXT}),
    (CHOICES, {"question": "Which holds?", "choices": ["All of it, always", "Some of it", "None of it, never"]}),
]
FRONT = "---\nname: quiz\ndescription: How to answer.\n---\n"
CODEX_LIST = """<skills_instructions>
### Skill roots
- `r0` = `/home/me/.codex/skills/.system`
- `r1` = `/work dir/.agents/skills`
### Available skills
- imagegen: Makes images. (file: r0/imagegen/SKILL.md)
- quiz: How to answer. (file: r1/quiz/SKILL.md)
</skills_instructions>"""
CLAUDE_LIST = """The following skills are available for use with the Skill tool:

- quiz: How to answer.
- review: Reviews a change."""
NOISE = "You are a coding agent. Prefer titles. Write in lower case. Answer with a whole sentence."


def codex(*items: dict[str, Any]) -> dict[str, Any]:
    def said(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    opening = [said("developer", NOISE), said("developer", CODEX_LIST)]
    opening.append(said("user", "<environment_context>\n  <cwd>/work dir</cwd>\n</environment_context>"))
    turns = [said("user", item["say"]) if "say" in item else item for item in items]
    return {"model": "m", "input": opening + turns, "tools": [{"type": "function", "name": "exec_command"}]}


def claude(*turns: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    opening = {"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nToday.\n</system-reminder>\n"}]}
    spoken = [{"role": role, "content": content} for role, content in turns]
    listed = {"role": "system", "content": CLAUDE_LIST}
    return {"system": NOISE, "messages": [opening, *spoken, listed], "tools": [{"name": "Bash"}, {"name": "Skill"}]}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def in_codex(skill: str, task: str) -> str:
    body = f"<skill>\n<name>quiz</name>\n<path>/work dir/x/SKILL.md</path>\n{FRONT}{skill}\n</skill>"
    (message,) = responses.respond(codex({"say": f"$quiz\n\n{task}"}, {"say": body}))["output"]
    return str(message["content"][0]["text"])


def in_claude(skill: str, task: str) -> str:
    command = "<command-message>quiz</command-message>\n<command-name>/quiz</command-name>\n"
    command += f"<command-args>{task}</command-args>\n"
    body = f"Base directory for this skill: /work dir/.claude/skills/quiz\n\n{skill}\n\nARGUMENTS: {task}"
    (block,) = messages.respond(claude(("user", [text(command), text(body)])))["content"]
    return str(block["text"])


@pytest.mark.parametrize(("benchmark", "public"), ITEMS, ids=["searchqa", "choices"])
@pytest.mark.parametrize("skill", [SKILL, ""], ids=["skill", "empty"])
@pytest.mark.parametrize("ask", [in_codex, in_claude])
def test_an_agent_cli_gets_the_answer_of_the_chat_harness(
    benchmark: Benchmark, public: JsonObject, skill: str, ask: Any
) -> None:
    conversation = [message.model_dump() for message in benchmark.messages(public, skill)]
    expected = chat.complete({"messages": conversation})["choices"][0]["message"]["content"]

    assert ask(skill, conversation[1]["content"]) == expected


def test_the_answers_depend_on_the_skill() -> None:
    _, user = SEARCHQA.messages(ITEMS[0][1], "")
    assert SEARCHQA.answer(in_codex(SKILL, user.content)) == "Strelsau"
    assert SEARCHQA.answer(in_codex("", user.content)) == "Ruritania"


def test_a_skill_that_codex_only_announces_is_read_and_followed() -> None:
    _, user = SEARCHQA.messages(ITEMS[0][1], "")
    asked = {"say": f"Follow the skill quiz.\n\n{user.content}"}
    (call,) = responses.respond(codex(asked))["output"]
    assert (call["name"], json.loads(call["arguments"])) == (
        "exec_command",
        {"cmd": "cat '/work dir/.agents/skills/quiz/SKILL.md'"},
    )

    printed = f"Chunk ID: 1\nProcess exited with code 0\nOutput:\n{FRONT}{SKILL}"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": printed}
    (message,) = responses.respond(codex(asked, call, result))["output"]
    assert SEARCHQA.answer(message["content"][0]["text"]) == "Strelsau"


def test_a_skill_that_claude_code_only_announces_is_loaded_and_followed() -> None:
    _, user = SEARCHQA.messages(ITEMS[0][1], "")
    asked = ("user", [text(f"Follow the skill quiz.\n\n{user.content}")])
    (call,) = messages.respond(claude(asked))["content"]
    assert (call["name"], call["input"]) == ("Skill", {"skill": "quiz"})

    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Launching skill: quiz"}
    loaded = text(f"Base directory for this skill: /work dir/.claude/skills/quiz\n\n{SKILL}")
    (block,) = messages.respond(claude(asked, ("assistant", [call]), ("user", [result, loaded])))["content"]
    assert SEARCHQA.answer(block["text"]) == "Strelsau"


def test_a_skill_that_nobody_names_is_left_alone() -> None:
    (message,) = responses.respond(codex({"say": "What is this?"}))["output"]
    assert message["type"] == "message"
    (block,) = messages.respond(claude(("user", [text("What is this?")])))["content"]
    assert block["type"] == "text"


WORKBOOK = """Change a workbook as the instruction says.

Instruction:
On sheet Sales, multiply price (column B) by count (column C).

Kind of instruction: Cell-Level Manipulation
Answer position: 'Sales'!D2:D3

The workbook is input.xlsx. Save the changed workbook as output.xlsx, with all its sheets.

The files that you are given lie in /in/files/0 ($INPUTS). What you make has to be in /out/files/0 ($OUTPUTS)."""


def test_a_program_goes_through_the_shell_of_a_cli() -> None:
    body = f"<skill>\n<name>quiz</name>\n<path>/x/SKILL.md</path>\n{FRONT}{SKILL}\n</skill>"
    asked = [{"say": f"$quiz\n\n{WORKBOOK}"}, {"say": body}]
    (call,) = responses.respond(codex(*asked))["output"]
    command = json.loads(call["arguments"])["cmd"]

    assert call["name"] == "exec_command"
    assert command.startswith("python3 - <<'PROGRAM'\n")
    assert "INPUT_PATH = os.path.join(os.environ[\"INPUTS\"], 'input.xlsx')" in command
    assert "load_workbook(INPUT_PATH)" in command

    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "[exit status 0]"}
    (message,) = responses.respond(codex(*asked, call, result))["output"]
    assert message["type"] == "message"


def test_files_that_are_no_workbook_are_answered_without_a_program() -> None:
    body = f"<skill>\n<name>quiz</name>\n<path>/x/SKILL.md</path>\n{FRONT}{SKILL}\n</skill>"
    page = "Question about the page: Who is the sender?\nReply with the answer inside <answer></answer> tags."
    files = WORKBOOK.rpartition("\n\n")[2]
    (message,) = responses.respond(codex({"say": f"$quiz\n\n{page}\n\n{files}"}, {"say": body}))["output"]
    assert message["type"] == "message"
    assert "workbook" not in message["content"][0]["text"]
