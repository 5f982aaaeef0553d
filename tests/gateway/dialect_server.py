"""A local server in the place of a provider: it refuses what the real one's documentation does not have."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    body: Document


@dataclass(frozen=True)
class Refusal(Exception):
    """What the provider would answer to a request that is not as documented."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)


Dialect = Callable[[Request], Document | list[Document]]
"""Gives the answer's body, or the events of a stream, or raises a Refusal."""


class DialectServer(ThreadingHTTPServer):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dialect = dialect
        self.requests: list[Request] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def last(self) -> Request:
        return self.requests[-1]


class _Handler(BaseHTTPRequestHandler):
    server: DialectServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        address = urlsplit(self.path)
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(
            method=self.command,
            path=unquote(address.path),
            query=dict(parse_qsl(address.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=json.loads(sent) if sent else {},
        )
        self.server.requests.append(request)
        try:
            status, headers, said = 200, {}, self.server.dialect(request)
        except Refusal as refusal:
            status, headers = refusal.status, refusal.headers
            said = {"error": {"message": refusal.message, "type": "invalid_request_error", "code": None}}
        media_type = "application/json" if isinstance(said, dict) else "text/event-stream"
        answer = json.dumps(said) if isinstance(said, dict) else "".join(map(_event, said))
        content = answer.encode()
        self.send_response(status)
        for name, value in {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def _event(document: Document) -> str:
    return f"event: {document['type']}\ndata: {json.dumps(document)}\n\n"


def expect(request: Request, method: str, path: str, **query: str) -> None:
    """Refuse another address."""
    if (request.method, request.path) != (method, path):
        raise Refusal(404, f"no {request.method} {request.path} here, only {method} {path}")
    if request.query != query:
        raise Refusal(404, f"the query is {request.query}, not {query}")


def authorised(request: Request, header: str, value: str) -> None:
    """Refuse another key, and more than one."""
    carried = {name for name in ("authorization", "api-key", "x-api-key") if name in request.headers}
    if carried != {header} or request.headers[header] != value:
        raise Refusal(401, f"incorrect key in {carried}")


def only(body: Document, required: str, allowed: str) -> None:
    """Refuse fields that the documentation does not have."""
    missing, unknown = set(required.split()) - set(body), set(body) - set(required.split()) - set(allowed.split())
    if missing or unknown:
        raise Refusal(400, f"missing: {sorted(missing)}; unrecognized request argument supplied: {sorted(unknown)}")
