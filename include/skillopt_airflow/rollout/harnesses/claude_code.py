"""The claude_code harness: runs `claude -p` with the skill installed for its user and invoked as `/name`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt_airflow.consumer import claude_code_text as literal
from skillopt_airflow.core.config.sampling import named_effort
from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.rollout.harnesses.cli import CLIHarness, Trace, events, install_skill

TOOLS = "Bash,Read,Write,Edit,Glob,Grep,Skill"
"""Its other tools need the network, a user's answers, or a longer session."""


class ClaudeCodeHarness(CLIHarness):
    """Uses the wire format anthropic. The CLI accepts no temperature."""

    def prepare(self, home: Path, skill: str) -> None:
        install_skill(home / ".claude" / "skills", self.settings.benchmark, literal(skill))

    def command(self, pictures: Sequence[str]) -> Sequence[str]:
        settings = self.settings
        # The CLI's lowest effort is low.
        level = "low" if settings.reasoning_effort == "minimal" else named_effort(settings.reasoning_effort)
        effort = [] if level is None else ["--effort", level]
        command = ["claude", "--print", "--output-format", "stream-json", "--verbose", "--model", settings.model]
        return [*command, "--tools", TOOLS, "--dangerously-skip-permissions", "--no-session-persistence", *effort]

    def prompt(self, task: str, pictures: Sequence[str]) -> str:
        # The CLI has no option for pictures, but its tool Read shows them to the model.
        hints = "".join(f"\n\nBefore you answer, look at the picture {path} with the tool Read." for path in pictures)
        return f"/{skill_name(self.settings.benchmark)} {task}{hints}"

    def variables(self) -> Mapping[str, str]:
        """Return settings for a single model, without retries and other requests, since the gateway refuses them."""
        settings = self.settings
        patience = str(round(settings.patience * 1000))
        variables = {
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": settings.model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": settings.model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": settings.model,
            "ANTHROPIC_SMALL_FAST_MODEL": settings.model,
            "CLAUDE_CODE_SUBAGENT_MODEL": settings.model,
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(settings.max_tokens),
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "API_TIMEOUT_MS": patience,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # No other skills, and no memory.
            "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        effort = settings.reasoning_effort
        most = 0 if effort == "off" else effort
        return variables | ({"MAX_THINKING_TOKENS": str(most)} if isinstance(most, int) else {})

    def read(self, lines: Iterable[bytes]) -> Trace:
        trace = Trace()
        answers: set[str] = set()
        for event in events(lines):
            kind = event.get("type")
            if kind == "result":
                _read_result(trace, event)
                continue
            message = event.get("message")
            # The CLI's own messages have a model in angle brackets.
            if not isinstance(message, dict) or str(message.get("model", "")).startswith("<"):
                continue
            if kind == "assistant":
                answers.add(str(message.get("id")))
                trace.end(message.get("stop_reason"))
            if kind in ("assistant", "user"):
                _read_blocks(trace, kind, message.get("content"))
        trace.calls = len(answers)
        return trace


def _read_blocks(trace: Trace, kind: str, content: object) -> None:
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            trace.add("call", f"{block.get('name')}({json.dumps(block.get('input'), ensure_ascii=False)})")
        elif block.get("type") == "tool_result":
            content = block.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            trace.add("tool", "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict)))
        elif block.get("type") == "text" and kind == "assistant":
            trace.add_text(str(block.get("text", "")))


def _read_result(trace: Trace, event: Mapping[str, Any]) -> None:
    usage = event.get("usage") or {}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    trace.prompt_tokens = sum(int(usage.get(name) or 0) for name in names)
    trace.completion_tokens = int(usage.get("output_tokens") or 0)
    trace.finished = not event.get("is_error")
    trace.end(event.get("stop_reason"))
    if event.get("is_error"):
        status = event.get("api_error_status")
        reason = str(event.get("result") or event.get("subtype") or "the CLI gave up")
        trace.fail(reason, status if isinstance(status, int) else None)
