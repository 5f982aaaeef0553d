"""A model server that passes everything on to another one, slowly enough to be interrupted."""

import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowModel(ThreadingHTTPServer):
    """`delay` is how many seconds it takes to a call before it asks `upstream`; it may change at any time."""

    def __init__(self, upstream: str, delay: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.delay = delay

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: SlowModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay)
        self._pass_on(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output free of access lines."""

    def _pass_on(self, body: bytes | None) -> None:
        address = self.server.upstream + self.path.removeprefix("/v1")
        request = urllib.request.Request(address, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            # The caller was killed, which is what this server is for.
            self.close_connection = True
