"""An S3 server's front that kills its client at a given PUT, either before or after the server has got it."""

import http.client
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from local.served import served


class KillingProxy:
    """Forwards every request; `victim` is the process that `at` names a PUT of, counted from 0 (-1: none).

    `between` is called when the server has got a PUT, before the client knows of it or is killed.
    """

    def __init__(self, endpoint: str, at: int, after: bool, between: Callable[[], object] = lambda: None) -> None:
        self.at, self.after, self.between = at, after, between
        self.victim: Future[int] = Future()
        self.put: list[str] = []
        self._server = urlsplit(endpoint).netloc

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as the server does, unless the client is killed at this request."""
        number = -1
        if request.command == "PUT":
            number = len(self.put)
            self.put.append(request.path)
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if number == self.at >= 0 and not self.after:
            return self._kill(request)
        server = http.client.HTTPConnection(self._server)
        server.request(request.command, request.path, body, dict(request.headers.items()))
        answer = server.getresponse()
        said = answer.read()
        server.close()
        if request.command == "PUT":
            self.between()
        if number == self.at >= 0:
            return self._kill(request)
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(said)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(said)
        return None

    def _kill(self, request: BaseHTTPRequestHandler) -> None:
        os.kill(self.victim.result(), signal.SIGKILL)
        request.close_connection = True


@contextmanager
def proxied(proxy: KillingProxy) -> Iterator[str]:
    """The proxy's own address, as long as it serves."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_expect_100(self) -> bool:
            self.send_response_only(100)
            self.end_headers()
            return True

        def log_message(self, *_: object) -> None:
            """Nothing."""

    for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", lambda request: proxy.forward(request))
    with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"
