"""The stand-in's messages API."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from local.standin.conversation import Answering, Call, Conversation, Reply, Turn, objects, text_of
from skillopt_airflow.core.errors import ModelError


def respond(request: Mapping[str, Any], answering: Answering) -> dict[str, Any]:
    conversation = read(request)
    reply = answering(conversation)
    return {
        "id": f"msg_{conversation.identity(reply)}",
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": _content(conversation, reply),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": conversation.words,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": reply.words,
        },
    }


def stream(request: Mapping[str, Any], answering: Answering) -> Iterator[dict[str, Any]]:
    """Yield the answer as events, with one delta per block."""
    document = respond(request, answering)
    usage = document["usage"]
    # Output tokens count up, as at the provider.
    start = {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 0}}
    yield {"type": "message_start", "message": document | start}
    for index, block in enumerate(document["content"]):
        yield from _block_events(index, block)
    delta = {"stop_reason": document["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def count_tokens(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"input_tokens": read(request).words}


def read(request: Mapping[str, Any]) -> Conversation:
    messages = objects(request, "messages", "role and content")
    # System messages can also be among the turns.
    system = [_paragraphs(request.get("system"))] if request.get("system") else []
    system += [text_of(message.get("content")) for message in messages if message.get("role") == "system"]
    pictures: list[bytes] = []
    turns = [turn for message in messages if message.get("role") != "system" for turn in _turns(message, pictures)]
    tools = objects(request, "tools", "a name") if request.get("tools") else []
    names = tuple(str(tool.get("name", "")) for tool in tools)
    return Conversation(str(request.get("model", "")), "\n\n".join(system), tuple(turns), names, tuple(pictures))


def _turns(message: Mapping[str, Any], pictures: list[bytes]) -> Iterator[Turn]:
    """Yield each of a user's blocks (tool results, texts, pictures) as a separate turn."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not all(isinstance(block, dict) for block in blocks):
        raise ModelError("messages: expected content as a string or a list of blocks with a type")
    if message.get("role") == "assistant":
        texts = [text_of(block.get("text")) for block in blocks if block.get("type") == "text"]
        calls = [
            Call(str(block.get("name", "")), json.dumps(block.get("input", {}), ensure_ascii=False))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        yield Turn("assistant", "\n\n".join(texts), tuple(calls))
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            yield Turn("tool", text_of(block.get("content"), pictures))
    for block in blocks:
        if block.get("type") in ("text", "image"):
            yield Turn("user", text_of([block], pictures))


def _paragraphs(content: object) -> str:
    """Return a string, or the texts of a list of blocks as paragraphs."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n\n".join(text_of(block.get("text")) for block in content if isinstance(block, dict))


def _content(conversation: Conversation, reply: Reply) -> list[dict[str, Any]]:
    if not reply.calls:
        return [{"type": "text", "text": reply.text}]
    return [
        {
            "type": "tool_use",
            "id": f"toolu_{conversation.identity(reply, part)}",
            "name": call.name,
            "input": json.loads(call.arguments),
        }
        for part, call in enumerate(reply.calls)
    ]


def _block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "tool_use":
        empty: dict[str, Any] = {"input": {}}
        arguments = json.dumps(block["input"], ensure_ascii=False)
        delta = {"type": "input_json_delta", "partial_json": arguments}
    else:
        empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
    yield {"type": "content_block_start", "index": index, "content_block": block | empty}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
