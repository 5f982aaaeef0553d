"""A model server for tests: answers what a function says, and keeps the requests."""

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from local.served import served


@dataclass(frozen=True)
class Asked:
    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes = b""


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    chunks: Iterable[bytes] | None = None
    """Sent in the place of the body, each as a chunk of its own as it comes."""
    broken: bytes = b""
    """Sent after the chunks in the place of their end, and then the connection is closed."""


def completion(text: str | None, finish_reason: str = "stop", **message: Any) -> Reply:
    document = {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": "stand-in-target",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text} | message,
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }
    return Reply(body=json.dumps(document).encode())


def response(text: str) -> Reply:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 11, "output_tokens": 3}
    return Reply(body=json.dumps({"object": "response", "output": [message], "usage": usage}).encode())


def message(text: str) -> Reply:
    usage = {"input_tokens": 11, "output_tokens": 3}
    content = [{"type": "text", "text": text}]
    return Reply(body=json.dumps({"type": "message", "content": content, "usage": usage}).encode())


ANSWERS: dict[str, Callable[[str], Reply]] = {"openai-chat": completion, "openai": response, "anthropic": message}
"""By dialect."""


def events(*documents: object) -> list[bytes]:
    return [f"data: {json.dumps(document)}\n\n".encode() for document in documents]


def failure(status: int, message: str = "broken", code: str | None = None, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Reply(status, body, {"content-type": "application/json"} | headers)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


class ScriptedProvider:
    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.requests: list[Asked] = []
        lock = threading.Lock()
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with lock:
                    asked = Asked(len(requests) + 1, self.path, headers, json.loads(raw), raw)
                    requests.append(asked)
                reply = answer(asked)
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    if reply.chunks is None:
                        self.send_header("content-length", str(len(reply.body)))
                        self.end_headers()
                        self.wfile.write(reply.body)
                    else:
                        self.send_header("transfer-encoding", "chunked")
                        self.end_headers()
                        for chunk in reply.chunks:
                            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                        self.wfile.write(reply.broken or b"0\r\n\r\n")
                        self.close_connection = bool(reply.broken)
                except OSError:
                    self.close_connection = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._serving = served(self._server)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._serving.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._serving.__exit__(*error)
