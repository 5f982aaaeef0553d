"""A model server that is not ours: chat completions as vLLM and llama.cpp answer them, with faults on request."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

HTML = "<html><body>It works!</body></html>"


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
    takes_tools: bool = True
    """Without them it answers by the schema that it finds in the instructions."""
    base_url: str = ""
    asked: list[str] = field(default_factory=list)
    """The path of each request."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of each call that it let in."""

    @property
    def calls(self) -> int:
        return sum(path.endswith("/completions") for path in self.asked)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.html:
            return web.Response(text=HTML, content_type="text/html")
        if request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": self.model}]})
        body = await request.json()
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, "Unauthorized")
        if body["model"] != self.model:
            return _error(404, f"The model `{body['model']}` does not exist.")
        if self.status != 200:
            return _error(self.status, "out of order")
        tools = body.get("tools", ())
        if self.replies and not tools:
            status, document = self.replies.pop(0)
            self.bodies.append(body)
            return web.json_response(document, status=status)
        if tools and not self.takes_tools:
            return _error(400, f"{self.model} does not support tools")
        self.bodies.append(body)
        text = self.text if self.takes_tools else _by_schema(body, self.text)
        return web.json_response(_completion(body, {"tool_calls": [_call(tools[0])]} if tools else {}, text))


def _completion(body: dict[str, Any], message: dict[str, Any], text: str) -> dict[str, Any]:
    said = {"role": "assistant", "content": None, **message} if message else {"role": "assistant", "content": text}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if message else "stop"}
    usage = {"prompt_tokens": 310, "completion_tokens": 12, "total_tokens": 322}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }


def _by_schema(body: dict[str, Any], otherwise: str) -> str:
    """The least that fits the schema of a prompt that asks for JSON; another prompt's answer is text."""
    asked = "\n".join(str(message["content"]) for message in body["messages"])
    begin = asked.find('{"')
    if "schema" not in asked or begin < 0:
        return otherwise
    schema, _ = json.JSONDecoder().raw_decode(asked[begin:])
    return json.dumps(_example(schema, schema.get("$defs", {})))


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


def _error(status: int, message: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "invalid_request_error", "code": status}}, status=status
    )


@contextmanager
def serving(server: ForeignServer) -> Iterator[ForeignServer]:
    """It, at its `base_url`, as long as the block runs."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
