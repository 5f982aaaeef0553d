"""The parts of the claude_code harness, on what Claude Code 2.1.197 wrote; test_agent_clis.py runs the CLI itself."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.searchqa.adapter import BENCHMARK
from skillopt_airflow.consumer import claude_code_text as literal
from skillopt_airflow.core.values.text import flaw_of_text
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.rollout.harnesses.claude_code import ClaudeCodeHarness
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.rollout.single_item import PLAIN

USAGE = {"input_tokens": 3210, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 12}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "cat x"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello"}
SKILL_TEXT = {"type": "text", "text": "Base directory for this skill: /home/.claude/skills/searchqa\n\n- x\n"}


def said(identity: str, *content: dict[str, Any], model: str = "m") -> dict[str, Any]:
    message = {"id": identity, "type": "message", "role": "assistant", "model": model, "content": list(content)}
    return {"type": "assistant", "message": message | {"stop_reason": None}, "parent_tool_use_id": None}


def seen(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": list(content)}, "parent_tool_use_id": None}


def result(**fields: Any) -> dict[str, Any]:
    plain = {"type": "result", "subtype": "success", "is_error": False, "api_error_status": None, "num_turns": 1}
    return plain | {"result": "x", "stop_reason": "end_turn", "usage": USAGE} | fields


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def harness(**settings: Any) -> ClaudeCodeHarness:
    chosen = RolloutSettings(**PLAIN | {"dialect": "openai", "model": "m", "max_tokens": 9} | settings)
    return ClaudeCodeHarness(chosen, BENCHMARK, "http://127.0.0.1:1")


def lines(*events: dict[str, Any]) -> list[bytes]:
    return [json.dumps(event).encode() for event in ({"type": "system", "subtype": "init", "tools": []}, *events)]


def test_a_trace_becomes_turns_and_tokens():
    # A message comes in several events, one a block, under the same id.
    first, last = said("msg_1", text("Let me look.")), said("msg_2", text("<answer>Strelsau</answer>"))
    trace = harness().read(lines(first, said("msg_1", CALL), seen(RESULT), seen(SKILL_TEXT), last, result()))

    assert trace.status is Status.OK
    assert trace.final == "<answer>Strelsau</answer>"
    assert [(message.role, message.content) for message in trace.messages] == [
        ("assistant", "Let me look."),
        ("call", 'Bash({"command": "cat x"})'),
        ("tool", "hello"),
        ("assistant", "<answer>Strelsau</answer>"),
    ]
    assert (trace.calls, trace.prompt_tokens, trace.completion_tokens) == (2, 3222, 12)


@pytest.mark.parametrize(
    ("status_code", "words", "status"),
    [
        (402, "API Error: 402 budget.max_calls is spent, so the run makes no more model calls", Status.BUDGET),
        (400, "API Error: 400 content_filter", Status.REFUSED),
        (None, "", Status.MODEL_ERROR),
    ],
)
def test_an_error_says_why(status_code: int | None, words: str, status: Status):
    synthetic = said("a-1", text(words), model="<synthetic>")
    trace = harness().read(lines(synthetic, result(is_error=True, api_error_status=status_code, result=words)))

    assert trace.status is status
    assert trace.error
    assert (trace.messages, trace.final, trace.calls) == ([], "", 0)


def test_a_refusal_and_a_result_without_a_model_call_are_no_answers():
    refused = harness().read(lines(said("msg_1", text("I will not.")), result(stop_reason="refusal")))
    uncalled = harness().read(lines(result(num_turns=0, result="Unknown command: /searchqa")))
    assert (refused.status, uncalled.status) == (Status.REFUSED, Status.MODEL_ERROR)


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"type":"assistant","message":{"content":["x"]}}', b"\xff"])
def test_a_broken_trace_is_no_answer(broken: bytes):
    assert harness().read([broken]).status is Status.MODEL_ERROR


def test_its_home_holds_the_skill(tmp_path: Path):
    harness().prepare(tmp_path, "Write to $A$1.")
    assert (tmp_path / ".claude" / "skills" / "searchqa" / "SKILL.md").read_text().endswith("\n\nWrite to $A\\$1.")


def test_every_model_is_the_one_and_efforts_are_those_that_the_cli_knows():
    one = harness(reasoning_effort="minimal")
    variables, command = one.variables(), list(one.command([]))

    assert {value for name, value in variables.items() if name.endswith("_MODEL")} == {"m"}
    assert variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "9"
    assert command[command.index("--effort") + 1] == "low"
    assert one.prompt("Which?", []) == "/searchqa Which?"
    command = list(harness(reasoning_effort="max").command([]))
    assert command[command.index("--effort") + 1] == "max"
    assert "--effort" not in harness().command([])
    for effort, tokens in ((None, None), ("low", None), ("on", None), ("off", "0"), (512, "512")):
        thinking = harness(reasoning_effort=effort)
        assert thinking.variables().get("MAX_THINKING_TOKENS") == tokens
        assert ("--effort" in thinking.command([])) == (effort == "low")


WHITESPACE = "\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
"""JavaScript's `\\s`."""
LINE_START = "(?:^|(?<=[\\n\\r\\u2028\\u2029]))"
CLI_PATTERNS = {
    "block": re.compile(r"```!\s*\n?([\s\S]*?)\n?```"),
    "inline": re.compile(rf"(?:(?<=[{WHITESPACE}])|{LINE_START})!`([^`]+)`"),
    "argument": re.compile(r"(?<!\\)\$(?:\d|ARGUMENTS)"),
    "variable": re.compile(r"\$\{(?:CLAUDE_|user_config\.)"),
    "file": re.compile(rf"(?:^|(?<=[{WHITESPACE}\u3002\u3001\uff1f\uff01]))@(?:\"[^\"]+\"|[^{WHITESPACE}]+\b)"),
}
"""What Claude Code 2.1.197 looks for in a skill's text, translated from its JavaScript."""
COMMANDS = {
    "at a line's start": "```!\n{}\n```",
    "in a line": "Run ```!{}``` now.",
    "in a list": "- ```!\n  {}\n  ```",
    "four backticks": "````!\n{}\n````",
    "inline": "Then !`{}`",
    "after U+FEFF": "Step:\ufeff!`{}`",
    "after U+2028": "a\u2028!`{}`",
    "after U+00A0": "a\u00a0!`{}`",
    "after U+3000": "a\u3000!`{}`",
    "after a carriage return": "a\r!`{}`",
    "before an argument that is not given": "Then !$8`{}`",
    "before all arguments": "Then !$ARGUMENTS`{}`",
    "before an indexed argument": "Then !$ARGUMENTS[7]`{}`",
    "around an argument": "``$8`!\n{}\n```",
}
"""Forms that the CLI runs; `{}` is the command."""


@pytest.mark.parametrize(
    ("skill", "written"),
    [
        ("Write to $A$1 and $10, not $ARGUMENTS.", "Write to $A\\$1 and \\$10, not \\$ARGUMENTS."),
        ("$ARGUMENTSx $ARGUMENTS[0] \\\\\\$1", "\\$ARGUMENTSx \\$ARGUMENTS[0] \\$1"),
        ("${HOME} $name $ 5 \\$6 100%", "${HOME} $name $ 5 \\$6 100%"),
        ("${CLAUDE_SKILL_DIR} ${user_config.key}", "$\\{CLAUDE_SKILL_DIR} $\\{user_config.key}"),
        ("- !`ls` (!`ls`) ! `ls` great!", "- ! `ls` (! `ls`) ! `ls` great!"),
        ("say `x`! then `!`", "say `x` ! then ` ! `"),
        ("```!\nls\n```", "``` !\nls\n```"),
        ('See @~/.ssh/id_rsa, \ufeff@"a b"\u3002@x', 'See \\@~/.ssh/id_rsa, \ufeff\\@"a b"\u3002\\@x'),
        ("a@b.c 5 @ 3 `@x` (@x)", "a@b.c 5 @ 3 `@x` (@x)"),
    ],
)
def test_what_the_cli_would_replace_is_escaped(skill: str, written: str):
    assert literal(skill) == written


@pytest.mark.parametrize("form", COMMANDS)
def test_a_command_is_refused_in_a_skill_and_escaped_for_the_cli(form: str):
    skill = f"# Skill\n\n{COMMANDS[form].format('touch x')}\n"
    assert flaw_of_text(skill)
    assert not flaw_of_text(literal(skill).translate(dict.fromkeys(map(ord, "\r\u2028\ufeff"))))
    assert not [name for name, pattern in CLI_PATTERNS.items() if pattern.search(literal(skill))]


PARTS = ["!", "`", "``", "```", "$1", "$ARGUMENTS", "${CLAUDE_EFFORT}", "@", "@a", "\\", " ", "\n", "\ufeff", "x", '"']


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join) | st.text())
def test_no_pattern_of_the_cli_is_in_an_escaped_text(skill: str):
    written = literal(skill)
    assert not [name for name, pattern in CLI_PATTERNS.items() if pattern.search(written)]
    assert not re.search("!`|`!", written)
    assert literal(written) == written


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
def test_a_skill_without_a_flaw_has_no_command_also_if_arguments_are_missing(skill: str):
    if flaw_of_text(skill.replace("\ufeff", "\u3000")):
        return
    replaced = re.sub(r"(?<!\\)\$(?:ARGUMENTS|1)", "", skill)
    assert not [name for name in ("block", "inline") if CLI_PATTERNS[name].search(replaced)]


@pytest.mark.parametrize("part", ["\\", "$", "`!", "@", " @", "``", "$1"])
def test_escaping_takes_linear_time(part: str):
    begun = time.monotonic()
    literal(part * 300_000)
    flaw_of_text(part * 300_000)
    assert time.monotonic() - begun < 5
