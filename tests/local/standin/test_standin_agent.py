"""What agent CLIs send, cut down to what the stand-in reads; tests/rollout runs the CLIs themselves."""

import json
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire as chat
from local.standin import messages_wire as messages
from local.standin import responses_wire as responses
from local.standin.known_items import of_benchmark
from tests.local.standin.questions import ANSWER, SKILL, STAND_IN, SYSTEM, USER

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
NOISE = "You are a coding agent."


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
    (message,) = responses.respond(codex({"say": f"$quiz\n\n{task}"}, {"say": body}), STAND_IN.reply)["output"]
    return str(message["content"][0]["text"])


def in_claude(skill: str, task: str) -> str:
    command = "<command-message>quiz</command-message>\n<command-name>/quiz</command-name>\n"
    command += f"<command-args>{task}</command-args>\n"
    body = f"Base directory for this skill: /work dir/.claude/skills/quiz\n\n{skill}\n\nARGUMENTS: {task}"
    (block,) = messages.respond(claude(("user", [text(command), text(body)])), STAND_IN.reply)["content"]
    return str(block["text"])


@pytest.mark.parametrize("ask", [in_codex, in_claude])
def test_an_agent_cli_gets_the_answer_of_the_chat_harness(ask: Any) -> None:
    conversation = [SYSTEM.model_dump(), USER.model_dump()]
    expected = chat.complete({"messages": conversation}, STAND_IN.reply)["choices"][0]["message"]["content"]
    assert ask(SKILL, USER.content) == expected
    assert BENCHMARK.answer(expected) == ANSWER
    assert BENCHMARK.answer(ask("", USER.content)) != ANSWER


def test_a_skill_that_codex_only_announces_is_read_and_followed() -> None:
    asked = {"say": f"Follow the skill quiz.\n\n{USER.content}"}
    (call,) = responses.respond(codex(asked), STAND_IN.reply)["output"]
    assert (call["name"], json.loads(call["arguments"])) == (
        "exec_command",
        {"cmd": "cat '/work dir/.agents/skills/quiz/SKILL.md'"},
    )

    printed = f"Chunk ID: 1\nProcess exited with code 0\nOutput:\n{FRONT}{SKILL}"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": printed}
    (message,) = responses.respond(codex(asked, call, result), STAND_IN.reply)["output"]
    assert BENCHMARK.answer(message["content"][0]["text"]) == ANSWER


def test_a_skill_that_claude_code_only_announces_is_loaded_and_followed() -> None:
    asked = ("user", [text(f"Follow the skill quiz.\n\n{USER.content}")])
    (call,) = messages.respond(claude(asked), STAND_IN.reply)["content"]
    assert (call["name"], call["input"]) == ("Skill", {"skill": "quiz"})

    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Launching skill: quiz"}
    loaded = text(f"Base directory for this skill: /work dir/.claude/skills/quiz\n\n{SKILL}")
    (block,) = messages.respond(claude(asked, ("assistant", [call]), ("user", [result, loaded])), STAND_IN.reply)[
        "content"
    ]
    assert BENCHMARK.answer(block["text"]) == ANSWER


def test_a_skill_that_nobody_names_is_left_alone() -> None:
    (message,) = responses.respond(codex({"say": "What is this?"}), STAND_IN.reply)["output"]
    assert message["type"] == "message"
    (block,) = messages.respond(claude(("user", [text("What is this?")])), STAND_IN.reply)["content"]
    assert block["type"] == "text"


def test_a_program_goes_through_the_shell_of_a_cli() -> None:
    known = next(iter(of_benchmark("spreadsheetbench")))
    rule = STAND_IN.world.nature(known.item.id).rule
    body = f"<skill>\n<name>quiz</name>\n<path>/x/SKILL.md</path>\n{FRONT}- {rule}\n</skill>"
    files = "The files that you are given lie in /in/files/0 ($INPUTS)."
    asked = [{"say": f"$quiz\n\n{known.benchmark.task(known.item.public)}\n\n{files}"}, {"say": body}]  # type: ignore[attr-defined]
    (call,) = responses.respond(codex(*asked), STAND_IN.reply)["output"]
    command = json.loads(call["arguments"])["cmd"]

    assert call["name"] == "exec_command"
    assert command.startswith("python3 - <<'PROGRAM'\n")
    assert "INPUT_PATH = os.path.join(os.environ[\"INPUTS\"], 'input.xlsx')" in command

    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "[exit status 0]"}
    (message,) = responses.respond(codex(*asked, call, result), STAND_IN.reply)["output"]
    assert message["type"] == "message"
