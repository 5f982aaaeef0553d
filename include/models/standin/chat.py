"""Chat completions of the stand-in: from the JSON of a request to the JSON of its answer."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from include.core.errors import ModelError
from include.models.standin.aggregate import learning_rate, merge, rank
from include.models.standin.appendix import consolidate
from include.models.standin.deep_reflect import deep_reflect, explain
from include.models.standin.epoch_end import meta_reflect, meta_skill, slow_update
from include.models.standin.epoch_requests import parse_meta_reflect, parse_meta_skill, parse_slow_update
from include.models.standin.reader import respond
from include.models.standin.reflect import reflect, reflect_rewrite, reflect_skill_aware
from include.models.standin.requests import (
    parse_consolidate,
    parse_deep_reflect,
    parse_edits,
    parse_learning_rate,
    parse_merge,
    parse_reflect,
    parse_reflect_rewrite,
)
from include.models.standin.rewriting import rewrite

FINGERPRINT = "stand-in"
MODELS = ("stand-in-target", "stand-in-optimizer")
STAGES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "reflect_result": lambda prompt: reflect(parse_reflect(prompt)),
    "merge_result": lambda prompt: merge(parse_merge(prompt)),
    "rank_result": lambda prompt: rank(parse_edits(prompt)),
    "reflect_skill_aware_result": lambda prompt: reflect_skill_aware(parse_reflect(prompt)),
    "reflect_rewrite_result": lambda prompt: reflect_rewrite(parse_reflect_rewrite(prompt)),
    "learning_rate_result": lambda prompt: learning_rate(parse_learning_rate(prompt)),
    "rewrite_result": lambda prompt: rewrite(parse_edits(prompt)),
    "deep_reflect_result": lambda prompt: deep_reflect(parse_deep_reflect(prompt)),
    "consolidate_result": lambda prompt: consolidate(parse_consolidate(prompt)),
    "slow_update_result": lambda prompt: slow_update(parse_slow_update(prompt)),
    "meta_skill_result": lambda prompt: meta_skill(parse_meta_skill(prompt)),
    "meta_reflect_result": lambda prompt: meta_reflect(parse_meta_reflect(prompt)),
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
        said = respond(system, prompt) if _opens(messages) else explain(system, *_asked_about(messages))
        message: dict[str, Any] = {"role": "assistant", "content": said}
        return _completion(request, messages, message, "stop")
    stage = next((name for name in tools if name in STAGES), None)
    if stage is None:
        raise ModelError(f"tools: the stand-in knows {', '.join(STAGES)}; got {', '.join(tools)}")
    arguments = json.dumps(STAGES[stage](prompt), ensure_ascii=False)
    call = {"id": f"call_{_digest(arguments)}", "type": "function", "function": {"name": stage, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return _completion(request, messages, message, "tool_calls")


def _opens(messages: list[dict[str, Any]]) -> bool:
    """Whether the last message is the item itself, and not a question about an answer that was given to it."""
    answered = any(message.get("role") == "assistant" for message in messages)
    return not answered or messages[-1].get("role") != "user" or "<documents>" in _content(messages[-1])


def _asked_about(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The item's prompt and the last answer that was given."""
    prompt = next((_content(message) for message in messages if message.get("role") == "user"), "")
    given = [_content(message) for message in messages if message.get("role") == "assistant"]
    return prompt, given[-1]


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
