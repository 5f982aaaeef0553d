"""The stand-in's responses API."""

from collections.abc import Iterator, Mapping
from typing import Any

from local.standin.conversation import Answering, Call, Conversation, Reply, Role, Turn, objects, text_of
from skillopt_airflow.core.errors import ModelError

_RESULTS = ("function_call_output", "custom_tool_call_output")


def respond(request: Mapping[str, Any], answering: Answering) -> dict[str, Any]:
    conversation = read(request)
    return _document(request, conversation, answering(conversation))


def stream(request: Mapping[str, Any], answering: Answering) -> Iterator[dict[str, Any]]:
    """Yield the answer as events, with one delta per part."""
    document = respond(request, answering)
    start = document | {"status": "in_progress", "output": [], "usage": None, "completed_at": None}
    events = [{"type": f"response.{kind}", "response": start} for kind in ("created", "in_progress")]
    for index, item in enumerate(document["output"]):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": document})
    yield from ({**event, "sequence_number": number} for number, event in enumerate(events))


def read(request: Mapping[str, Any]) -> Conversation:
    if request.get("previous_response_id") is not None:
        raise ModelError("previous_response_id: the stand-in stores nothing; send the whole conversation as input")
    content = request.get("input")
    items = [{"role": "user", "content": content}] if isinstance(content, str) else objects(request, "input", "a type")
    system = [text_of(request.get("instructions"))] if request.get("instructions") else []
    system += [text_of(item.get("content")) for item in items if item.get("role") in ("system", "developer")]
    pictures: list[bytes] = []
    turns = [turn for item in items if (turn := _turn(item, pictures)) is not None]
    model = str(request.get("model", ""))
    return Conversation(model, "\n\n".join(system), tuple(turns), _tools(request), tuple(pictures))


def _turn(item: Mapping[str, Any], pictures: list[bytes]) -> Turn | None:
    """Return None for items that aren't turns, such as instructions and reasoning."""
    kind = item.get("type", "message")
    if kind == "function_call":
        return Turn("assistant", calls=(Call(str(item.get("name", "")), str(item.get("arguments", ""))),))
    if kind in _RESULTS:
        return Turn("tool", text_of(item.get("output"), pictures))
    if kind != "message" or item.get("role") in ("system", "developer"):
        return None
    role: Role = "assistant" if item.get("role") == "assistant" else "user"
    return Turn(role, text_of(item.get("content"), pictures))


def _tools(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the functions' names; ignore server tools and free-form tools."""
    tools = objects(request, "tools", "a type") if request.get("tools") else []
    return tuple(str(tool.get("name", "")) for tool in tools if tool.get("type") == "function")


def _document(request: Mapping[str, Any], conversation: Conversation, reply: Reply) -> dict[str, Any]:
    read_words, written = conversation.words, reply.words
    return {
        "id": f"resp_{conversation.identity(reply)}",
        "object": "response",
        "created_at": 0,
        "completed_at": 0,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": conversation.model,
        "output": _output(conversation, reply),
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "temperature": None,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_p": None,
        "usage": {
            "input_tokens": read_words,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read_words + written,
        },
    }


def _output(conversation: Conversation, reply: Reply) -> list[dict[str, Any]]:
    if not reply.calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        identity = f"msg_{conversation.identity(reply)}"
        return [{"type": "message", "id": identity, "role": "assistant", "status": "completed", "content": [text]}]
    return [
        {
            "type": "function_call",
            "id": f"fc_{conversation.identity(reply, part)}",
            "call_id": f"call_{conversation.identity(reply, part)}",
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for part, call in enumerate(reply.calls)
    ]


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        started = item | {"status": "in_progress", "arguments": ""}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    else:
        (part,) = item["content"]
        text, place = part["text"], place | {"content_index": 0}
        started = item | {"status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
        yield {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
