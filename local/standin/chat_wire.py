"""The stand-in's chat completions API."""

from collections.abc import Iterator, Mapping
from typing import Any

from local.standin.conversation import Answering, Call, Conversation, Reply, Turn, objects, text_of
from skillopt_airflow.core.errors import ModelError

FINGERPRINT = "stand-in"
MODELS = ("stand-in-target", "stand-in-optimizer")


def complete(request: Mapping[str, Any], answering: Answering) -> dict[str, Any]:
    conversation = read(request)
    return answer(conversation, answering(conversation))


def answer(conversation: Conversation, reply: Reply) -> dict[str, Any]:
    finish_reason = "tool_calls" if reply.calls else "stop"
    return {
        **_head(conversation, reply),
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": _message(conversation, reply), "finish_reason": finish_reason, "logprobs": None}
        ],
        "usage": _usage(conversation, reply),
    }


def stream(request: Mapping[str, Any], answering: Answering) -> Iterator[dict[str, Any]]:
    """Yield the answer in chunks, with the usage last if the request includes it."""
    conversation = read(request)
    reply = answering(conversation)
    message = _message(conversation, reply)
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    finish_reason = "tool_calls" if reply.calls else "stop"
    head = {**_head(conversation, reply), "object": "chat.completion.chunk"}
    yield {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(conversation, reply)}


def read(request: Mapping[str, Any]) -> Conversation:
    messages = objects(request, "messages", "role and content")
    system = [text_of(message.get("content")) for message in messages if message.get("role") in ("system", "developer")]
    pictures: list[bytes] = []
    turns = [_turn(message, pictures) for message in messages if message.get("role") not in ("system", "developer")]
    model = str(request.get("model", MODELS[0]))
    return Conversation(model, "\n\n".join(system), tuple(turns), _tools(request), tuple(pictures))


def _turn(message: Mapping[str, Any], pictures: list[bytes]) -> Turn:
    text, role = text_of(message.get("content"), pictures), message.get("role")
    if role == "tool":
        return Turn("tool", text)
    if role != "assistant":
        return Turn("user", text)
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    calls = [Call(str(function.get("name", "")), str(function.get("arguments", ""))) for function in functions]
    return Turn("assistant", text, tuple(calls))


def _tools(request: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return tuple(str(tool["function"]["name"]) for tool in request.get("tools") or ())
    except (TypeError, KeyError) as error:
        raise ModelError("tools: expected a list of functions with a name each") from error


def _head(conversation: Conversation, reply: Reply) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{conversation.identity(reply)}",
        "created": 0,
        "model": conversation.model,
        "system_fingerprint": FINGERPRINT,
    }


def _message(conversation: Conversation, reply: Reply) -> dict[str, Any]:
    if not reply.calls:
        return {"role": "assistant", "content": reply.text}
    calls = [
        {
            "id": f"call_{conversation.identity(reply, part)}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for part, call in enumerate(reply.calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _usage(conversation: Conversation, reply: Reply) -> dict[str, int]:
    usage = {"prompt_tokens": conversation.words, "completion_tokens": reply.words}
    return {**usage, "total_tokens": sum(usage.values())}
