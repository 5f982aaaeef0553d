"""The parts of the codex harness, on what Codex 0.169 wrote; test_agent_clis.py runs the CLI itself."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.rollout.harnesses.codex import CodexHarness
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.rollout.single_item import PLAIN

STARTED = [
    '{"type":"thread.started","thread_id":"01a1fdb0-f5a9-7833-ba5e-cd35d72c99f3"}',
    '{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata for `m` not found."}}',
    '{"type":"turn.started"}',
]
READ = [
    '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/usr/bin/bash -lc \'cat x\'",'
    '"aggregated_output":"","exit_code":null,"status":"in_progress"}}',
    '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/usr/bin/bash -lc \'cat x\'",'
    '"aggregated_output":"hello\\n","exit_code":0,"status":"completed"}}',
    '{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"<answer>Strelsau</answer>"}}',
    '{"type":"turn.completed","usage":{"input_tokens":6347,"cached_input_tokens":0,"cache_write_input_tokens":0,'
    '"output_tokens":13,"reasoning_output_tokens":0}}',
]


def harness(**settings: Any) -> CodexHarness:
    chosen = RolloutSettings(**PLAIN | {"dialect": "openai", "model": "m", "max_tokens": 9} | settings)
    return CodexHarness(chosen, BENCHMARK, "http://127.0.0.1:1")


def lines(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


def test_a_trace_becomes_turns_and_tokens():
    trace = harness().read(lines(*STARTED, *READ))

    assert trace.status is Status.OK
    assert trace.final == "<answer>Strelsau</answer>"
    assert [(message.role, message.content) for message in trace.messages] == [
        ("call", "$ /usr/bin/bash -lc 'cat x'"),
        ("tool", "hello\n\n[exit status 0]"),
        ("assistant", "<answer>Strelsau</answer>"),
    ]
    assert (trace.calls, trace.prompt_tokens, trace.completion_tokens) == (2, 6347, 13)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("unexpected status 402 Payment Required: budget.max_calls is spent, so, url: http://x", Status.BUDGET),
        ("unexpected status 504 Gateway Timeout: slow, url: http://127.0.0.1:1/v1/responses", Status.TIMEOUT),
        ('{\\"error\\": {\\"message\\": \\"held back\\", \\"code\\": \\"content_filter\\"}}', Status.REFUSED),
        ("exceeded retry limit, last status: 429 Too Many Requests", Status.MODEL_ERROR),
        ("Incomplete response returned, reason: max_output_tokens", Status.TRUNCATED),
    ],
)
def test_a_failed_turn_says_why(message: str, status: Status):
    trace = harness().read(lines(*STARTED, f'{{"type":"turn.failed","error":{{"message":"{message}"}}}}'))

    assert trace.status is status
    assert trace.error


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"type":"item.completed"}', '{"type":"turn.failed"}', "\xff"])
def test_a_broken_trace_is_no_answer(broken: str):
    assert harness().read(lines(*STARTED, broken)).status is Status.MODEL_ERROR


def test_its_home_holds_the_settings_and_the_skill(tmp_path: Path):
    harness(reasoning_effort="low").prepare(tmp_path, "Be short.")
    config = tomllib.loads((tmp_path / ".codex" / "config.toml").read_text())

    assert (config["model"], config["model_provider"], config["model_reasoning_effort"]) == ("m", "gateway", "low")
    assert config["model_providers"]["gateway"]["base_url"] == "http://127.0.0.1:1/v1"
    assert config["model_providers"]["gateway"]["request_max_retries"] == 0
    assert (tmp_path / ".agents" / "skills" / "searchqa" / "SKILL.md").read_text().endswith("\n\nBe short.")
    (tmp_path / "unset").mkdir()
    harness().prepare(tmp_path / "unset", "")
    assert "model_reasoning_effort" not in tomllib.loads((tmp_path / "unset" / ".codex" / "config.toml").read_text())
    assert harness().prompt("Which?", []) == "$searchqa\n\nWhich?"
