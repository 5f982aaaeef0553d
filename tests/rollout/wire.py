"""Answers of model servers in the three wire formats, whole as their clients expect them."""

import json
from typing import Any

from tests.gateway.scripted_provider import Asked, Reply, completion


def says(dialect: str, text: str) -> Reply:
    if dialect == "openai":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return _response(
            {"type": "message", "id": "m-1", "role": "assistant", "status": "completed", "content": content}
        )
    return _message("end_turn", {"type": "text", "text": text}) if dialect == "anthropic" else completion(text)


def cut_off(dialect: str, text: str) -> Reply:
    """An answer that hit the limit of tokens; without a text, before it said anything."""
    if dialect == "openai":
        content = [{"type": "output_text", "text": text, "annotations": []}]
        said = {"type": "message", "id": "m-1", "role": "assistant", "status": "incomplete", "content": content}
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return _response(*([said] if text else []), **ending)
    if dialect == "anthropic":
        return _message("max_tokens", *([{"type": "text", "text": text}] if text else []))
    return completion(text, "length")


def calls(dialect: str, name: str, arguments: dict[str, Any], text: str = "") -> Reply:
    if dialect == "openai":
        call = {"type": "function_call", "id": "f-1", "call_id": "call-1", "name": name, "status": "completed"}
        return _response(call | {"arguments": json.dumps(arguments)})
    if dialect == "anthropic":
        said = [{"type": "text", "text": text}] if text else []
        return _message("tool_use", *said, {"type": "tool_use", "id": "call-1", "name": name, "input": arguments})
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


def _message(stop_reason: str, *content: dict[str, Any]) -> Reply:
    document = {
        "id": "m-1",
        "type": "message",
        "role": "assistant",
        "model": "stand-in-target",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 3},
    }
    return Reply(body=json.dumps(document).encode())


def _response(*output: dict[str, Any], **ending: Any) -> Reply:
    document = {
        "id": "r-1",
        "object": "response",
        "created_at": 1,
        "model": "stand-in-target",
        "status": "completed",
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "output": list(output),
        "usage": {
            "input_tokens": 11,
            "output_tokens": 3,
            "total_tokens": 14,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    return Reply(body=json.dumps(document | ending).encode())
