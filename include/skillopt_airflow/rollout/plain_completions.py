"""Plain chat completions: what pydantic-ai would ask of any server, and how it would read the answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from skillopt_airflow.core.failure_reasons import ending_status
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.openai_chat import chat_content
from skillopt_airflow.rollout.reply import Reply, Turn
from skillopt_airflow.rollout.settings import RolloutSettings

REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
"""Names of OpenAI's models that think; each takes other settings."""
_THINKING = re.compile("<think>.*?</think>", re.DOTALL)
_FIELDS = {"max_tokens": "max_completion_tokens", "openai_reasoning_effort": "reasoning_effort"}
"""Fields of a request whose setting has another name."""


class PlainCompletions:
    """Chat completions."""

    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        """Return the request; None for a model whose settings differ."""
        if REASONING_MODEL.match(settings.model):
            return None
        messages: list[JsonValue] = [{"role": turn.role, "content": chat_content(turn.parts)} for turn in turns]
        chosen = settings.sampling()
        extra = chosen.pop("extra_body", {})
        sampling = {_FIELDS.get(name, name): value for name, value in chosen.items()}
        return {"model": settings.model, "stream": False, "messages": messages, **sampling} | (
            extra if isinstance(extra, dict) else {}
        )

    def reply(self, document: Any) -> Reply | None:
        """Return what one choice with a text says; None for anything else."""
        match document:
            case {
                "id": str(),
                "object": "chat.completion",
                "created": int(),
                "model": str(),
                "choices": [{"index": int(), "message": {"role": "assistant"} as message} as choice],
                "usage": {"prompt_tokens": int(read), "completion_tokens": int(written), "total_tokens": int()},
            }:
                return _reply(message, choice, read, written)
        return None


def _reply(message: Mapping[str, Any], choice: Mapping[str, Any], read: int, written: int) -> Reply | None:
    text, ending = message.get("content"), choice.get("finish_reason")
    unusual = any(message.get(name) for name in ("refusal", "annotations", "audio", "function_call", "tool_calls"))
    plain = isinstance(text, str | None) and isinstance(ending, str | None)
    if unusual or choice.get("logprobs") or not plain or not (status := ending_status(ending)).scored:
        return None
    # Of a block that nobody closed only its tag is left out.
    said = _THINKING.sub("", text or "").replace("<think>", "", 1)
    return Reply(status, text=said, prompt_tokens=read, completion_tokens=written)
