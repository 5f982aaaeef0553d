"""The codex harness: runs `codex exec` with the skill installed for its user and invoked as `$name`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.rollout.harnesses.cli import CLIHarness, Trace, events, http_status_in, install_skill

# The tables are the CLI's own, see `codex exec --strict-config`.
_CONFIG = """
model = {model}
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
{effort}
[model_providers.gateway]
name = "gateway"
base_url = {base_url}
env_key = "OPENAI_API_KEY"
wire_api = "responses"
# The gateway owns the retries.
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = {idle}

# It would wait for outside answers before it exits.
[analytics]
enabled = false

[features]
plugins = false
apps = false

# The trained skill is the only one.
[skills.bundled]
enabled = false
"""


class CodexHarness(CLIHarness):
    """Uses the wire format openai. The CLI accepts no temperature, and the gateway sets its token limit."""

    def prepare(self, home: Path, skill: str) -> None:
        settings, effort = self.settings, self.settings.reasoning_effort
        config = _CONFIG.format(
            model=json.dumps(settings.model),
            effort=f"model_reasoning_effort = {json.dumps(effort)}" if effort else "",
            base_url=json.dumps(f"{self.base_url}/v1"),
            idle=round(settings.patience * 1000),
        )
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(config, encoding="utf-8")
        install_skill(home / ".agents" / "skills", settings.benchmark, skill)

    def command(self, pictures: Sequence[str]) -> Sequence[str]:
        images = [f"--image={path}" for path in pictures]
        return ["codex", "exec", "--json", "--strict-config", "--skip-git-repo-check", *images, "--", "-"]

    def prompt(self, task: str, pictures: Sequence[str]) -> str:
        return f"${skill_name(self.settings.benchmark)}\n\n{task}"

    def variables(self) -> Mapping[str, str]:
        return {"OPENAI_API_KEY": "none"}

    def read(self, lines: Iterable[bytes]) -> Trace:
        """Read the events of `codex exec --json`, which list commands and texts, but not the model's calls.

        Each command and each text counts as a call, which is too many if one answer has several.
        """
        trace = Trace()
        for event in events(lines):
            kind = event.get("type")
            if kind == "item.completed" and isinstance(event.get("item"), dict):
                _read_item(trace, event["item"])
            elif kind == "turn.completed":
                usage = event.get("usage") or {}
                trace.finished = True
                trace.prompt_tokens += int(usage.get("input_tokens", 0))
                trace.completion_tokens += int(usage.get("output_tokens", 0))
            elif kind == "turn.failed":
                message = str((event.get("error") or {}).get("message", "the turn failed"))
                trace.fail(message, http_status_in(message))
                if message.endswith("max_output_tokens"):
                    trace.refused = Status.TRUNCATED
        return trace


def _read_item(trace: Trace, item: Mapping[str, Any]) -> None:
    kind = item.get("type")
    if kind == "agent_message":
        trace.calls += 1
        trace.add_text(str(item.get("text", "")))
    elif kind == "command_execution":
        trace.calls += 1
        trace.add("call", f"$ {item.get('command', '')}")
        trace.add("tool", f"{item.get('aggregated_output', '')}\n[exit status {item.get('exit_code')}]".lstrip())
    elif kind == "file_change":
        trace.calls += 1
        changes = [f"{change.get('kind')} {change.get('path')}" for change in item.get("changes") or ()]
        trace.add("call", f"apply_patch({', '.join(changes)})")
        trace.add("tool", str(item.get("status", "")))
