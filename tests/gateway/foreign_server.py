"""A model server that is not ours: chat completions as vLLM and llama.cpp answer them, with faults on request."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.scripted_provider import Asked, Document, Reply, ScriptedProvider, chat_document, failure, reply_of

HTML = Reply(body=b"<html><body>It works!</body></html>", headers={"content-type": "text/html"})
USAGE = {"usage": {"prompt_tokens": 310, "completion_tokens": 12, "total_tokens": 322}}


@dataclass
class ForeignServer:
    """It wants its key and its model's name, and answers a required tool call by the least that fits the schema."""

    key: str
    model: str = "some-model"
    text: str = "The answer is <answer>Paris</answer>."
    html: bool = False
    """Whether it is no model server at all."""
    status: int = 200
    """Of every call, the key and the model being right."""
    replies: list[tuple[int, Any]] = field(default_factory=list)
    """Status and body of the first answers without tools; after them it answers as ever."""
    base_url: str = ""
    asked: list[str] = field(default_factory=list)
    """The path of each request."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of each call that it let in."""

    @property
    def calls(self) -> int:
        return sum(path.endswith("/completions") for path in self.asked)

    def answer(self, asked: Asked) -> Reply | Document:
        self.asked.append(asked.path)
        if self.html:
            return HTML
        if asked.method == "GET":
            return {"object": "list", "data": [{"id": self.model}]}
        body = asked.body
        if asked.headers.get("authorization") != f"Bearer {self.key}":
            return failure(401, "Unauthorized")
        if body["model"] != self.model:
            return failure(404, f"The model `{body['model']}` does not exist.")
        if self.status != 200:
            return failure(self.status, "out of order")
        tools = body.get("tools", ())
        self.bodies.append(body)
        if self.replies and not tools:
            status, document = self.replies.pop(0)
            return Reply(status, reply_of(document).body)
        if tools:
            return chat_document(None, "tool_calls", self.model, tool_calls=[_call(tools[0])]) | USAGE
        return chat_document(self.text, model=self.model) | USAGE


def _call(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool["function"]["parameters"]
    arguments = json.dumps(_example(schema, schema.get("$defs", {})))
    return {"id": "1", "type": "function", "function": {"name": tool["function"]["name"], "arguments": arguments}}


def _example(schema: dict[str, Any], named: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _example(named[schema["$ref"].rpartition("/")[2]], named)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _example(value, named) for name, value in schema.get("properties", {}).items()}
    if kind == "array":
        return [_example(schema["items"], named)]
    return {"string": "Answer in one word.", "integer": 0, "number": 0, "boolean": True}.get(kind)


@contextmanager
def serving(server: ForeignServer) -> Iterator[ForeignServer]:
    """It, at its `base_url`, as long as the block runs."""
    with ScriptedProvider(server.answer) as provider:
        server.base_url = provider.base_url
        yield server
