"""A model server for tests: answers what a function says, and keeps the requests."""

import json
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from local.served import served

# A client that is made without one reads all certificate authorities, which takes longer than most tests.
ssl.create_default_context = cache(ssl.create_default_context)
Document = dict[str, Any]
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Asked:
    number: int
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    raw: bytes

    @property
    def body(self) -> Document:
        found: Document = json.loads(self.raw) if self.raw else {}
        return found


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: JSON)
    chunks: Iterable[bytes] | None = None
    """Sent in the place of the body, each as a chunk of its own as it comes."""
    broken: bytes = b""
    """Sent after the chunks in the place of their end, and then the connection is closed."""


@dataclass(frozen=True)
class Refusal(Exception):
    """What a provider answers to a request that is not as documented."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Asked], Reply | Document | list[Document] | None]
"""Gives a reply, the document of one, or the events of a stream, or raises a Refusal; without any, it hangs up."""


class ScriptedProvider(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[Asked] = []
        self.lock = threading.Lock()
        self._serving = served(self)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    @property
    def last(self) -> Asked:
        return self.requests[-1]

    def __enter__(self) -> Self:
        self._serving.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._serving.__exit__(*error)

    def reply(self, asked: Asked) -> Reply | None:
        try:
            said = self.answer(asked)
        except Refusal as refusal:
            return failure(refusal.status, refusal.message, **refusal.headers)
        if isinstance(said, list):
            lines = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in said)
            return Reply(body="".join(lines).encode(), headers={"content-type": "text/event-stream"})
        return reply_of(said) if isinstance(said, dict) else said


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedProvider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            number = len(self.server.requests) + 1
            asked = Asked(number, self.command, unquote(url.path), dict(parse_qsl(url.query)), headers, raw)
            self.server.requests.append(asked)
        reply = self.server.reply(asked)
        try:
            self._send(reply)
        except OSError:
            # The client was killed, or has given up.
            self.close_connection = True

    def do_GET(self) -> None:
        self.do_POST()

    def _send(self, reply: Reply | None) -> None:
        if reply is None:
            self.close_connection = True
            return
        self.send_response(reply.status)
        whole = reply.chunks is None
        framing = {"content-length": str(len(reply.body))} if whole else {"transfer-encoding": "chunked"}
        for name, value in (reply.headers | framing).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)
        for chunk in reply.chunks or ():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if not whole:
            self.wfile.write(reply.broken or b"0\r\n\r\n")
            self.close_connection = bool(reply.broken)

    def log_message(self, *_: object) -> None:
        pass


def reply_of(document: object) -> Reply:
    return Reply(body=json.dumps(document).encode())


def events(*documents: object) -> list[bytes]:
    return [f"data: {json.dumps(document)}\n\n".encode() for document in documents]


def failure(status: int, message: str = "broken", code: str | None = None, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Reply(status, body, JSON | headers)


MODEL = "stand-in-target"


def chat_document(text: str | None, finish_reason: str = "stop", model: str = MODEL, **message: Any) -> Document:
    said = {"role": "assistant", "content": text} | message
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": said}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }


def response_document(*output: Document, **changed: Any) -> Document:
    document = {"id": "r-1", "object": "response", "created_at": 1, "model": MODEL, "status": "completed"}
    document |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "output": list(output)}
    usage = {"input_tokens": 11, "output_tokens": 3, "total_tokens": 14}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return document | {"usage": usage} | changed


def response_message(text: str, status: str = "completed") -> Document:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m-1", "role": "assistant", "status": status, "content": content}


def message_document(stop_reason: str, *content: Document, model: str = MODEL) -> Document:
    document = {"id": "m-1", "type": "message", "role": "assistant", "model": model, "content": list(content)}
    usage = {"input_tokens": 11, "output_tokens": 3}
    return document | {"stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def completion(text: str | None, finish_reason: str = "stop", **message: Any) -> Reply:
    return reply_of(chat_document(text, finish_reason, **message))


ANSWERS: dict[str, Callable[[str], Reply]] = {
    "openai-chat": completion,
    "openai": lambda text: reply_of(response_document(response_message(text))),
    "anthropic": lambda text: reply_of(message_document("end_turn", {"type": "text", "text": text})),
}
"""By dialect."""
