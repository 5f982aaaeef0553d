"""Answers of model servers in the three wire formats, whole as their clients expect them."""

import json
from typing import Any

from tests.gateway.scripted_provider import (
    ANSWERS,
    Asked,
    Reply,
    completion,
    message_document,
    reply_of,
    response_document,
    response_message,
)


def says(dialect: str, text: str) -> Reply:
    return ANSWERS[dialect](text)


def cut_off(dialect: str, text: str) -> Reply:
    """An answer that hit the limit of tokens; without a text, before it said anything."""
    if dialect == "openai":
        said = [response_message(text, "incomplete")] if text else []
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return reply_of(response_document(*said, **ending))
    if dialect == "anthropic":
        return reply_of(message_document("max_tokens", *([{"type": "text", "text": text}] if text else [])))
    return completion(text, "length")


def calls(dialect: str, name: str, arguments: dict[str, Any], text: str = "") -> Reply:
    if dialect == "openai":
        call = {"type": "function_call", "id": "f-1", "call_id": "call-1", "name": name, "status": "completed"}
        return reply_of(response_document(call | {"arguments": json.dumps(arguments)}))
    if dialect == "anthropic":
        said = [{"type": "text", "text": text}] if text else []
        call = {"type": "tool_use", "id": "call-1", "name": name, "input": arguments}
        return reply_of(message_document("tool_use", *said, call))
    called = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return completion(text, "tool_calls", tool_calls=[called])


def results(asked: Asked) -> list[str]:
    """What the tools gave so far, as the server is told."""
    found = []
    for turn in asked.body.get("messages", asked.body.get("input")):
        if turn.get("role") == "tool":
            found.append(turn["content"])
        elif turn.get("type") == "function_call_output":
            found.append(turn["output"])
        elif turn.get("role") == "user" and isinstance(turn["content"], list):
            found += [_plain(part["content"]) for part in turn["content"] if part.get("type") == "tool_result"]
    return found


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
