"""The stand-in's HTTP server: three wire formats with streaming, one thread per connection."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from local.standin import chat_wire, messages_wire, responses_wire
from local.standin.conversation import Answering
from local.standin.stand_in import StandIn, of_all_benchmarks
from skillopt_airflow.core.errors import ModelError

log = logging.getLogger(__name__)

Document = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """The handlers of a path: complete answers, and a stream of events if supported."""

    whole: Callable[[Document, Answering], Document]
    stream: Callable[[Document, Answering], Iterator[Document]] | None = None
    named_events: bool = True
    """True for events with a type; other streams end with [DONE]."""


ENDPOINTS: Mapping[str, Endpoint] = {
    "/v1/chat/completions": Endpoint(chat_wire.complete, chat_wire.stream, named_events=False),
    "/v1/responses": Endpoint(responses_wire.respond, responses_wire.stream),
    "/v1/messages": Endpoint(messages_wire.respond, messages_wire.stream),
    "/v1/messages/count_tokens": Endpoint(lambda request, _: messages_wire.count_tokens(request)),
}
MODELS_PATH = "/v1/models"


class Handler(BaseHTTPRequestHandler):
    server: "StandInServer"
    protocol_version = "HTTP/1.1"
    # Buffer headers and body into one segment; else Nagle's algorithm and delayed ACKs cost 40 ms per call.
    wbufsize = -1

    def do_GET(self) -> None:
        if self.served == MODELS_PATH:
            models = [
                {"id": name, "object": "model", "created": 0, "owned_by": "stand-in"} for name in chat_wire.MODELS
            ]
            self._send(200, {"object": "list", "data": models})
        else:
            self._not_served()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        endpoint = ENDPOINTS.get(self.served)
        if endpoint is None:
            self._not_served()
            return
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ModelError("The body must be a JSON object.")
            answering = self.server.answering(request)
            streamed = list(endpoint.stream(request, answering)) if request.get("stream") and endpoint.stream else None
            answer = endpoint.whole(request, answering) if streamed is None else {}
        except (ModelError, UnicodeDecodeError, json.JSONDecodeError) as error:
            self.fail(400, str(error))
        except Exception as error:
            log.exception("Request failed")
            self.fail(500, f"{type(error).__name__}: {error}")
        else:
            if streamed is None:
                self._send(200, answer)
            else:
                self._send_events(streamed, named=endpoint.named_events)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug(format, *args)

    @property
    def served(self) -> str:
        """Return the path without its query, because some clients add `?beta=true`."""
        return urlsplit(self.path).path.rstrip("/")

    def _not_served(self) -> None:
        self.fail(404, f"{self.served}: not served here. Available: {MODELS_PATH}, {', '.join(ENDPOINTS)}")

    def fail(self, status: int, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
        # Clients of the messages API need the outer type.
        self._send(status, {"type": "error", "error": error})

    def _send(self, status: int, payload: Document) -> None:
        self.write(status, "application/json", json.dumps(payload, ensure_ascii=False).encode())

    def _send_events(self, events: Iterable[Document], *, named: bool) -> None:
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
        if not named:
            lines.append("data: [DONE]\n\n")
        self.write(200, "text/event-stream", "".join(lines).encode())

    def write(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class StandInServer(ThreadingHTTPServer):
    """The server; port 0 means any free port, see `server_port`."""

    handler: type[BaseHTTPRequestHandler] = Handler
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, stand_in: StandIn | None = None) -> None:
        """Listen; the default stand-in knows all installed benchmarks."""
        super().__init__((host, port), self.handler)
        self.stand_in = of_all_benchmarks() if stand_in is None else stand_in

    def answering(self, request: Document) -> Answering:
        return self.stand_in.reply

    @property
    def base_url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}/v1"
