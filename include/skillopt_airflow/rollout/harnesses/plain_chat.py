"""Chat requests and replies without an SDK, equal to those of pydantic-ai.

It only supports requests and replies that are the same for all models and servers. pydantic-ai handles the rest, and
all failures.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import JsonValue
from pydantic_core import from_json

from skillopt_airflow.core.config.sampling import without_thinking
from skillopt_airflow.core.values.failure_reasons import ending_status
from skillopt_airflow.core.values.pictures import Picture, Pictures, message_parts
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import JsonObject, Message, Status
from skillopt_airflow.core.wire_formats import Dialect
from skillopt_airflow.core.wire_formats.anthropic_messages import AnthropicMessages, message_blocks
from skillopt_airflow.core.wire_formats.openai_chat import chat_content
from skillopt_airflow.core.wire_formats.wire_format import side, taking_turns
from skillopt_airflow.rollout.gateway_call import Answer
from skillopt_airflow.rollout.harnesses.conversation import Reply, Turn
from skillopt_airflow.rollout.settings import RolloutSettings

_RESPONSE_ENDINGS = {("completed", None): Status.OK, ("incomplete", "max_output_tokens"): Status.TRUNCATED}
"""By the status of a response and the reason of an incomplete one."""

REASONING_MODEL = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)")
"""OpenAI's reasoning models, which accept different settings."""
_THINKING = re.compile("<think>.*?</think>", re.DOTALL)
_FIELDS = {"max_tokens": "max_completion_tokens", "openai_reasoning_effort": "reasoning_effort"}
"""Names of settings that differ in the request."""

_ENDINGS = ("end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded")
_MAX_TOKENS = 64_000
"""pydantic-ai lowers a limit to the model's maximum; this is the lowest maximum that it knows."""
_BESIDE_PROMPT = AnthropicMessages.beside_prompt


class PlainResponses:
    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        pictures = any(isinstance(part, Picture) for turn in turns for part in turn.parts)
        if pictures or REASONING_MODEL.match(settings.model):
            return None
        messages: list[JsonValue] = [{"role": turn.role, "content": "".join(map(str, turn.parts))} for turn in turns]
        sampling = settings.sampling()
        limit, effort = sampling.pop("max_tokens"), sampling.pop("openai_reasoning_effort", None)
        thinking: JsonObject = {} if effort is None else {"reasoning": {"effort": effort}}
        return {
            "model": settings.model,
            "stream": False,
            "input": messages,
            "max_output_tokens": limit,
            **thinking,
            **sampling,
        }

    def reply(self, document: Any) -> Reply | None:
        match document:
            case {
                "id": str(),
                "object": "response",
                "created_at": int(),
                "model": str(),
                "status": str(status),
                "output": [*outputs],
                "usage": {"input_tokens": int(read), "output_tokens": int(written), "total_tokens": int()},
            } if not document.get("error"):
                ending = _RESPONSE_ENDINGS.get((status, (document.get("incomplete_details") or {}).get("reason")))
                texts = [_output_text(output) for output in outputs]
                if ending is not None and None not in texts:
                    joined = "".join(text for text in texts if text)
                    return Reply(ending, text=joined, prompt_tokens=read, completion_tokens=written)
        return None


def _output_text(output: Any) -> str | None:
    """Return the text of an output, empty for reasoning; None for another kind."""
    match output:
        case {"type": "reasoning"}:
            return ""
        case {"type": "message", "role": "assistant", "content": [*blocks]} if all(map(_is_text, blocks)):
            return "".join(block["text"] for block in blocks)
    return None


def _is_text(block: Any) -> bool:
    match block:
        case {"type": "output_text", "text": str(), "annotations": []}:
            return not block.get("logprobs")
    return False


class PlainCompletions:
    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
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
    # Without a closing tag, only the opening tag is removed.
    visible = _THINKING.sub("", text or "").replace("<think>", "", 1)
    return Reply(status, text=visible, prompt_tokens=read, completion_tokens=written)


class PlainMessages:
    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        """Return the request; None if a model may not accept a setting, such as a temperature or a high token limit."""
        sampling = settings.sampling()
        if set(sampling) != {"max_tokens"} or settings.max_tokens > _MAX_TOKENS:
            return None
        system = [str(part) for turn in turns if turn.role == "system" for part in turn.parts]
        messages: list[JsonValue] = [
            {"role": turn.role, "content": message_blocks(turn.parts)}
            for turn in turns
            if turn.role != "system" and any(turn.parts)
        ]
        instructions: JsonObject = {"system": "\n\n".join(system)} if system else {}
        return {"model": settings.model, "stream": False, "messages": messages, **instructions, **sampling}

    def reply(self, document: Any) -> Reply | None:
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
                    joined = "".join(text for text in texts if text)
                    read += sum(usage.get(name) or 0 for name in _BESIDE_PROMPT)
                    return Reply(ending_status(ending), text=joined, prompt_tokens=read, completion_tokens=written)
        return None


def _text(block: Any) -> str | None:
    """Return the text of a block, empty for thinking; None for another kind."""
    match block:
        case {"type": "thinking" | "redacted_thinking"}:
            return ""
        case {"type": "text", "text": str(text)} if not block.get("citations"):
            return text
    return None


MAX_BYTES = 8 * 1024 * 1024
"""The gateway refuses longer requests before it has read them, and a plain call wouldn't receive its answer."""
_CONTROL_TOKEN = re.compile(
    r"<[|｜]|\|>|_of_turn>|\]~|\[(?:\||e~|/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])"
)
"""Strings that a server may parse as a chat template's tokens. pydantic-ai escapes them."""
_BROKEN_TOKEN = re.compile("[<\\[\\]][\u200b-\u200d\u2060\ufeff]")
"""Escaped tokens in an answer, which pydantic-ai restores."""


class PlainFormat(Protocol):
    """The plain requests and answers of a wire format."""

    def request(self, settings: RolloutSettings, turns: Sequence[Turn]) -> JsonObject | None:
        """Return the request for the target's next turn; None if it needs pydantic-ai."""

    def reply(self, document: Any) -> Reply | None:
        """Return the reply in an answer with status 200; None if it needs pydantic-ai, such as a refusal."""


PLAIN_FORMATS: Mapping[Dialect, PlainFormat] = {
    "openai-chat": PlainCompletions(),
    "openai": PlainResponses(),
    "anthropic": PlainMessages(),
}
"""Other wire formats need pydantic-ai."""


def request_body(settings: RolloutSettings, messages: Sequence[Message], pictures: Pictures) -> bytes | None:
    """Return the request for the target's next turn; None if it needs pydantic-ai."""
    plain = PLAIN_FORMATS.get(settings.dialect)
    if plain is None or any(_CONTROL_TOKEN.search(message.content) for message in messages):
        return None
    turns = [Turn(side(message), parts) for message, parts in message_parts(taking_turns(messages), pictures)]
    document = plain.request(settings, turns)
    if document is None:
        return None
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return body if len(body) <= MAX_BYTES else None


def parse_reply(dialect: Dialect, answer: Answer) -> Reply | None:
    """Return the reply in an answer; None if it needs pydantic-ai, such as a failure or a refusal."""
    if answer.status != 200 or not answer.headers.get("content-type", "").startswith("application/json"):
        return None
    try:
        reply = PLAIN_FORMATS[dialect].reply(from_json(answer.body))
    except ValueError:
        return None
    if reply is None or min(reply.prompt_tokens, reply.completion_tokens) < 0 or _BROKEN_TOKEN.search(reply.text):
        return None
    text = without_thinking(storable(reply.text))
    is_empty = reply.status is Status.OK and not text.strip()
    return replace(reply, text=text, status=Status.EMPTY if is_empty else reply.status)
