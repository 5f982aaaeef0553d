"""Plain messages of Anthropic's API: what pydantic-ai would ask of any model, and how it would read the answer."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from skillopt_airflow.core.provider_statuses import ending_status
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.anthropic_messages import AnthropicMessages, message_blocks
from skillopt_airflow.rollout.reply import Reply, Turn
from skillopt_airflow.rollout.settings import RolloutSettings

_ENDINGS = ("end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded")
_MOST_TOKENS = 64_000
"""The smallest limit of an answer among the models whose limit pydantic-ai knows, and lowers a larger one to."""
_BESIDE_PROMPT = AnthropicMessages.beside_prompt


class PlainMessages:
    """Messages."""

    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        """Return the request; None where a model may not take a setting, such as a temperature or so long an answer."""
        sampling = settings.sampling()
        if set(sampling) != {"max_tokens"} or settings.max_tokens > _MOST_TOKENS:
            return None
        system = [str(part) for turn in turns if turn.role == "system" for part in turn.parts]
        said: list[JsonValue] = [
            {"role": turn.role, "content": message_blocks(turn.parts)}
            for turn in turns
            if turn.role != "system" and any(turn.parts)
        ]
        instructed: JsonObject = {"system": "\n\n".join(system)} if system else {}
        return {"model": settings.model, "stream": False, "messages": said, **instructed, **sampling}

    def reply(self, document: Any) -> Reply | None:
        """Return what a message of texts, and perhaps thoughts, says; None for anything else."""
        match document:
            case {
                "id": str(),
                "type": "message",
                "role": "assistant",
                "model": str(),
                "content": [*blocks],
                "stop_reason": ending,
                "usage": {"input_tokens": int(read), "output_tokens": int(written)} as usage,
            } if ending in _ENDINGS:
                texts = [_text(block) for block in blocks]
                if None not in texts:
                    said = "".join(text for text in texts if text)
                    read += sum(usage.get(name) or 0 for name in _BESIDE_PROMPT)
                    return Reply(ending_status(ending), text=said, prompt_tokens=read, completion_tokens=written)
        return None


def _text(block: Any) -> str | None:
    """Return what a block says, which is nothing for a thought; None for one of another kind."""
    match block:
        case {"type": "thinking" | "redacted_thinking"}:
            return ""
        case {"type": "text", "text": str(text)} if not block.get("citations"):
            return text
    return None
