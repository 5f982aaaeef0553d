"""Chat completions of the stand-in: from the JSON of a request to the JSON of its answer."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from include.core.errors import ModelError
from include.models.standin.aggregate import merge, rank
from include.models.standin.reader import respond
from include.models.standin.reflect import reflect
from include.models.standin.requests import parse_merge, parse_rank, parse_reflect

FINGERPRINT = "stand-in"
MODELS = ("stand-in-target", "stand-in-optimizer")
STAGES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "reflect_result": lambda prompt: reflect(parse_reflect(prompt)),
    "merge_result": lambda prompt: merge(parse_merge(prompt)),
    "rank_result": lambda prompt: rank(parse_rank(prompt)),
}


def complete(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as optimizer if the request offers the tool of a stage, else as target.

    Raises:
        ModelError: the request asks for something that the stand-in does not do, or lacks a part.
    """
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ModelError("messages: expected a list of objects with role and content")
    if request.get("stream"):
        raise ModelError("stream: the stand-in answers in one piece; ask without it")
    system, prompt = _text(messages, ("system", "developer")), _text(messages, ("user",))
    tools = _tool_names(request)
    if not tools:
        message: dict[str, Any] = {"role": "assistant", "content": respond(system, prompt)}
        return _completion(request, messages, message, "stop")
    stage = next((name for name in tools if name in STAGES), None)
    if stage is None:
        raise ModelError(f"tools: the stand-in knows {', '.join(STAGES)}; got {', '.join(tools)}")
    arguments = json.dumps(STAGES[stage](prompt), ensure_ascii=False)
    call = {"id": f"call_{_digest(arguments)}", "type": "function", "function": {"name": stage, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return _completion(request, messages, message, "tool_calls")


def _tool_names(request: Mapping[str, Any]) -> list[str]:
    try:
        return [str(tool["function"]["name"]) for tool in request.get("tools") or ()]
    except (TypeError, KeyError) as error:
        raise ModelError("tools: expected a list of functions with a name each") from error


def _text(messages: list[dict[str, Any]], roles: tuple[str, ...]) -> str:
    return "\n\n".join(_content(message) for message in messages if message.get("role") in roles)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _completion(
    request: Mapping[str, Any], messages: list[dict[str, Any]], message: dict[str, Any], finish_reason: str
) -> dict[str, Any]:
    written = json.dumps(message, ensure_ascii=False)
    read = sum(len(_content(received).split()) for received in messages)
    usage = {"prompt_tokens": read, "completion_tokens": len(written.split())}
    return {
        "id": f"chatcmpl-{_digest(written)}",
        "object": "chat.completion",
        "created": 0,
        "model": str(request.get("model", MODELS[0])),
        "system_fingerprint": FINGERPRINT,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
